"""Agreement of judge and person: against SciPy, hand values, and what is undefined."""

import math

import numpy as np
import pytest
from scipy import stats

from convergence_core.judges.agreement import (
    kappa,
    pass_fail_agreement,
    rating_agreement,
    spearman,
    weighted_kappa,
    wilson,
)


def verdicts(
    both: int, judge_only: int, person_only: int, neither: int
) -> tuple[list[bool], list[bool]]:
    judged = [True] * (both + judge_only) + [False] * (person_only + neither)
    labels = [True] * both + [False] * judge_only + [True] * person_only + [False] * neither
    return judged, labels


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


# -- the numbers


@pytest.mark.parametrize(
    ("judged", "labels", "expected"),
    [
        # 20 and 15 of 50 equal: p_o = .7, p_e = .5.
        (*verdicts(20, 5, 10, 15), 0.4),
        ([True, False], [True, False], 1),
        ([True, True, False, False], [True, False, True, False], 0),
        ([True, False], [False, True], -1),
        ([True, True], [True, True], math.nan),
    ],
)
def test_kappa_is_that_of_the_textbook(judged, labels, expected):
    x, y = np.asarray(judged, float), np.asarray(labels, float)
    assert kappa(x, y) == pytest.approx(expected, nan_ok=True)
    if not math.isnan(expected):
        assert weighted_kappa(x, y) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(20))
def test_weighted_kappa_of_ratings_is_that_of_the_table_of_categories(seed):
    draw = np.random.default_rng(seed)
    a = draw.integers(1, 11, size=40)
    b = np.clip(a + draw.integers(-3, 4, size=40), 1, 10)
    table = np.zeros((10, 10))
    np.add.at(table, (a - 1, b - 1), 1)
    i, j = np.indices(table.shape)
    weights = (i - j) ** 2 / 81
    by_chance = np.outer(table.sum(1), table.sum(0)) / table.sum()
    expected = 1 - (weights * table).sum() / (weights * by_chance).sum()
    assert weighted_kappa(a, b) == pytest.approx(expected, abs=1e-12)


def test_rank_correlation_is_scipys_row_by_row_ties_included():
    draw = np.random.default_rng(0)
    a = draw.integers(1, 6, size=(20, 30))
    b = (a + draw.normal(0, 2, size=a.shape)).round(0)
    expected = [stats.spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    assert spearman(a, b) == pytest.approx(expected, abs=1e-12)


def test_rank_correlation_without_variance_is_undefined():
    assert np.isnan(spearman(np.array([3, 3, 3]), np.array([1, 2, 3])))
    assert np.isnan(spearman(np.array([1]), np.array([1])))


@pytest.mark.parametrize("n", [1, 2, 10, 50, 333])
@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.82, 1])
def test_wilsons_interval_is_scipys(n, share):
    hits = round(share * n)
    for level in (0.8, 0.95, 0.99):
        expected = stats.binomtest(hits, n).proportion_ci(level, method="wilson")
        found = wilson(hits, n, level=level)
        assert found is not None
        assert found.value == hits / n
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


# -- judge and labels


def test_verdicts_are_told_with_share_kappa_and_intervals():
    found = pass_fail_agreement(*verdicts(26, 4, 5, 15), rng=rng())
    assert (found.n, found.n_equal, found.unknown) == (50, 41, "")
    assert found.rate is not None
    assert found.kappa is not None
    assert (found.rate.low, found.rate.high) == pytest.approx((0.692, 0.902), abs=1e-3)
    assert found.kappa.low is not None
    assert found.kappa.high is not None
    assert 0 < found.kappa.low < found.kappa.value < found.kappa.high < 1


def test_the_bootstrap_of_kappa_is_as_wide_as_its_large_sample_interval():
    judged, labels = verdicts(260, 40, 50, 150)
    found = pass_fail_agreement(judged, labels, rng=rng()).kappa
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    # Cohen 1960: se = √(pₒ(1 - pₒ) / n) / (1 - pₑ)
    p, q = 300 / 500, 310 / 500
    by_chance = p * q + (1 - p) * (1 - q)
    half = 1.96 * math.sqrt(0.82 * 0.18 / 500) / (1 - by_chance)
    assert found.high - found.low == pytest.approx(2 * half, rel=0.1)


def test_equal_labels_leave_kappa_unknown_and_say_so():
    found = pass_fail_agreement([True, False, True], [True, True, True], rng=rng())
    assert (found.n_equal, found.kappa) == (2, None)
    assert "all 3 labels are equal" in found.unknown


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_cases_say_nothing(n):
    for found in (
        pass_fail_agreement([True] * n, [True] * n, rng=rng()),
        rating_agreement([5.0] * n, [5.0] * n, rng=rng()),
    ):
        assert (found.n, found.rate, found.kappa, found.difference) == (n, None, None, None)
        assert "needs 2" in found.unknown


def test_ratings_are_told_with_difference_kappa_and_rank_correlation():
    labels = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10.0]
    judged = [2, 2, 4, 4, 6, 6, 8, 8, 10, 10.0]
    found = rating_agreement(judged, labels, rng=rng())
    assert found.difference is not None
    assert found.spearman is not None
    assert found.kappa is not None
    assert found.difference.value == pytest.approx(0.5)
    assert found.spearman.value == pytest.approx(stats.spearmanr(judged, labels).statistic)
    for figure in (found.difference, found.spearman, found.kappa):
        assert figure.low is not None
        assert figure.high is not None
        assert figure.low <= figure.value <= figure.high
    assert (found.n_equal, found.rate) == (None, None)


def test_a_judge_without_variance_has_no_rank_correlation_and_no_agreement_beyond_chance():
    found = rating_agreement([5.0] * 4, [1.0, 4.0, 6.0, 9.0], rng=rng())
    assert found.kappa is not None
    assert found.kappa.value == pytest.approx(0)
    assert found.spearman is None
    assert "all judgements are equal" in found.unknown


def test_an_interval_that_few_resamples_define_is_left_out():
    # Both odd ones out must be drawn for a variance on both sides: 4 resamples in 10 do.
    judged, labels = [9.0, *[1.0] * 9], [1.0, 9.0, *[1.0] * 8]
    found = rating_agreement(judged, labels, rng=rng()).spearman
    assert found is not None
    assert (found.low, found.high) == (None, None)
    assert found.value == pytest.approx(-1 / 9)
