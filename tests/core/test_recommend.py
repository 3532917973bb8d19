"""Whom the evidence hands over, and intervals of what is measured after the choice."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from convergence_core.archive import Archive, Member
from convergence_core.recommend import (
    CAUTIOUS_LEVEL,
    Recommendation,
    mean_interval,
    paired_difference,
    recommend,
)
from convergence_core.sampler import SearchState
from tests.support.archives import archive, candidate, surrogate, two_way


def chosen(evidence: Archive, **settings: Any) -> Recommendation:
    made = recommend(
        SearchState(archive=evidence),
        rng=np.random.default_rng(0),
        surrogate=surrogate(evidence),
        **settings,
    )
    assert made is not None
    return made


def cases(values: Iterable[float]) -> dict[str, float]:
    return {f"c{j}": float(v) for j, v in enumerate(values)}


# -- recommend -----------------------------------------------------------------------------------


def test_nothing_is_recommended_without_a_reward():
    model, rng = surrogate(Archive()), np.random.default_rng(0)
    assert recommend(SearchState(), rng=rng, surrogate=model) is None
    silent = Member(candidate=candidate("a"), generation=0, missing=frozenset({("c0", 0)}))
    state = SearchState(archive=Archive({"a": silent}))
    assert recommend(state, rng=rng, surrogate=model) is None


def test_proof_wins_over_luck():
    rng = np.random.default_rng(1)
    table = {f"m{i}": cases(rng.normal(0.5, 0.15, 20)) for i in range(10)}
    table["lucky"] = {"c0": 1.0}
    table["proven"] = cases(rng.normal(0.8, 0.1, 20))
    best = chosen(archive(table))
    assert best.candidate_id == "proven"
    assert best.low < best.mean < best.high
    assert best.ranking[0].n_cells == 20


def test_the_ranking_holds_everyone_with_a_reward_best_first():
    evidence, _ = two_way(np.random.default_rng(2), n_members=15, n_cases=8, share=0.5)
    silent = Member(candidate=candidate("silent"), generation=0)
    best = chosen(Archive({**evidence.members, "silent": silent}))
    assert {row.candidate_id for row in best.ranking} == set(evidence.members)
    fitted = surrogate(evidence).fit(evidence)
    joint = fitted.posterior([member.candidate for member in evidence])
    cautious = dict(zip(joint.ids, joint.interval(CAUTIOUS_LEVEL)[0].tolist(), strict=True))
    keys = [(-cautious[row.candidate_id], row.candidate_id) for row in best.ranking]
    assert keys == sorted(keys)
    assert best.candidate_id == best.ranking[0].candidate_id
    assert all(0 <= row.low <= row.mean <= row.high <= 1 for row in best.ranking)


def test_equals_are_ranked_by_id():
    best = chosen(archive({"b": {"c0": 0.5}, "a": {"c0": 0.5}}))
    assert [row.candidate_id for row in best.ranking] == ["a", "b"]


def test_the_same_evidence_gives_the_same_recommendation():
    evidence, _ = two_way(np.random.default_rng(3), n_members=15, n_cases=8)
    assert chosen(evidence) == chosen(evidence)
    assert chosen(evidence) == chosen(Archive.from_json(evidence.to_json()))


def test_a_wider_level_gives_wider_intervals_and_a_wider_gap_more_certainty():
    evidence, _ = two_way(np.random.default_rng(4), n_members=15, n_cases=8)
    narrow, wide = chosen(evidence, level=0.8), chosen(evidence, level=0.99)
    assert wide.low < narrow.low < narrow.high < wide.high
    near = [chosen(evidence, delta=delta).probability_within for delta in (0.0, 0.05, 1.0)]
    assert near[0] < near[1] < near[2] == 1.0


def test_weights_of_cases_decide():
    table = {"a": {"c0": 0.9, "c1": 0.1}, "b": {"c0": 0.3, "c1": 0.5}}
    assert chosen(archive(table), case_weights={"c0": 9.0}).candidate_id == "a"
    assert chosen(archive(table), case_weights={"c1": 9.0}).candidate_id == "b"


def test_a_negative_gap_is_refused():
    with pytest.raises(ValueError, match="delta"):
        chosen(archive({"a": {"c0": 1}}), delta=-0.1)


@pytest.mark.statistical
def test_stated_certainty_of_being_near_the_best_comes_true():
    stated, true = [], []
    for seed in range(60):
        rng = np.random.default_rng(300 + seed)
        evidence, truth = two_way(rng, n_members=12, n_cases=20, share=0.5)
        best = chosen(evidence, delta=0.02)
        stated.append(best.probability_within)
        index = list(evidence.members).index(best.candidate_id)
        true.append(truth[index] >= truth.max() - 0.02)
    assert np.mean(true) == pytest.approx(np.mean(stated), abs=0.12)


# -- intervals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_a_mean_has_students_interval(level):
    x = np.random.default_rng(5).uniform(0.3, 0.6, 12)
    made = mean_interval(cases(x), level=level)
    assert made is not None
    exact = stats.t(11, x.mean(), x.std(ddof=1) / 12**0.5).interval(level)
    assert (made.low, made.high) == pytest.approx(exact)
    assert made.mean == pytest.approx(x.mean())
    assert (made.n, made.level) == (12, level)


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (3, 10), (10, 10), (0, 30)])
def test_zeros_and_ones_have_jeffreys_interval(hits, n):
    made = mean_interval(cases([1] * hits + [0] * (n - hits)))
    assert made is not None
    low, high = stats.beta(hits + 0.5, n - hits + 0.5).interval(0.95)
    assert made.low == pytest.approx(0 if hits == 0 else low)
    assert made.high == pytest.approx(1 if hits == n else high)
    assert made.low < made.high


def test_a_difference_has_students_paired_interval():
    rng = np.random.default_rng(6)
    a, b = rng.uniform(0, 1, (2, 15))
    made = paired_difference({**cases(a), "only_a": 1.0}, {**cases(b), "only_b": 0.0})
    assert made is not None
    exact = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (made.low, made.high) == pytest.approx((exact.low, exact.high))
    assert made.mean == pytest.approx((a - b).mean())
    assert made.n == 15


def test_a_difference_changes_sign_with_its_order():
    rng = np.random.default_rng(7)
    for a, b in (rng.uniform(0, 1, (2, 9)), rng.integers(0, 2, (2, 9))):
        one, other = (
            paired_difference(cases(a), cases(b)),
            paired_difference(cases(b), cases(a)),
        )
        assert one is not None
        assert other is not None
        assert (one.mean, one.low, one.high) == pytest.approx(
            (-other.mean, -other.high, -other.low)
        )


def test_equal_zeros_and_ones_do_not_prove_equality():
    made = paired_difference(cases([1, 0, 1, 1]), cases([1, 0, 1, 1]))
    assert made is not None
    assert made.mean == 0
    assert made.low < -0.1
    assert made.high > 0.1


def test_one_case_says_nothing_of_the_spread():
    made = mean_interval({"c0": 0.4})
    assert made is not None
    assert (made.mean, made.low, made.high) == (0.4, 0, 1)
    difference = paired_difference({"c0": 0.4}, {"c0": 0.1})
    assert difference is not None
    assert (difference.low, difference.high) == (-1, 1)


def test_no_case_gives_no_interval():
    assert mean_interval({}) is None
    assert paired_difference({"a": 1.0}, {"b": 1.0}) is None


def test_a_case_of_double_weight_counts_twice_in_the_mean():
    twice = {"c0": 2.0}
    made = mean_interval({"c0": 0.2, "c1": 0.8}, weights=twice)
    assert made is not None
    assert made.mean == pytest.approx(0.4)
    difference = paired_difference({"c0": 0.2, "c1": 0.8}, {"c0": 0.1, "c1": 0.3}, weights=twice)
    assert difference is not None
    assert difference.mean == pytest.approx(0.7 / 3)


def test_intervals_stay_within_their_range():
    made = mean_interval(cases([0.0, 1.0, 0.99]), level=0.99)
    difference = paired_difference(cases([1.0, 0.9]), cases([0.0, 0.3]), level=0.99)
    assert made is not None
    assert difference is not None
    assert (made.low, made.high) == (0, 1)
    assert (difference.low, difference.high) == (-1, 1)


@pytest.mark.parametrize("level", [0, 1])
def test_a_level_out_of_range_is_refused(level):
    with pytest.raises(ValueError, match="level"):
        mean_interval({"c0": 0.4}, level=level)
    with pytest.raises(ValueError, match="level"):
        paired_difference({"c0": 0.4}, {"c0": 0.4}, level=level)


@pytest.mark.statistical
@pytest.mark.parametrize("binary", [False, True])
def test_paired_intervals_hold_the_true_difference(binary):
    rng = np.random.default_rng(8)
    hits = 0
    for _ in range(400):
        case = rng.uniform(-0.2, 0.2, 25)
        a, b = 0.6 + case, 0.5 + case
        if binary:
            a, b = np.where(rng.random((2, 25)) < (a, b), 1.0, 0.0)
        else:
            a, b = a + rng.normal(0, 0.1, 25), b + rng.normal(0, 0.1, 25)
        made = paired_difference(cases(a), cases(b))
        assert made is not None
        hits += made.low <= 0.1 <= made.high
    assert stats.binomtest(hits, 400, 0.95).pvalue > 1e-3, hits / 400
