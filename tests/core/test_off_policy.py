"""Estimates from another policy's log: their closed forms, their intervals, their alarms."""

import numpy as np
import pytest
from scipy import stats

from convergence_core.off_policy import Log, estimate, fitted_model


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


def test_estimates_are_their_formulas():
    found = estimate(SMALL, [0.75, 0.25], model=[0.6, 0.2])
    weights = np.array([1.5, 1.0, 0.5, 1.5])
    assert found.ips.mean == pytest.approx((1.5 + 0.0 + 0.5 + 0.75) / 4)
    assert found.snips.mean == pytest.approx(2.75 / 4.5)
    expected = 0.75 * 0.6 + 0.25 * 0.2
    residuals = weights * (SMALL.rewards - np.array([0.6, 0.2, 0.2, 0.6]))
    assert found.dr is not None
    assert found.dr.mean == pytest.approx(expected + residuals.mean())
    assert found.ess == pytest.approx(4.5**2 / (weights**2).sum())
    assert found.mean_weight == pytest.approx(4.5 / 4)
    assert found.largest_weight == 1.5
    assert found.logged == pytest.approx(0.625)


def test_the_policy_that_ran_is_worth_what_it_earned():
    log = logged(np.random.default_rng(0), 500, [0.3, 0.7], [0.2, 0.6])
    found = estimate(log, [0.3, 0.7])
    assert found.ips.mean == pytest.approx(found.logged)
    assert found.snips.mean == pytest.approx(found.logged)
    assert found.ess == pytest.approx(500)
    assert found.alarms == ()


def test_without_weights_the_interval_is_owens_for_a_proportion():
    """With rewards of 0 and 1 the empirical likelihood is the binomial likelihood ratio."""
    log = Log(
        actions=np.zeros(40, dtype=np.int64),
        rewards=np.repeat((1.0, 0.0), (9, 31)),
        propensities=np.ones(40),
    )
    found = estimate(log, [1.0]).ips

    def ratio(p: float) -> float:
        return float(2 * (9 * np.log(9 / 40 / p) + 31 * np.log(31 / 40 / (1 - p))))

    quantile = stats.chi2.ppf(0.95, 1)
    assert ratio(found.low) == pytest.approx(quantile, rel=1e-4)
    assert ratio(found.high) == pytest.approx(quantile, rel=1e-4)
    assert found.low < 9 / 40 < found.high


@pytest.mark.statistical
@pytest.mark.slow
def test_intervals_cover_the_truth_as_often_as_they_say():
    rng, target, means = np.random.default_rng(1), np.array([0.1, 0.3, 0.6]), [0.05, 0.2, 0.1]
    truth, n_runs = float(target @ means), 120
    covered = {"ips": 0, "snips": 0, "dr": 0}
    for _ in range(n_runs):
        log = logged(rng, 800, [0.6, 0.3, 0.1], means)
        found = estimate(log, target, model=fitted_model(log, 3))
        for name in covered:
            value = getattr(found, name)
            covered[name] += value.low <= truth <= value.high
    # Significance 1e-3 against 93 %: asymptotic intervals may miss 95 % by a little.
    for name, n in covered.items():
        test = stats.binomtest(n, n_runs, 0.93, alternative="less")
        assert test.pvalue > 1e-3, f"{name}: {n} of {n_runs} covered"


@pytest.mark.statistical
def test_all_three_are_unbiased_or_nearly_so():
    rng, target, means = np.random.default_rng(2), np.array([0.7, 0.3]), [0.5, 0.2]
    found: dict[str, list[float]] = {"ips": [], "snips": [], "dr": []}
    for _ in range(200):
        log = logged(rng, 200, [0.3, 0.7], means)
        weights = log.probabilities(target) / log.propensities
        model = fitted_model(log, 2)
        own = model[np.arange(200), log.actions]
        found["ips"].append(float((weights * log.rewards).mean()))
        found["snips"].append(float((weights * log.rewards).sum() / weights.sum()))
        found["dr"].append(float((model @ target + weights * (log.rewards - own)).mean()))
    truth = float(target @ means)
    for name, values in found.items():
        error = abs(np.mean(values) - truth) / (np.std(values) / np.sqrt(len(values)))
        assert error < 4, f"{name}: {np.mean(values)}, truth {truth}"
    assert np.std(found["dr"]) < np.std(found["ips"]), "a model that fits narrows"


