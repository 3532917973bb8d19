"""Evidence about one mean: fair in expectation, exactly; rarely wrong at any look."""

import numpy as np
import pytest
from scipy import stats

from convergence_core.gate.betting import (
    FRACTIONS,
    LOG_START,
    Side,
    checked_rewards,
    log_highest_wealth,
    log_mean_wealth,
    log_wealth_of_counts,
)

SIDES: tuple[Side, ...] = ("above", "below")
MEANS = (0.02, 0.3, 0.7, 0.98)


def log_wealths(n: int, mean: float, side: Side) -> list[float]:
    """Return the log-wealth after n rewards of 0 and 1, by the number of successes."""
    both = np.array([0.0, 1.0])
    return [log_wealth_of_counts(both, np.array([n - s, s]), mean, side) for s in range(n + 1)]


def expectation(log_e: list[float], mean: float) -> float:
    """Return the exact mean of the evidence over all counts of n Bernoulli rewards."""
    n = len(log_e) - 1
    return float(stats.binom.pmf(np.arange(n + 1), n, mean) @ np.exp(log_e))


def chance_to_cross(mean: float, n: int, log_e: np.ndarray, threshold: float) -> float:
    """Return the exact probability that the evidence ever reaches a threshold.

    Args:
        log_e: (n + 1, n + 1), by number of rewards and of successes.
    """
    alive, crossed = np.array([1.0]), 0.0
    for k in range(1, n + 1):
        alive = np.append(alive * (1.0 - mean), 0.0) + np.insert(alive * mean, 0, 0.0)
        out = log_e[k, : k + 1] >= threshold
        crossed += float(alive[out].sum())
        alive = np.where(out, 0.0, alive)
    return crossed


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("mean", MEANS)
def test_wealth_is_one_in_expectation_when_the_null_is_just_true(mean: float, side: Side):
    assert expectation(log_wealths(25, mean, side), mean) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("true", [0.1, 0.45])
def test_wealth_falls_in_expectation_when_the_null_is_true_by_a_margin(true: float):
    assert expectation(log_wealths(25, 0.5, "above"), true) < 0.99


@pytest.mark.parametrize("mean", MEANS)
def test_the_chance_ever_to_reject_what_is_true_is_exactly_below_alpha(mean: float):
    n, alpha = 400, 0.05
    k, s = np.arange(n + 1)[:, None], np.arange(n + 1)[None]
    logs = np.full((n + 1, n + 1, FRACTIONS.size), -np.inf)
    possible = s <= k
    successes, failures = np.broadcast_arrays(s, k - s)
    up, down = np.log1p(FRACTIONS * (1.0 / mean - 1.0)), np.log1p(-FRACTIONS)
    logs[possible] = successes[possible][:, None] * up + failures[possible][:, None] * down
    chance = chance_to_cross(mean, n, log_mean_wealth(logs + LOG_START), -np.log(alpha))
    assert chance <= alpha
    assert chance > alpha / 25, "evidence that never crosses would be valid and useless"


@pytest.mark.statistical
def test_wealth_of_fractional_rewards_seldom_reaches_its_threshold_at_any_look():
    rng, n_runs, alpha = np.random.default_rng(5), 300, 0.1
    missed = 0
    for _ in range(n_runs):
        rewards = rng.beta(0.5, 1.5, size=300)  # mean 0.25
        highest = max(log_highest_wealth(rewards, 0.25, side) for side in SIDES)
        missed += highest >= np.log(2 / alpha)
    # Significance 1e-3: more misses than alpha explains.
    test = stats.binomtest(missed, n_runs, alpha, alternative="greater")
    assert test.pvalue > 1e-3, f"{missed} of {n_runs} missed, {alpha:.0%} allowed"
    assert missed > 0, "evidence that is never wrong in 300 runs is weaker than stated"


def test_the_highest_wealth_of_a_rising_game_is_that_of_its_counts_and_stays():
    rewards = np.array([1.0] * 10)
    risen = log_highest_wealth(rewards, 0.3, "above")
    assert risen == pytest.approx(
        log_wealth_of_counts(*np.unique(rewards, return_counts=True), 0.3, "above")
    )
    assert log_highest_wealth(np.append(rewards, [0.0] * 200), 0.3, "above") == risen
    assert log_wealths(210, 0.3, "above")[10] < 0.0


@pytest.mark.parametrize(
    ("rewards", "rule"),
    [([0.5, x], r"\[0, 1\]") for x in (-0.1, 1.1, float("nan"), float("inf"))]
    + [([[0.5]], "one-dimensional")],
)
def test_what_is_no_list_of_rewards_in_the_unit_interval_is_refused(rewards, rule):
    with pytest.raises(ValueError, match=rule):
        checked_rewards(rewards)
