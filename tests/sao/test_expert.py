"""The judge among the draws: what it says, how its weight moves, what it is worth."""

import numpy as np
import pytest

from convergence_core.rlp.bins import mean_of
from convergence_core.rlp.experts import EDGE
from convergence_core.sao.expert import (
    SHARE,
    START,
    binned_beta,
    first_weight,
    opinion_of,
    variance_of,
    weight_after,
)
from convergence_core.sao.preferences import Answer, Comparison, Judgement
from tests.support.judged_arms import regrets


def judged(first: str, second: str, p: float) -> tuple[Comparison, Judgement]:
    pair = Comparison(
        prompt="p",
        first=Answer(text="text", author=first),
        second=Answer(text="text", author=second),
        kind="candidates",
    )
    return pair, Judgement(p12=p, p21=p, estimator="x")


def test_an_opinion_is_the_grounded_mean_moved_by_standardized_merits():
    pairs = [judged("a", "b", 0.9), judged("b", "c", 0.9), judged("a", "c", 0.95)]
    opinion = opinion_of(pairs, {"a": 0.4, "b": 0.6, "z": 0.5})
    assert opinion is not None
    values = [opinion.means[name] for name in "abc"]
    assert values == sorted(values, reverse=True)
    assert np.mean(values) == pytest.approx(0.5)
    assert np.std(values) == pytest.approx(np.std([0.4, 0.6, 0.5]))
    assert opinion.forecast("a").sum() == pytest.approx(1.0)


def test_the_spread_is_at_least_a_twentieth_and_means_stay_inside():
    opinion = opinion_of([judged("a", "b", 0.9)], {"a": 0.99})
    assert opinion is not None
    assert opinion.means["a"] == 1.0 - EDGE
    assert opinion.means["b"] == pytest.approx(0.94)
    assert opinion_of([], {"a": 0.5}) is None
    assert opinion_of([judged("a", "b", 0.9)], {}) is None


def test_the_prior_counts_for_five_trials():
    assert variance_of(0.5) == pytest.approx(0.25 / 6)
    p = binned_beta(0.7)
    assert mean_of(p) == pytest.approx(0.7, abs=0.01)
    assert p.sum() == pytest.approx(1.0)


def test_the_weight_starts_with_trust_and_moves_by_evidence_alone():
    assert first_weight(0.0) == 0.0
    assert first_weight(0.3) == pytest.approx(START / 2)
    assert first_weight(0.9) == START
    assert weight_after(0.2, 1.0, 0.2) == pytest.approx(0.2)
    assert weight_after(0.2, 3.0, 0.1) == pytest.approx((1 - SHARE) * 0.6 / 1.4 + SHARE * 0.1)
    assert weight_after(0.0, 9.0, 0.0) == 0.0
    low = START
    for _ in range(500):
        low = weight_after(low, 0.5, START)
    assert low > 0.0  # a judge may come back
    assert low < 0.01


@pytest.mark.slow
@pytest.mark.statistical
def test_a_good_judge_helps_a_random_one_costs_little_and_a_liar_hardly_more():
    n = 1_200
    off = regrets("off", n).mean()
    found = {
        kind: regrets(kind, n).mean() / off - 1.0 for kind in ("good", "random", "adversarial")
    }
    assert found["good"] <= -0.10, found
    assert found["random"] <= 0.02, found
    assert found["adversarial"] <= 0.05, found


@pytest.mark.statistical
def test_a_judge_without_trust_changes_nothing_and_a_good_one_helps():
    n = 60
    off = regrets("off", n)
    assert regrets("adversarial", n, trust=0.0) == pytest.approx(regrets("good", n, trust=0.0))
    assert regrets("good", n).mean() <= 0.95 * off.mean()