def test_few_heavy_requests_raise_the_alarm():
    rng = np.random.default_rng(3)
    log = logged(rng, 2_000, [0.998, 0.002], [0.5, 0.5])
    found = estimate(log, [0.0, 1.0])
    assert found.ess < 100
    assert any("effective sample size" in alarm for alarm in found.alarms)
    assert not estimate(log, [0.0, 1.0], least_ess=1.0).alarms


def test_propensities_that_cannot_be_right_raise_the_alarm():
    log = logged(np.random.default_rng(4), 4_000, [0.5, 0.5], [0.5, 0.5])
    wrong = Log(actions=log.actions, rewards=log.rewards, propensities=log.propensities / 2)
    alarms = estimate(wrong, [0.4, 0.6]).alarms
    assert any("should be 1" in alarm for alarm in alarms)
    assert estimate(log, [0.4, 0.6]).alarms == ()


def test_a_policy_that_never_met_the_log_is_worth_nothing_known():
    log = Log(actions=np.zeros(50, dtype=np.int64), rewards=np.ones(50), propensities=np.ones(50))
    found = estimate(log, [0.0, 1.0])
    assert found.ess == 0.0
    assert np.isnan(found.snips.mean)
    assert len(found.alarms) == 2


def test_policies_may_differ_from_request_to_request():
    target = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    assert estimate(SMALL, target).ips.mean == pytest.approx((2.0 + 0.0 + 1.0 + 1.0) / 4)


def test_the_model_of_a_request_never_saw_it():
    log = logged(np.random.default_rng(5), 100, [0.5, 0.5], [0.3, 0.8])
    flipped = Log(
        actions=log.actions,
        rewards=np.where(np.arange(100) == 7, 1.0 - log.rewards, log.rewards),
        propensities=log.propensities,
    )
    same = (fitted_model(log, 2) == fitted_model(flipped, 2)).all(axis=1)
    assert same[np.arange(100) % 5 == 7 % 5].all()
    assert not same[np.arange(100) % 5 == 0].all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rewards": np.array([1.0])}, "one entry per request"),
        ({"rewards": np.array([1.0, 0.0, 1.0, np.nan])}, r"\[0, 1\]"),
        ({"propensities": np.array([0.5, 0.0, 0.5, 0.5])}, "propensity"),
        ({"actions": np.array([0, -1, 1, 0])}, "from 0"),
    ],
)
def test_what_is_no_log_is_refused(changes: dict[str, np.ndarray], words: str):
    fields = {
        "actions": SMALL.actions,
        "rewards": SMALL.rewards,
        "propensities": SMALL.propensities,
    }
    with pytest.raises(ValueError, match=words):
        Log(**{**fields, **changes})


def test_what_does_not_fit_the_log_is_refused():
    empty = Log(actions=np.zeros(0, dtype=np.int64), rewards=np.zeros(0), propensities=np.zeros(0))
    with pytest.raises(ValueError, match="empty log"):
        estimate(empty, [1.0])
    with pytest.raises(ValueError, match="sum to 1"):
        estimate(SMALL, [0.5, 0.6])
    with pytest.raises(ValueError, match="each of the logged arms"):
        estimate(SMALL, [1.0])
    with pytest.raises(ValueError, match="level"):
        estimate(SMALL, [0.5, 0.5], level=1.0)
    with pytest.raises(ValueError, match="model"):
        estimate(SMALL, [0.5, 0.5], model=[0.5])
    with pytest.raises(ValueError, match="n_folds"):
        fitted_model(SMALL, 2, n_folds=1)
