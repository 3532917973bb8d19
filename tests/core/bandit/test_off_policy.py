"""Estimates from another policy's log: their closed forms, their intervals, their alarms."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from convergence_core.bandit.off_policy import LEAST_ESS, MEAN_WEIGHTS, MIN_MATCHING, Log, estimate


def logged(rng: np.random.Generator, n: int, shares: list[float], means: list[float]) -> Log:
    actions = rng.choice(len(shares), size=n, p=shares)
    return Log(
        actions=actions,
        rewards=(rng.random(n) < np.array(means)[actions]).astype(float),
        propensities=np.array(shares)[actions],
    )


SMALL = Log(
    actions=np.array([0, 1, 1, 0]),
    rewards=np.array([1.0, 0.0, 1.0, 0.5]),
    propensities=np.array([0.5, 0.25, 0.5, 0.5]),
)
LARGER = Log(
    actions=np.tile(SMALL.actions, 5),
    rewards=np.tile(SMALL.rewards, 5),
    propensities=np.tile(SMALL.propensities, 5),
)


def test_an_estimate_is_its_formula():
    result = estimate(LARGER, [0.75, 0.25])
    weights = np.array([1.5, 1.0, 0.5, 1.5])
    assert result.mean == pytest.approx(2.75 / 4.5)
    assert result.ess == pytest.approx(5 * 4.5**2 / (weights**2).sum())
    assert result.mean_weight == pytest.approx(4.5 / 4)
    assert (result.largest_weight, result.n_matching) == (1.5, 20)
    assert result.logged == pytest.approx(0.625)


def test_the_policy_that_ran_is_worth_what_it_earned():
    log = logged(np.random.default_rng(0), 500, [0.3, 0.7], [0.2, 0.6])
    result = estimate(log, [0.3, 0.7])
    assert result.mean == pytest.approx(result.logged)
    assert result.ess == pytest.approx(500)
    assert result.alarms == ()


def test_without_weights_the_interval_is_clopper_and_pearsons():
    log = Log(
        actions=np.zeros(40, dtype=np.int64),
        rewards=np.repeat((1.0, 0.0), (9, 31)),
        propensities=np.ones(40),
    )
    exact = stats.binomtest(9, 40).proportion_ci(0.95, method="exact")
    result = estimate(log, [1.0])
    assert (result.low, result.high) == pytest.approx((exact.low, exact.high), abs=1e-5)


@pytest.mark.parametrize("n_of_arm", [0, 2, 9])
def test_too_few_requests_of_an_arm_give_no_number(n_of_arm: int):
    actions = np.repeat((0, 1), (400 - n_of_arm, n_of_arm))
    log = Log(
        actions=actions,
        rewards=np.ones(400),
        propensities=np.where(actions == 1, 0.02, 0.98),
    )
    result = estimate(log, [0.0, 1.0])
    assert (result.mean, result.low, result.high) == (None, None, None)
    assert result.missing is not None
    assert result.missing.startswith("not enough")
    assert (result.n_matching, result.alarms != ()) == (n_of_arm, True)
    enough = Log(
        actions=np.repeat((0, 1), (390, 10)),
        rewards=np.ones(400),
        propensities=np.repeat((0.975, 0.025), (390, 10)),
    )
    again = estimate(enough, [0.0, 1.0])
    assert again.missing is None
    assert again.low == pytest.approx(0.025**0.1, abs=1e-4)


def rare(n: int, n_of_arm: int, propensity: float) -> Log:
    """Requests of which so many went to the one arm that the policy chooses."""
    return Log(
        actions=np.repeat((0, 1), (n - n_of_arm, n_of_arm)),
        rewards=np.ones(n),
        propensities=np.repeat((1.0 - propensity, propensity), (n - n_of_arm, n_of_arm)),
    )


def test_the_alarm_of_few_requests_ends_at_a_hundred_of_equal_weight():
    assert estimate(rare(400, 100, 0.25), [0.0, 1.0]).alarms == ()
    (alarm,) = estimate(rare(396, 99, 0.25), [0.0, 1.0]).alarms
    assert "effective sample size is 99.0 of 396 requests, below 100" in alarm


def test_a_mean_weight_is_implausible_below_one_in_ten_thousand():
    """Weights are 4 or 0 here, so the statistic is 2 n KL(k / n || 1 / 4), by the chi-squared law."""
    n, p = 4_000, 0.25

    def probability(k: int) -> float:
        kl = k / n * np.log(k / n / p) + (1 - k / n) * np.log((1 - k / n) / (1 - p))
        return float(stats.chi2.sf(2 * n * kl, 1))

    last = max(k for k in range(1_000, 1_400) if probability(k) >= 1e-4)
    assert probability(last) < 1.2e-4
    assert estimate(rare(n, last, p), [0.0, 1.0]).alarms == ()
    (alarm,) = estimate(rare(n, last + 1, p), [0.0, 1.0]).alarms
    assert "mean weight is 1.11 and should be 1" in alarm


def test_the_page_states_the_limits_that_hold():
    page = (Path(__file__).parents[3] / "docs/runtime.md").read_text(encoding="utf-8")
    told = " ".join(page.split())
    assert f"Below an effective sample size of {LEAST_ESS:g} (`--least-ess`)" in told
    assert f"fewer than {MIN_MATCHING} requests whose arm it may choose" in told
    assert f"an effective sample size below {MIN_MATCHING}" in told
    assert "a mean weight that is not between {:g} and {:g}".format(*MEAN_WEIGHTS) in told


def test_an_arm_that_the_log_lacks_gives_no_number():
    """The mean weight of 0.4 betrays it, however large the effective sample size."""
    log = logged(np.random.default_rng(6), 2_000, [0.5, 0.5], [0.5, 0.5])
    result = estimate(log, [0.2, 0.2, 0.6])
    assert result.ess > 1_000
    assert result.mean is None
    assert "mean weight is 0.4" in str(result.missing)


@pytest.mark.statistical
@pytest.mark.parametrize("rate", [0.02, 0.5, 0.9])
@pytest.mark.parametrize("n", [400])
def test_intervals_of_a_rare_arm_cover_wherever_a_number_is_given(rate: float, n: int):
    """At 12 and 30 of effective sample size. Significance 1e-3 against 94 %."""
    rng, hits = np.random.default_rng(7), []
    for _ in range(60):
        result = estimate(logged(rng, n, [0.97, 0.03], [0.5, rate]), [0.0, 1.0])
        if result.low is not None and result.high is not None:
            hits.append(result.low <= rate <= result.high)
    assert len(hits) > 30
    test = stats.binomtest(sum(hits), len(hits), 0.94, alternative="less")
    assert test.pvalue > 1e-3, f"{sum(hits)} of {len(hits)} covered"


def test_few_heavy_requests_raise_the_alarm():
    rng = np.random.default_rng(3)
    log = logged(rng, 2_000, [0.998, 0.002], [0.5, 0.5])
    result = estimate(log, [0.0, 1.0])
    assert result.ess < 100
    assert any("effective sample size" in alarm for alarm in result.alarms)
    assert not estimate(log, [0.0, 1.0], least_ess=1.0).alarms


def test_propensities_that_cannot_be_right_raise_the_alarm():
    log = logged(np.random.default_rng(4), 4_000, [0.5, 0.5], [0.5, 0.5])
    wrong = Log(actions=log.actions, rewards=log.rewards, propensities=log.propensities / 2)
    alarms = estimate(wrong, [0.4, 0.6]).alarms
    assert any("should be 1" in alarm for alarm in alarms)
    assert estimate(log, [0.4, 0.6]).alarms == ()


def test_a_policy_that_never_met_the_log_is_worth_nothing_known():
    log = Log(actions=np.zeros(50, dtype=np.int64), rewards=np.ones(50), propensities=np.ones(50))
    result = estimate(log, [0.0, 1.0])
    assert result.ess == 0.0
    assert result.mean is None
    assert "none of 50 requests" in str(result.missing)
    assert len(result.alarms) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rewards": np.array([1.0])}, "one entry per request"),
        ({"rewards": np.array([1.0, 0.0, 1.0, np.nan])}, r"\[0, 1\]"),
        ({"propensities": np.array([0.5, 0.0, 0.5, 0.5])}, "propensity"),
        ({"actions": np.array([0, -1, 1, 0])}, "0 or more"),
    ],
)
def test_what_is_no_log_is_refused(changes: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words):
        replace(SMALL, **changes)


def test_what_does_not_fit_the_log_is_refused():
    empty = Log(actions=np.zeros(0, dtype=np.int64), rewards=np.zeros(0), propensities=np.zeros(0))
    with pytest.raises(ValueError, match="at least one request"):
        estimate(empty, [1.0])
    with pytest.raises(ValueError, match="sum to 1"):
        estimate(SMALL, [0.5, 0.6])
    with pytest.raises(ValueError, match="each of the logged arms"):
        estimate(SMALL, [1.0])
    with pytest.raises(ValueError, match="level"):
        estimate(SMALL, [0.5, 0.5], level=1.0)
