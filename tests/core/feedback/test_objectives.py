"""Targets of ratings: quantiles by user, balanced thumbs, seeded order."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import rankdata

from convergence_core.feedback.objectives import (
    MIN_RATINGS_PER_USER,
    balanced_weights,
    desirability,
    mid_rank_quantiles,
    rating_quantiles,
    seeded_order,
)
from convergence_core.feedback.records import Rating

marks = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), min_size=1, max_size=40)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=50))
def test_quantiles_are_mid_ranks(values: list[int]):
    found = mid_rank_quantiles(values)
    np.testing.assert_allclose(found, (rankdata(values) - 0.5) / len(values))
    assert found.mean() == pytest.approx(0.5)
    assert np.all((found > 0) & (found < 1))


@given(marks, st.randoms())
def test_equal_marks_have_equal_targets_in_any_order(rows, random):
    users, ratings = zip(*rows, strict=True)
    told = rating_quantiles(users, ratings)
    by_mark = defaultdict(set)
    for row, target in zip(rows, told, strict=True):
        by_mark[row].add(float(target))
    assert all(len(targets) == 1 for targets in by_mark.values())
    assert all(
        min(by_mark[user, high]) > max(by_mark[user, low])
        for user, high in by_mark
        for other, low in by_mark
        if user == other and high > low
    )
    shuffled = random.sample(rows, len(rows))
    again = rating_quantiles(*zip(*shuffled, strict=True))
    assert {row: {float(t)} for row, t in zip(shuffled, again, strict=True)} == dict(by_mark)


def test_a_strict_and_a_generous_user_say_the_same():
    users = ["strict"] * 6 + ["generous"] * 6
    told = rating_quantiles(users, [1, 1, 1, 2, 2, 2, 4, 4, 4, 5, 5, 5])
    np.testing.assert_allclose(told, [0.25, 0.25, 0.25, 0.75, 0.75, 0.75] * 2)


def test_a_user_of_few_ratings_is_ranked_among_everybody():
    users = ["often"] * MIN_RATINGS_PER_USER + ["once"]
    told = rating_quantiles(users, [1, 2, 3, 4, 5, 5])
    np.testing.assert_allclose(told[:-1], [0.1, 0.3, 0.5, 0.7, 0.9])
    assert told[-1] == pytest.approx((4 + 1) / 6)  # four are below, two are equal
    assert rating_quantiles(["once"], [5]).tolist() == [0.5]
    with pytest.raises(ValueError, match="1 users gave 2 ratings"):
        rating_quantiles(["once"], [5, 4])


def test_desirable_is_four_and_more_and_three_is_neither():
    told = [desirability(Rating(interaction_id="i", user_id="u", rating=r)) for r in range(1, 6)]
    assert told == [False, False, None, True, True]
    assert desirability(Rating(interaction_id="i", user_id="u", thumbs="up")) is True
    assert desirability(Rating(interaction_id="i", user_id="u", thumbs="down")) is False


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_both_kinds_weigh_the_same_in_sum(desirable: list[bool]):
    weights = balanced_weights(desirable)
    assert weights.mean() == pytest.approx(1.0)
    good = np.array(desirable)
    if 0 < good.sum() < len(good):
        assert weights[good].sum() == pytest.approx(weights[~good].sum())
        ratio = (~good).sum() / good.sum()
        assert weights[good][0] / weights[~good][0] == pytest.approx(ratio)


def test_the_order_of_reading_depends_on_the_seed_and_not_on_where_rows_came_from():
    keys = [f"row-{i:02d}" for i in range(30)]
    backwards = keys[::-1]
    read = [keys[i] for i in seeded_order(keys, np.random.default_rng(7))]
    assert read == [backwards[i] for i in seeded_order(backwards, np.random.default_rng(7))]
    assert sorted(read) == keys != read
    assert read != [keys[i] for i in seeded_order(keys, np.random.default_rng(8))]
