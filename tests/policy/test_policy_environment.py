"""The Gymnasium environment of prompt changes: its interface, its rules, and what a policy learns in it."""

from typing import Any

import numpy as np
import pytest

from convergence.policy import ScoredPrompts, SimulatedPrompts
from convergence_core.policy.prompt_state import N_PROGRESS, PROMPT_ACTIONS, STOP

gymnasium = pytest.importorskip("gymnasium")

from convergence.policy.environment import ENVIRONMENT_ID, PromptMutationEnvironment  # noqa: E402 - needs the extra

AT = {name: np.int64(at) for at, name in enumerate(PROMPT_ACTIONS)}
QUIET: dict[str, Any] = {"n_categories": 2, "embedding_dim": 16, "noise": 0.0}


def test_gymnasiums_own_check_finds_nothing():
    from gymnasium.utils.env_checker import check_env

    made = gymnasium.make(ENVIRONMENT_ID)
    check_env(made.unwrapped, skip_render_check=True)
    seen, info = made.reset(seed=3)
    again, same = made.reset(seed=3)
    assert seen.tolist() == again.tolist()
    assert info["score"] == same["score"]
    assert seen.shape == (64 + N_PROGRESS,)


def test_rewards_sum_to_the_gain_and_the_last_step_ends_the_episode():
    environment = PromptMutationEnvironment(SimulatedPrompts(**QUIET), max_steps=3)
    _, info = environment.reset(seed=0)
    first, total = info["score"], 0.0
    for n, name in enumerate(("expansion", "reflect", "context-reduction"), 1):
        assert info["action_mask"][AT[name]]
        seen, reward, terminated, truncated, info = environment.step(AT[name])
        assert not info["action_mask"][AT[name]], "it was used"
        total += reward
        assert (terminated, truncated) == (n == 3, False)
        assert environment.observation_space.contains(seen)
    assert total == pytest.approx(info["score"] - first)
    assert info["action_mask"].tolist() == [name == STOP for name in PROMPT_ACTIONS]


@pytest.mark.parametrize("second", [STOP, "expansion"])
def test_stop_and_what_is_not_legal_end_the_episode_and_earn_nothing(second: str):
    environment = PromptMutationEnvironment(SimulatedPrompts(**QUIET), prices=[0.5] * 7)
    with pytest.raises(gymnasium.error.ResetNeeded):
        environment.step(AT[STOP])
    _, before = environment.reset(seed=0)
    _, reward, _, _, after = environment.step(AT["expansion"])
    assert reward == pytest.approx(after["score"] - before["score"] - 0.5)
    _, reward, terminated, _, info = environment.step(AT[second])
    assert (reward, terminated, info["is_legal"]) == (0.0, True, second == STOP)
    assert info["score"] == after["score"]
    with pytest.raises(ValueError, match="`prices` must have 7 numbers"):
        PromptMutationEnvironment(prices=[1.0])


def test_prompts_of_yours_are_scored_once_each():
    asked: list[str] = []

    def score(prompt: str) -> float:
        asked.append(prompt)
        return min(1.0, len(prompt) / 400)

    world = ScoredPrompts(["Answer the question."], score, embedding_dim=32)
    environment = PromptMutationEnvironment(world)
    for _ in range(3):
        _, info = environment.reset(seed=1)
        assert info["action_mask"][AT["reflect"]] == 0
        _, _, _, _, info = environment.step(AT["expansion"])
        assert info["prompt"].startswith("Answer the question.")
    assert len(asked) == len(set(asked)) == world.n_evaluations
    own = ScoredPrompts(["x y"], score, change=lambda text, action: f"{text} {action}",
                        embed=lambda text: [1.0, len(text)], embedding_dim=2)  # fmt: skip
    environment = PromptMutationEnvironment(own)
    environment.reset(seed=0)
    assert environment.step(AT["reflect"])[4]["prompt"] == "x y reflect"
    with pytest.raises(ValueError, match="`prompts` must hold at least one prompt"):
        ScoredPrompts([], score)
