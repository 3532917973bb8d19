"""Episodes of prompt changes: their rules, and what earns a reward."""

from typing import Any

import numpy as np
import pytest

from convergence.policy import SimulatedPrompts
from convergence_core.policy.prompt_environment import PromptEnvironment
from convergence_core.policy.prompt_state import N_PROGRESS, PROMPT_ACTIONS, STOP

AT = {name: at for at, name in enumerate(PROMPT_ACTIONS)}
QUIET: dict[str, Any] = {"n_categories": 2, "embedding_dim": 16, "noise": 0.0}


def test_equal_seeds_give_equal_episodes():
    def played() -> tuple[list[float], float]:
        environment, rng = PromptEnvironment(SimulatedPrompts()), np.random.default_rng(3)
        environment.begin(rng)
        first = environment.observation().tolist()
        return first, environment.act(AT["expansion"], rng)[0]

    assert played() == played()
    assert len(played()[0]) == 64 + N_PROGRESS


def test_rewards_sum_to_the_gain_and_the_last_step_ends_the_episode():
    environment, rng = (
        PromptEnvironment(SimulatedPrompts(**QUIET), max_steps=3),
        np.random.default_rng(0),
    )
    environment.begin(rng)
    first, total = environment.situation.score, 0.0
    for n, name in enumerate(("expansion", "reflect", "context-reduction"), 1):
        assert environment.legal()[AT[name]]
        reward, is_over = environment.act(AT[name], rng)
        assert not environment.legal()[AT[name]], "it was used"
        total += reward
        assert is_over is (n == 3)
    assert total == pytest.approx(environment.situation.score - first)
    assert environment.legal().tolist() == [name == STOP for name in PROMPT_ACTIONS]


@pytest.mark.parametrize("second", [STOP, "expansion"])
def test_stop_and_what_is_not_legal_end_the_episode_and_earn_nothing(second: str):
    environment, rng = PromptEnvironment(SimulatedPrompts(**QUIET)), np.random.default_rng(0)
    with pytest.raises(LookupError, match="no episode has started"):
        environment.act(AT[STOP], rng)
    environment.begin(rng)
    before = environment.situation.score
    reward, _ = environment.act(AT["expansion"], rng)
    after = environment.situation.score
    assert reward == pytest.approx(after - before)
    assert environment.act(AT[second], rng) == (0.0, True)
    assert environment.situation.score == after
