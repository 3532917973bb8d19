"""Judging in both orders: what cancels, what is fitted, what is aborted."""

import math

import numpy as np
import pytest

from convergence_core.sao.bradley_terry import PairedJudgement, both_orders, fit
from convergence_core.sao.filters import FilterSettings, HeldOut, Sieve
from convergence_core.sao.pooled import PooledJudgement, correlation, pool
from convergence_core.sao.preferences import (
    LEAST_MARGIN,
    SAID,
    Answer,
    Comparison,
    Judgement,
    Preference,
    logit,
    sigmoid,
)
from tasks.rlp.model_calls import UnreadableAnswerError
from tasks.sao.pair_judge import chosen
from tests.support.planted import Author, Judge, comparison


def judgement(p12: float, p21: float) -> Judgement:
    return Judgement(p12=p12, p21=p21, estimator="x")


def test_a_bias_that_position_adds_cancels():
    for dz in (-2.0, 0.3):
        rng = np.random.default_rng(0)
        clean, biased = Judge().judge(dz, 0.0, rng), Judge(delta=1.3).judge(dz, 0.0, rng)
        assert biased.log_odds == pytest.approx(clean.log_odds)
        assert biased.bias == pytest.approx(1.3)
        assert clean.bias == pytest.approx(0.0)
    assert judgement(0.0, 1.0).log_odds == pytest.approx(0.0)
    assert sigmoid(-800.0) == 0.0
    assert sigmoid(logit(0.3)) == pytest.approx(0.3)


def test_plain_verdicts_pass_the_margin_exactly_when_both_orders_agree():
    yes, no = SAID, 1.0 - SAID
    assert judgement(yes, yes).log_odds >= LEAST_MARGIN
    assert -judgement(no, no).log_odds >= LEAST_MARGIN
    assert judgement(yes, no).log_odds == 0.0
    assert judgement(yes, yes).agrees
    assert not judgement(yes, no).agrees
    assert not judgement(0.5, 0.9).agrees


def test_a_plain_verdict_is_one_of_two_letters_or_none():
    assert chosen({"text": " a. "})
    assert not chosen({"text": "**B**"})
    for wrong in ("neither", "", "AB"):
        with pytest.raises(UnreadableAnswerError):
            chosen({"text": wrong})


def test_the_chosen_answer_is_the_likelier_one():
    a, b = Answer(text="a", author="x"), Answer(text="bb", author="y")
    pair = Comparison(prompt="p", first=a, second=b, kind="candidates")
    first = Preference(comparison=pair, judgement=judgement(0.9, 0.8))
    second = Preference(comparison=pair, judgement=judgement(0.1, 0.2))
    assert (first.chosen, first.rejected) == (a, b)
    assert (second.chosen, second.rejected) == (b, a)
    assert first.margin == pytest.approx(-judgement(0.1, 0.2).log_odds, rel=1e-6)
    assert pair.log_length_ratio == pytest.approx(math.log(0.5))
    other = Comparison(prompt="p", first=b, second=a, kind="candidates")
    assert pair.pair_id != other.pair_id


# -- who is sure, is right


@pytest.mark.statistical
def test_both_orders_with_a_margin_are_right_where_one_order_is_not():
    rng = np.random.default_rng(5)
    judge = Judge(delta=1.0, noise=1.0)
    sieve = Sieve(FilterSettings(), HeldOut(()))
    n, kept, right, one_order = 2_000, 0, 0, 0
    author = Author()
    for k in range(n):
        dz = float(rng.normal() - rng.normal())
        said = judge.judge(dz, 0.0, rng)
        one_order += (rng.random() < said.p12) == (dz > 0)
        pair = comparison(author, 2 * k, 2 * k + 1)
        if sieve.after_judging(pair, said, None) is None:
            kept += 1
            right += (said.log_odds > 0) == (dz > 0)
    assert right / kept >= 0.95, (right, kept)
    assert kept / n >= 0.6
    assert one_order / n <= 0.78
    assert sieve.n_kept == kept == n - sieve.counters["margin"]


def test_a_judge_that_always_says_the_first_exports_nothing_and_aborts():
    sieve = Sieve(FilterSettings(), HeldOut(()))
    author = Author()
    judged = []
    for k in range(20):
        said = judgement(SAID, 1.0 - SAID)
        pair = comparison(author, 2 * k, 2 * k + 1)
        assert sieve.before_judging(pair) is None
        assert sieve.after_judging(pair, said, None) == "margin"
        judged.append(PooledJudgement(judgement=said, log_length_ratio=pair.log_length_ratio))
    found = pool(judged)
    assert sieve.n_kept == 0
    assert found.agreement == 0.0
    assert found.why_abort is not None
    assert "0% of 20 pairs" in found.why_abort


# -- merits


