"""State and legal actions of a policy of prompts."""

import numpy as np
import pytest

from convergence_core.policy.prompt_state import N_PROGRESS, PROMPT_ACTIONS, STOP, PromptEpisode


def test_an_observation_holds_the_direction_and_the_progress():
    episode = PromptEpisode(
        history=("expansion", "reflect"), category="format", score=0.25, max_steps=4
    )
    seen = episode.observation([3.0, 4.0])
    assert seen.dtype == np.float32
    assert seen.shape == (2 + N_PROGRESS,)
    assert seen[:2].tolist() == pytest.approx([0.6, 0.8])
    used, last, rest = seen[2:9], seen[9:16], seen[16:]
    assert [PROMPT_ACTIONS[i] for i in np.flatnonzero(used)] == ["expansion", "reflect"]
    assert [PROMPT_ACTIONS[i] for i in np.flatnonzero(last)] == ["reflect"]
    assert rest.tolist() == [0.5, 0, 0, 0, 1, 0, 0, 0.25, 1]
    unknown = PromptEpisode().observation([3.0, 4.0])
    assert unknown[2:].tolist() == [0] * 15 + [1] + [0] * 7


@pytest.mark.parametrize("embedding", [[], [0.0, 0.0], [np.inf, 1.0], [np.nan, 1.0]])
def test_no_direction_is_refused(embedding: list[float]):
    with pytest.raises(ValueError, match="`embedding` must hold finite numbers"):
        PromptEpisode().observation(embedding)


def test_an_action_is_used_once_and_stop_is_always_legal():
    legal = PromptEpisode(history=("expansion",)).legal(["reflect", STOP])
    assert [n for n, on in zip(PROMPT_ACTIONS, legal, strict=True) if not on] == [
        "expansion", "reflect",
    ]  # fmt: skip


def test_after_the_last_step_only_stop_is_legal():
    legal = PromptEpisode(history=("expansion",), max_steps=1).legal()
    assert legal.tolist() == [name == STOP for name in PROMPT_ACTIONS]


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("actions among", {"history": (STOP,)}),
        ("each action at most once", {"history": ("expansion", "expansion")}),
        ("at most 1 actions", {"history": ("expansion", "reflect"), "max_steps": 1}),
    ],
)
def test_what_breaks_a_rule_is_refused(rule: str, fields: dict[str, object]):
    with pytest.raises(ValueError, match=rule):
        PromptEpisode(**fields)  # type: ignore[arg-type]
