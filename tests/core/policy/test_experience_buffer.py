"""Steps that arrive in any order, twice, or never."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from convergence_core.policy.experience_buffer import ExperienceBuffer, PolicyDecision, StepOutcome
from convergence_core.policy.learner import PPOState, improve
from convergence_core.policy.settings import PPOConfig

CONFIG = PPOConfig(
    input_dim=2, action_dim=3, hidden_dim=4, batch_size=1, gamma=0.9, gae_lambda=0.7
)


def decision(episode: str, step: int, *, value: float = 0.0) -> PolicyDecision:
    return PolicyDecision(
        decision_id=f"{episode}-{step}",
        episode_id=episode,
        step=step,
        version=0,
        observation=np.array([value, 1.0]),
        legal=np.array([True, True, False]),
        action=step % 2,
        log_prob=-0.7,
        value=value,
    )


def advantages_of(
    values: list[float], outcomes: list[StepOutcome], following: float
) -> list[float]:
    """Return the advantages of one piece, by eq. 16 with the value that follows its last step."""
    found, later = [], 0.0
    for value, outcome in zip(values[::-1], outcomes[::-1], strict=True):
        later = outcome.reward + 0.9 * following - value + 0.9 * 0.7 * later
        found.append(later)
        following = value
    return found[::-1]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_order_of_reports_does_not_matter(seed: int):
    rng = np.random.default_rng(seed)
    buffer = ExperienceBuffer(version=0)
    reports, expected = [], {}
    for name in ("a", "b", "c"):
        n, kind = int(rng.integers(1, 6)), ("terminated", "truncated", "open")[rng.integers(3)]
        values = rng.normal(size=n + 1).tolist()
        outcomes = [StepOutcome(reward=float(rng.normal())) for _ in range(n)]
        following = 0.0
        if kind == "terminated":
            outcomes[-1] = replace(outcomes[-1], terminated=True)
        elif kind == "truncated":
            following = float(rng.normal())
            outcomes[-1] = replace(outcomes[-1], truncated=True, final_value=following)
        else:  # one step more was decided, and its outcome never comes
            following = values[n]
        for step in range(n + (kind == "open")):
            buffer.decide(decision(name, step, value=values[step]))
        expected[name] = advantages_of(values[:n], outcomes, following)
        reports += [(f"{name}-{step}", one) for step, one in enumerate(outcomes)]
    for place in rng.permutation(len(reports)):
        buffer.report(*reports[place])
        buffer.report(*reports[place])  # the same report again is nothing new
    rollout = buffer.rollout(CONFIG)
    assert rollout is not None
    assert buffer.n_ready == len(reports)
    found = rollout.experience(CONFIG).advantages
    assert found == pytest.approx([one for name in "abc" for one in expected[name]], abs=1e-12)


def test_a_gap_in_an_episode_cuts_it_there():
    buffer = ExperienceBuffer(version=0)
    for step, value in enumerate([1.0, 2.0, 3.0, 4.0]):
        buffer.decide(decision("a", step, value=value))
    buffer.report("a-0", StepOutcome(reward=0.5))
    buffer.report("a-2", StepOutcome(reward=0.25))
    rollout = buffer.rollout(CONFIG)
    assert rollout is not None
    assert rollout.truncated.ravel().tolist() == [True, True]
    assert rollout.final_values.ravel().tolist() == [2.0, 4.0], "values of the steps that follow"
    expected = [0.5 + 0.9 * 2.0 - 1.0, 0.25 + 0.9 * 4.0 - 3.0]
    assert rollout.experience(CONFIG).advantages == pytest.approx(expected)


def test_a_step_waits_for_its_outcome_and_for_the_next_decision():
    buffer = ExperienceBuffer(version=0)
    buffer.decide(decision("a", 0))
    assert buffer.n_ready == 0
    buffer.report("a-0", StepOutcome(reward=1.0))
    assert buffer.n_ready == 0
    assert buffer.rollout(CONFIG) is None
    buffer.decide(decision("a", 1))
    assert buffer.n_ready == 1
    assert buffer.rollout(replace(CONFIG, batch_size=2)) is None, "fewer than a minibatch"


def test_what_is_ready_can_be_learned_from_once():
    rng = np.random.default_rng(0)
    state = PPOState.begin(CONFIG, rng, dtype=np.float64)
    buffer = ExperienceBuffer(version=state.version)
    for episode in "abcd":
        buffer.decide(decision(episode, 0))
        buffer.report(f"{episode}-0", StepOutcome(reward=1.0, terminated=True))
    buffer.decide(decision("e", 0))
    rollout = buffer.rollout(CONFIG)
    assert rollout is not None
    after, _ = improve(state, rollout, CONFIG, rng)
    buffer.advance(after.version)
    assert buffer.n_ready == 0


def test_reports_that_contradict_are_refused_and_change_nothing():
    buffer = ExperienceBuffer(version=0)
    buffer.decide(decision("a", 0))
    buffer.report("a-0", StepOutcome(reward=1.0, terminated=True))
    with pytest.raises(ValueError, match="has another outcome already"):
        buffer.report("a-0", StepOutcome(reward=2.0, terminated=True))
    rollout = buffer.rollout(CONFIG)
    assert rollout is not None
    assert rollout.rewards.ravel().tolist() == [1.0]


def test_decisions_out_of_place_are_refused():
    buffer = ExperienceBuffer(version=0)
    buffer.decide(decision("a", 0))
    with pytest.raises(ValueError, match="`step` must be new in its episode"):
        buffer.decide(replace(decision("a", 0), decision_id="other"))
    buffer.decide(decision("a", 1))
    with pytest.raises(ValueError, match="its next step was decided already"):
        buffer.report("a-0", StepOutcome(reward=1.0, truncated=True))
    buffer.report("a-1", StepOutcome(reward=1.0, terminated=True))
    with pytest.raises(ValueError, match="ended with step 1; start another one"):
        buffer.decide(decision("a", 2))
