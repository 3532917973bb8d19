"""Evidence about one mean: fair in expectation, exactly; rarely wrong at any look."""

import numpy as np
import pytest
from scipy import integrate, stats

from convergence_core.gate import bernoulli
from convergence_core.gate.betting import (
    EVEN,
    FRACTIONS,
    Side,
    Wealth,
    confidence_interval,
    log_e_value,
    log_mean_wealth,
)

SIDES: tuple[Side, ...] = ("above", "below")
MEANS = (0.02, 0.3, 0.7, 0.98)


def row(n: int, successes: int) -> np.ndarray:
    """Return n rewards of which the first are 1."""
    return np.array([1.0] * successes + [0.0] * (n - successes))


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
    n = 25
    by_betting = [log_e_value(row(n, s), mean, side) for s in range(n + 1)]
    in_closed_form = [
        float(bernoulli.log_e_value(s, n - s, mean, side=side)) for s in range(n + 1)
    ]
    assert expectation(by_betting, mean) == pytest.approx(1.0, abs=1e-9)
    assert expectation(in_closed_form, mean) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("true", [0.1, 0.45])
def test_wealth_falls_in_expectation_when_the_null_is_true_by_a_margin(true: float):
    n = 25
    by_betting = [log_e_value(row(n, s), 0.5, "above") for s in range(n + 1)]
    in_closed_form = [
        float(bernoulli.log_e_value(s, n - s, 0.5, side="above")) for s in range(n + 1)
    ]
    assert expectation(by_betting, true) < 0.99
    assert expectation(in_closed_form, true) < 0.99


@pytest.mark.parametrize("mean", MEANS)
def test_the_chance_ever_to_reject_what_is_true_is_exactly_below_alpha(mean: float):
    n, alpha = 400, 0.05
    k, s = np.arange(n + 1)[:, None], np.arange(n + 1)[None]
    logs = np.full((n + 1, n + 1, FRACTIONS.size), -np.inf)
    possible = s <= k
    successes, failures = np.broadcast_arrays(s, k - s)
    up, down = np.log1p(FRACTIONS * (1.0 / mean - 1.0)), np.log1p(-FRACTIONS)
    logs[possible] = successes[possible][:, None] * up + failures[possible][:, None] * down
    by_betting = log_mean_wealth(logs + EVEN)
    in_closed_form = np.where(
        possible, bernoulli.log_e_value(s, np.maximum(k - s, 0), mean, side="above"), -np.inf
    )
    for log_e in (by_betting, in_closed_form):
        chance = chance_to_cross(mean, n, log_e, -np.log(alpha))
        assert chance <= alpha
        assert chance > alpha / 25, "evidence that never crosses would be valid and useless"


@pytest.mark.parametrize("side", [*SIDES, None])
@pytest.mark.parametrize(
    ("successes", "failures", "mean"), [(7, 5, 0.4), (0, 9, 0.2), (30, 1, 0.9)]
)
def test_the_closed_form_is_the_integral_over_alternatives(
    successes: int, failures: int, mean: float, side: Side | None
):
    low, high = {"above": (mean, 1.0), "below": (0.0, mean), None: (0.0, 1.0)}[side]

    def likelihood(q: float) -> float:
        return float((q / mean) ** successes * ((1 - q) / (1 - mean)) ** failures)

    expected = integrate.quad(likelihood, low, high)[0] / (high - low)
    found = bernoulli.log_e_value(successes, failures, mean, side=side)
    assert np.exp(found) == pytest.approx(expected, rel=1e-7)


def test_fractional_rewards_keep_the_closed_form_a_supermartingale():
    values, chances = np.array([0.1, 0.6, 0.9]), np.array([0.3, 0.5, 0.2])
    mean, total = float(values @ chances), 0.0
    for first in range(3):
        for second in range(3):
            s = values[first] + values[second]
            evidence = bernoulli.log_e_value(s, 2.0 - s, mean, side="above")
            total += chances[first] * chances[second] * float(np.exp(evidence))
    assert 0.5 < total < 1.0


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.slow
def test_all_intervals_of_counts_cover_the_mean_with_the_stated_probability(mean: float):
    n, alpha = 500, 0.05
    k, s = np.arange(n + 1)[:, None], np.arange(n + 1)[None]
    low, high = bernoulli.confidence_interval(s, np.maximum(k - s, 0), alpha)
    outside = np.where((s <= k) & ((mean < low) | (mean > high)), 1.0, 0.0)
    missed = chance_to_cross(mean, n, outside, 1.0)
    assert alpha / 50 < missed <= alpha


