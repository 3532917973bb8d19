"""Sample ratio: shares that depart from their propensities are found, and alarms are as rare as stated."""

import itertools

import numpy as np
import pytest
from scipy import stats

from convergence_core.gate.sample_ratio import ALPHA, departs, log_e_of_shares


def test_the_evidence_is_one_in_expectation():
    """Sum over all courses of three decisions in versions of different shares."""
    shares = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])
    total = 0.0
    for course in itertools.product((0, 1), repeat=3):
        counts = np.eye(2)[list(course)]
        chance = np.prod(shares[range(3), list(course)])
        total += chance * np.exp(log_e_of_shares(counts, shares)).mean()
    assert total == pytest.approx(1.0)


def test_an_arm_that_could_not_be_chosen_is_sure_evidence_and_a_certain_one_is_none():
    assert departs(log_e_of_shares(np.array([[5.0, 1.0]]), np.array([[1.0, 0.0]])))
    assert not departs(log_e_of_shares(np.array([[900.0, 0.0]]), np.array([[1.0, 0.0]])))


def streams(keep: float, n_runs: int, n_looks: int = 25, per: int = 120) -> int:
    """Return in how many streams an alarm is raised at any look; of arm 0, rewards are kept by this chance."""
    rng, alarms = np.random.default_rng(3), 0
    for _ in range(n_runs):
        p = rng.uniform(0.1, 0.9, n_looks)
        shares = np.column_stack((p, 1 - p))
        chosen = rng.binomial(per, p)
        counts = np.column_stack((rng.binomial(chosen, keep), per - chosen)).astype(float)
        alarms += any(
            departs(log_e_of_shares(counts[:k], shares[:k])) for k in range(1, n_looks + 1)
        )
    return alarms


@pytest.mark.statistical
def test_false_alarms_are_as_rare_as_stated():
    assert stats.binomtest(streams(1.0, 150), 150, ALPHA, "greater").pvalue > 1e-3


@pytest.mark.statistical
def test_rewards_that_one_arm_loses_are_found():
    """A third of one arm's rewards are missing of 3,000 requests."""
    assert streams(0.67, 20) >= 19
