"""Trust: a bound that a coin does not pass, and a bias of length that aborts a round."""

import numpy as np
import pytest
from scipy.stats import binomtest

from convergence_core.judges.trust import (
    LEAST_TRUST,
    Audit,
    Item,
    Trust,
    audit,
    length_bias,
)
from tests.sao.planted import Judge


def items(accuracy: float, n: int, rng: np.random.Generator) -> list[Item]:
    found = []
    for _ in range(n):
        truth, is_right = bool(rng.random() < 0.5), bool(rng.random() < accuracy)
        found.append(Item(q=0.8 if truth == is_right else 0.2, first_is_right=truth))
    return found


def enabled(accuracy: float, n: int, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    return Trust().after(audit(items(accuracy, n, rng))).is_enabled


@pytest.mark.statistical
def test_a_coin_is_disabled_and_a_judge_of_eighty_percent_is_believed():
    coins = sum(enabled(0.5, 50, seed) for seed in range(100))
    judges = sum(enabled(0.8, 50, seed) for seed in range(100))
    assert coins <= 5
    assert judges >= 90


@pytest.mark.parametrize(("n_right", "trusts"), [(34, False), (35, True), (25, False)])
def test_thirty_five_of_fifty_is_where_trust_begins(n_right: int, trusts: bool):
    found = Trust(n_right=n_right, n_items=50, n_different=50)
    assert found.is_enabled == trusts
    assert (found.value >= LEAST_TRUST) == trusts
    assert (found.value == 0.0) == (n_right == 25)
    assert (Trust().value, Trust().is_enabled) == (0.0, False)


@pytest.mark.statistical
def test_ten_items_at_a_time_enable_no_coin_before_the_fiftieth():
    n, heard = 300, 0
    for seed in range(n):
        rng, state = np.random.default_rng(seed), Trust()
        for _ in range(4):
            state = state.after(audit(items(0.5, 10, rng)))
            assert not state.is_enabled
            assert state.value == 0.0
        state = state.after(audit(items(0.5, 10, rng)))
        assert state.n_missing == 0
        heard += state.is_enabled
    # The bound is one of 10 %: 3 % more than a coin is what trust asks for.
    assert binomtest(heard, n, 0.05, "greater").pvalue > 1e-3, heard
    rng = np.random.default_rng(0)
    lucky = Trust().after(audit(items(1.0, 10, rng)))
    assert (lucky.value, lucky.n_missing) == (0.0, 40)
    # Asked again, the same ten are no further evidence of how many there are.
    assert lucky.after(audit(items(1.0, 10, rng), n_new=0)).n_missing == 40


def biased(length: float, n: int, rng: np.random.Generator, *, of_truth: float = 0.0) -> Audit:
    """Return the audit of a judge that length moves; right answers are longer by ``of_truth``."""
    judge, found = Judge(length=length, delta=0.3), []
    for _ in range(n):
        sign = 1 if rng.random() < 0.5 else -1
        d = sign * of_truth + float(rng.normal(0.0, 0.5))
        q = judge.judge(sign * 1.0 + float(rng.normal(0.0, 0.5)), d, rng).q
        found.append(Item(q=q, first_is_right=sign > 0, log_length_ratio=d))
    return audit(found)


@pytest.mark.statistical
def test_a_length_bias_of_three_aborts_and_none_does_not():
    seeds = [np.random.default_rng(seed) for seed in range(60)]
    strong = [biased(3.0, 50, rng) for rng in seeds]
    aborted = sum(one.abort_reason is not None for one in strong)
    assert binomtest(aborted, 60, 0.9, "less").pvalue > 1e-3, aborted
    assert np.median([one.length for one in strong if one.length]) == pytest.approx(3.0, abs=0.6)
    for of_truth in (0.0, 0.7):
        # Where right answers are longer, it is truth that a fair judge likes.
        fair = sum(
            biased(0.0, 50, rng, of_truth=of_truth).abort_reason is not None for rng in seeds
        )
        assert binomtest(fair, 60, 0.02, "greater").pvalue > 1e-3, fair
    shorter = biased(-3.0, 50, seeds[0])
    assert shorter.abort_reason is not None
    assert "-" in shorter.abort_reason


def test_length_bias_is_the_slope_of_least_squares_and_unknown_where_truth_explains_length():
    rng = np.random.default_rng(3)
    s, d = np.where(rng.random(40) < 0.5, 1.0, -1.0), rng.normal(0.0, 0.4, 40)
    said = 1.2 * s + 0.7 * d + rng.normal(0.0, 0.5, 40)
    q = 1.0 / (1.0 + np.exp(-said))
    found = [
        Item(q=float(p), first_is_right=bool(one > 0), log_length_ratio=float(x))
        for p, one, x in zip(q, s, d, strict=True)
    ]
    x = np.stack([s, d], axis=1)
    expected, *_ = np.linalg.lstsq(x, said, rcond=None)
    errors = said - x @ expected
    inverse = np.linalg.inv(x.T @ x)
    covariance = inverse @ (x.T * errors**2) @ x @ inverse * 40 / 38
    assert length_bias(found) == pytest.approx((expected[1], np.sqrt(covariance[1, 1])))
    always = [Item(q=0.9, first_is_right=True, log_length_ratio=0.7)] * 20
    assert length_bias(always) == (None, None)
    assert length_bias(found[:2]) == (None, None)
    assert length_bias([]) == (None, None)
    certain = [
        Item(q=float(one > 0), first_is_right=bool(one > 0), log_length_ratio=x)
        for one, x in zip(s, d, strict=True)
    ]
    assert length_bias(certain)[0] == pytest.approx(0.0, abs=1e-9)


def test_older_audits_weigh_less_and_empty_ones_age_nothing():
    rng = np.random.default_rng(0)
    good, bad = audit(items(1.0, 10, rng)), audit(items(0.0, 10, rng))
    state = Trust().after(good).after(bad)
    assert (state.n_right, state.n_items) == pytest.approx((8.0, 18.0))
    assert state.after(audit([])) is state