def planted(
    n: int, n_items: int, rng: np.random.Generator
) -> tuple[np.ndarray, list[PairedJudgement]]:
    """Return qualities, and n pairs judged once in each order with delta .8 and lambda .6."""
    theta = rng.normal(size=n_items)
    rows = []
    for _ in range(n):
        i, j = (int(x) for x in rng.choice(n_items, 2, replace=False))
        dlog = float(rng.normal(0.0, 0.5))
        for position in (1.0, -1.0):
            p = sigmoid(1.5 * (theta[i] - theta[j]) + 0.8 * position + 0.6 * dlog)
            won = float(rng.random() < p)
            rows.append(PairedJudgement(i=i, j=j, position=position, log_length_ratio=dlog, p=won))
    return theta, rows


@pytest.mark.statistical
def test_three_hundred_pairs_tell_position_length_and_merits():
    for seed in range(5):
        theta, rows = planted(300, 20, np.random.default_rng(seed))
        merits = fit(rows, 20)
        assert abs(merits.position - 0.8) <= 0.4, seed
        assert abs(merits.length - 0.6) <= 0.8, seed
        assert np.corrcoef(merits.theta, theta)[0, 1] >= 0.95, seed


def test_a_fit_is_where_the_penalized_gradient_vanishes():
    _, rows = planted(60, 6, np.random.default_rng(3))
    merits = fit(rows, 6)
    weights = np.array([*merits.theta, merits.position, merits.length])

    def loss(w: np.ndarray) -> float:
        total = 0.005 * float(w @ w)
        for row in rows:
            m = w[row.i] - w[row.j] + w[-2] * row.position + w[-1] * row.log_length_ratio
            total -= row.p * math.log(sigmoid(m)) + (1 - row.p) * math.log(sigmoid(-m))
        return total

    for k in range(len(weights)):
        bump = np.zeros_like(weights)
        bump[k] = 1e-5
        assert (loss(weights + bump) - loss(weights - bump)) / 2e-5 == pytest.approx(0, abs=1e-5)


def test_an_item_that_never_loses_has_a_finite_merit():
    rows = [PairedJudgement(i=0, j=1, position=1.0, log_length_ratio=0.0, p=1.0)] * 50
    merits = fit(rows, 2)
    assert np.isfinite(merits.theta).all()
    assert merits.theta[0] > merits.theta[1]
    same = fit([PairedJudgement(i=0, j=1, position=1.0, log_length_ratio=0.0, p=0.5)], 2)
    assert same.theta == pytest.approx([0.0, 0.0])
    with pytest.raises(ValueError, match="no judgement"):
        fit([], 0)


def test_both_orders_become_rows():
    pair = comparison(Author(), 3, 5)
    rows = both_orders(0, 1, pair.log_length_ratio, judgement(0.7, 0.6))
    assert [(r.i, r.j, r.position, r.p) for r in rows] == [(0, 1, 1.0, 0.7), (0, 1, -1.0, 0.6)]
    assert rows[0].log_length_ratio == pair.log_length_ratio


# -- the judge, pooled


def pooled_of(judge: Judge, n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    judged = []
    for _ in range(n):
        dz, dlog = float(rng.normal() - rng.normal()), float(rng.normal(0, 0.5))
        said = judge.judge(dz, dlog, rng)
        judged.append(PooledJudgement(judgement=said, log_length_ratio=dlog))
    return pool(judged)


def test_below_a_hundred_pairs_position_and_length_are_insufficient():
    found = pooled_of(Judge(delta=3.0), 99)
    assert not found.is_sufficient
    assert found.position is None
    assert found.length is None
    assert pool([]).agreement is None
    assert pool([]).why_abort is None


@pytest.mark.statistical
def test_the_pool_finds_position_and_length_and_aborts_for_a_great_bias():
    mild = pooled_of(Judge(delta=0.5, length=1.5, noise=0.3), 300)
    assert mild.n_pairs == 200
    assert mild.position == pytest.approx(0.5, abs=0.2)
    assert mild.length == pytest.approx(1.5, abs=0.9)
    assert mild.length_correlation is not None
    assert mild.length_correlation > 0.2
    assert mild.why_abort is None
    biased = pooled_of(Judge(delta=1.4), 200)
    assert biased.why_abort is not None
    # A bias of 2: both orders agree on about 35 % of pairs.
    strong = pooled_of(Judge(delta=2.0), 200)
    assert strong.agreement is not None
    assert strong.agreement < 0.5


def test_a_constant_has_no_correlation():
    assert correlation([1.0, 2.0, 3.0], [1.0, 1.0, 1.0]) is None
    assert correlation([1.0, 2.0], [1.0, 2.0]) is None
    assert correlation([1.0, 2.0, 3.0], [3.0, 4.0, 5.0]) == pytest.approx(1.0)
