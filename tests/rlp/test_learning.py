"""The policy learns which thoughts predict, and nothing where rewards mean nothing."""

import json

import numpy as np
import pytest

from convergence_core.records import canonical_json
from convergence_core.rlp.learner import SURE, RlpState
from tests.support.tiny_worlds import STRATEGIES, mean_gain, permuted, probabilities, run_course

SEEDS = range(8)


@pytest.mark.statistical
@pytest.mark.slow
def test_the_policy_finds_the_thought_that_predicts():
    for seed in SEEDS:
        course = run_course(seed)
        p = probabilities(course.state)
        assert p["oracle"] >= 0.8, (seed, p)
        assert mean_gain(course.lessons[-10:]) >= 0.6, seed
        assert course.state.helps
        assert course.state.weights.values[1 + STRATEGIES.index("oracle")] > 0.8
        assert 0.9 <= course.state.t_cal <= 1.2


@pytest.mark.statistical
@pytest.mark.slow
def test_rewards_that_owe_nothing_to_the_strategy_teach_nothing():
    courses = [run_course(seed, bend=permuted) for seed in SEEDS]
    found = [list(probabilities(course.state).values()) for course in courses]
    mean = np.mean(found, axis=0)
    assert mean.max() <= 0.35, mean
    assert np.mean([mean_gain(course.lessons[-10:]) for course in courses]) < 0.2


def test_an_update_changes_the_parameters_and_a_reload_keeps_every_bit():
    course = run_course(1, n_generations=4)
    state = course.state
    assert state.policy.sha256 != RlpState.first(STRATEGIES).policy.sha256
    again = RlpState.from_json(json.loads(canonical_json(state.to_json())), {})
    s = np.linspace(-1.0, 1.0, 7)
    assert again.policy.logits(s).tobytes() == state.policy.logits(s).tobytes()
    assert again.policy.sha256 == state.policy.sha256
    assert canonical_json(again.to_json()) == canonical_json(state.to_json())
    with pytest.raises(ValueError, match="not a state"):
        RlpState.from_json({"a": 1}, {})


def test_the_same_seed_learns_the_same():
    first, second = run_course(3, n_generations=5), run_course(3, n_generations=5)
    assert canonical_json(first.state.to_json()) == canonical_json(second.state.to_json())


def test_silence_earns_nothing_and_failed_thoughts_earn_no_reward():
    course = run_course(2, n_generations=20)
    silent = [
        lesson.rewards[name]
        for lesson in course.lessons
        for name in lesson.rewards
        if name not in lesson.e_values
    ]
    assert silent
    assert set(silent) == {0.0}


def test_help_is_claimed_only_on_evidence():
    state = RlpState.first(("a",))
    assert not state.helps
    assert state.e_value == 1.0
    sure = float(np.log(SURE)) + 0.1
    object.__setattr__(state, "top_log_evidence", sure)
    assert not state.helps  # nothing was gained
    object.__setattr__(state, "gains", (0.2,))
    assert state.helps
