"""Judging in both orders: what cancels, what is fitted, what is aborted."""

import math

import numpy as np
import pytest

from convergence_core.config.optimization import SaoConfig
from convergence_core.sao.filters import FilterChain, HeldOut
from convergence_core.sao.judge_bias import judge_bias
from convergence_core.sao.preferences import (
    LEAST_MARGIN,
    VERDICT_PROBABILITY,
    Answer,
    Comparison,
    Judgement,
    logit,
    sigmoid,
)
from tests.sao.planted import Author, Judge, comparison, judged


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
    yes, no = VERDICT_PROBABILITY, 1.0 - VERDICT_PROBABILITY
    assert judgement(yes, yes).log_odds >= LEAST_MARGIN
    assert -judgement(no, no).log_odds >= LEAST_MARGIN
    assert judgement(yes, no).log_odds == 0.0
    assert judgement(yes, yes).agrees
    assert not judgement(yes, no).agrees
    assert not judgement(0.5, 0.9).agrees


def test_the_chosen_answer_is_the_likelier_one():
    a, b = Answer(text="a", author="x"), Answer(text="bb", author="y")
    pair = Comparison(prompt="p", first=a, second=b, kind="candidates")
    first, second = judged(pair, 0.9, 0.8), judged(pair, 0.1, 0.2)
    assert (first.chosen, first.rejected) == (a, b)
    assert (second.chosen, second.rejected) == (b, a)
    assert pair.log_length_ratio == pytest.approx(math.log(0.5))
    turned = Comparison(prompt="p", first=b, second=a, kind="candidates")
    assert pair.pair_id != turned.pair_id


# -- who is sure, is right


@pytest.mark.statistical
def test_both_orders_with_a_margin_are_right_where_one_order_is_not():
    rng = np.random.default_rng(5)
    judge = Judge(delta=1.0, noise=1.0)
    filters = FilterChain(SaoConfig(), HeldOut(()))
    n, kept, right, one_order = 2_000, 0, 0, 0
    author = Author()
    for k in range(n):
        dz = float(rng.normal() - rng.normal())
        said = judge.judge(dz, 0.0, rng)
        one_order += (rng.random() < said.p12) == (dz > 0)
        pair = comparison(author, 2 * k, 2 * k + 1)
        if filters.after_judging(judged(pair, said), None) is None:
            kept += 1
            right += (said.log_odds > 0) == (dz > 0)
    assert right / kept >= 0.95, (right, kept)
    assert kept / n >= 0.6
    assert one_order / n <= 0.78
    assert kept == n - filters.counters["margin"]


# -- position and length


def biased(judge: Judge, n: int, seed: int = 0):
    rng, pairs = np.random.default_rng(seed), []
    for _ in range(n):
        dz, n_words = float(rng.normal() - rng.normal()), rng.integers(20, 90, 2)
        texts = [Answer(text="x" * int(k), author="a") for k in n_words]
        pair = Comparison(prompt="p", first=texts[0], second=texts[1], kind="candidates")
        pairs.append(judged(pair, judge.judge(dz, pair.log_length_ratio, rng)))
    return judge_bias(pairs)


def test_below_a_hundred_pairs_position_and_length_are_insufficient():
    found = biased(Judge(delta=3.0), 99)
    assert (found.position, found.length) == (None, None)
    assert judge_bias([]).agreement is None
    assert judge_bias([]).abort_reason is None


@pytest.mark.statistical
@pytest.mark.parametrize(("delta", "length"), [(0.8, 0.6), (0.5, 1.5), (0.0, 0.0)])
def test_two_hundred_pairs_tell_position_and_length(delta: float, length: float):
    found = [biased(Judge(delta=delta, length=length, noise=0.3), 300, seed) for seed in range(20)]
    assert {one.n_pairs for one in found} == {200}
    assert np.mean([one.position for one in found]) == pytest.approx(delta, abs=0.02)
    # Qualities of the answers are noise here, which 200 pairs average to .3.
    assert np.mean([one.length for one in found]) == pytest.approx(length, abs=0.3)
    assert all(one.abort_reason is None for one in found)


@pytest.mark.statistical
def test_a_great_bias_aborts():
    found = biased(Judge(delta=1.2), 200).abort_reason
    assert found is not None
    assert found.startswith("being shown first moves the judge by +1.")
    # A bias of 2: both orders agree on about 35 % of pairs.
    strong = biased(Judge(delta=2.0), 200)
    assert strong.agreement is not None
    assert strong.agreement < 0.5
    assert strong.abort_reason is not None
