"""Baseline policies: what they find, what they refuse, and what they do not see."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from convergence_core.policy import (
    PROMPT_ACTIONS,
    STOP,
    FixedSequence,
    LinearThompson,
    PromptEnvironment,
    TakenStep,
)
from tasks.policy.prompt_worlds import SimulatedPrompts

CHANGES = tuple(name for name in PROMPT_ACTIONS if name != STOP)
AT_STOP = PROMPT_ACTIONS.index(STOP)
ALL = np.ones(len(PROMPT_ACTIONS), dtype=bool)


def played(
    policy: Any, environment: PromptEnvironment, rng: np.random.Generator, *, is_learning: bool
) -> list[TakenStep]:
    """Play an episode."""
    environment.begin(rng)
    steps: list[TakenStep] = []
    is_over = False
    while not is_over:
        state, legal = environment.observation(), environment.legal()
        action = policy.choose(state, legal, rng if is_learning else None)
        step = environment.act(action, rng)
        steps.append(TakenStep(state=state, legal=legal, action=action, reward=step.reward))
        is_over = step.is_over
    if is_learning:
        policy.learn(steps)
    return steps


def worth_of(world: SimulatedPrompts, sequence: tuple[str, ...]) -> float:
    """Return the true gain of a sequence of changes in a world of one category."""
    at = [CHANGES.index(name) for name in sequence]
    return sum(
        float(world.gains[0, a] + world.pairs[0, at[:step], a].sum()) for step, a in enumerate(at)
    )


def test_the_fixed_sequence_found_is_nearly_the_best_of_all():
    world = SimulatedPrompts(2, n_categories=1, embedding_dim=4, order_effect=0.05, noise=0.02)
    environment = PromptEnvironment(world, max_steps=3)
    policy, rng = FixedSequence(), np.random.default_rng(0)
    for _ in range(300):
        played(policy, environment, rng, is_learning=True)
    found = tuple(PROMPT_ACTIONS[at] for at in policy.sequence(ALL, stop=AT_STOP))
    every = [one for n in range(4) for one in permutations(CHANGES, n)]
    best = max(worth_of(world, one) for one in every)
    assert worth_of(world, found) > 0.9 * best > 0, (found, worth_of(world, found), best)
    taken = [
        PROMPT_ACTIONS[one.action] for one in played(policy, environment, rng, is_learning=False)
    ]
    assert tuple(taken[: len(found)]) == found


def test_a_sequence_knows_what_a_later_step_is_worth_and_linear_thompson_sampling_does_not():
    # The first action costs a little, and opens the second, which earns much; the third ends with nothing.
    first, second = np.array([True, False, True]), np.array([False, True, True])
    state = np.ones(2)
    sequence, linear = FixedSequence(), LinearThompson(2, 3)
    for _ in range(20):
        episode = [
            TakenStep(state=state, legal=first, action=0, reward=-0.1),
            TakenStep(state=state, legal=second, action=1, reward=0.5),
        ]
        sequence.learn(episode)
        linear.learn(episode)
    assert sequence.choose(state, first) == 0
    assert sequence.sequence(first, stop=2) == (0, 1)
    assert linear.choose(state, first) == 2
    assert linear.choose(state, second) == 1
    assert linear.n == 40


@pytest.mark.statistical
@pytest.mark.parametrize("policy", [FixedSequence(), LinearThompson(3, len(PROMPT_ACTIONS))])
def test_what_nothing_is_known_of_is_chosen_uniformly_among_the_legal(policy: Any):
    legal = np.array([True, False, True, True, False, True, True])
    rng = np.random.default_rng(7)
    chosen = [policy.choose(np.array([0.2, -0.4, 0.1]), legal, rng) for _ in range(2_000)]
    counts = np.bincount(chosen, minlength=legal.size)
    assert counts[~legal].sum() == 0
    p = chisquare(counts[legal]).pvalue
    assert p > 1e-3, (counts, p)


@pytest.mark.parametrize("policy", [FixedSequence(), LinearThompson(1, 2)])
def test_what_cannot_be_learned_from_is_refused_whole(policy: Any):
    good = TakenStep(state=np.ones(1), legal=np.array([True, True]), action=0, reward=1.0)
    legal = np.array([True, False])
    for bad, rule in (
        (TakenStep(state=np.ones(1), legal=legal, action=0, reward=float("nan")), "reward"),
        (TakenStep(state=np.ones(1), legal=legal, action=1, reward=0.0), "action"),
    ):
        with pytest.raises(ValueError, match=f"`{rule}` must be"):
            policy.learn([good, bad])
    # The good step of a refused episode counts for nothing either.
    drawn = [
        policy.choose(np.ones(1), np.array([True, True]), np.random.default_rng(n))
        for n in range(60)
    ]
    assert set(drawn) == {0, 1}


def test_a_variance_of_nothing_is_refused():
    with pytest.raises(ValueError, match="`variance` and `prior_weight` must be above 0"):
        FixedSequence(variance=0.0)
    with pytest.raises(ValueError, match="`variance` must be above 0"):
        LinearThompson(2, 2, variance=-1.0)