def test_an_interval_ends_where_the_evidence_reaches_its_threshold():
    low, high = bernoulli.confidence_interval(12, 8, 0.1)
    for end in (float(low), float(high)):
        assert float(bernoulli.log_e_value(12, 8, end)) == pytest.approx(np.log(10.0), abs=1e-6)
    assert low < 0.6 < high


def test_intervals_without_rewards_say_nothing():
    assert confidence_interval([]) == (0.0, 1.0)
    low, high = bernoulli.confidence_interval(0, 0)
    assert (float(low), float(high)) == (0.0, 1.0)


@pytest.mark.parametrize("rewards", [[1.0] * 40, [0.0] * 40])
def test_equal_rewards_leave_an_interval_that_touches_them(rewards: list[float]):
    low, high = confidence_interval(rewards)
    assert low <= rewards[0] <= high
    assert high - low < 0.2


def test_the_interval_profits_from_a_small_variance_as_counts_cannot():
    rewards = np.tile((0.45, 0.55), 100)
    low, high = confidence_interval(rewards)
    of_counts = bernoulli.confidence_interval(rewards.sum(), 100.0)
    assert high - low < float(of_counts[1] - of_counts[0]) / 3
    assert low < 0.5 < high


def test_an_interval_holds_what_neither_side_rejects():
    rewards = np.random.default_rng(3).beta(2, 3, size=80)
    low, high = confidence_interval(rewards, 0.1)
    threshold = np.log(20.0)
    assert log_e_value(rewards, low, "above") == pytest.approx(threshold, abs=1e-6)
    assert log_e_value(rewards, high, "below") == pytest.approx(threshold, abs=1e-6)
    for mean in np.linspace(low + 1e-6, high - 1e-6, 9):
        assert log_e_value(rewards, mean, "above") < threshold
        assert log_e_value(rewards, mean, "below") < threshold


@pytest.mark.statistical
def test_intervals_of_fractional_rewards_cover_at_every_look():
    rng, n_runs, alpha = np.random.default_rng(5), 300, 0.1
    missed = 0
    for _ in range(n_runs):
        rewards = rng.beta(0.5, 1.5, size=300)  # mean 0.25
        above = Wealth(mean=0.25, side="above").update(rewards)
        below = Wealth(mean=0.25, side="below").update(rewards)
        missed += above.rejects(alpha / 2) or below.rejects(alpha / 2)
    # Significance 1e-3: more misses than alpha explains.
    test = stats.binomtest(missed, n_runs, alpha, alternative="greater")
    assert test.pvalue > 1e-3, f"{missed} of {n_runs} missed, {alpha:.0%} allowed"
    assert missed > 0, "intervals that never miss in 300 runs are wider than stated"


def test_wealth_in_parts_is_wealth_at_once():
    rewards = np.random.default_rng(1).random(50)
    at_once = Wealth(mean=0.4, side="above").update(rewards)
    parts = Wealth(mean=0.4, side="above").update(rewards[:20]).update([]).update(rewards[20:])
    assert parts.log_wealth == pytest.approx(at_once.log_wealth)
    assert parts.log_highest == pytest.approx(at_once.log_highest)
    assert parts.n == at_once.n == 50
    assert at_once.log_e == pytest.approx(log_e_value(rewards, 0.4, "above"))


def test_a_rejection_stays_when_the_evidence_falls_again():
    risen = Wealth(mean=0.3, side="above").update([1.0] * 10)
    fallen = risen.update([0.0] * 200)
    assert risen.rejects(0.01)
    assert fallen.log_e < 0.0
    assert fallen.rejects(0.01)
    assert fallen.p_value == pytest.approx(risen.p_value)


@pytest.mark.parametrize("reward", [-0.1, 1.1, float("nan"), float("inf")])
def test_rewards_outside_the_unit_interval_are_refused(reward: float):
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        Wealth(mean=0.5, side="above").update([0.5, reward])


def test_tables_of_rewards_are_refused():
    with pytest.raises(ValueError, match="one-dimensional"):
        confidence_interval([[0.5]])


@pytest.mark.parametrize("mean", [0.0, 1.0, float("nan")])
def test_a_null_that_nothing_contradicts_is_refused(mean: float):
    with pytest.raises(ValueError, match="strictly"):
        Wealth(mean=mean, side="above")
