"""Fronts against brute force."""

import numpy as np
import pytest

from convergence_core.objective import (
    AUGMENTATION,
    MARGIN,
    best_first,
    crowding,
    dominated,
    on_front,
    ranks,
    scalarize,
)


def points(n: int, n_dims: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((n, n_dims))


def test_a_point_is_dominated_by_one_nowhere_lower_and_somewhere_higher():
    values = np.array([[0.5, 0.5], [0.5, 0.5], [0.6, 0.5], [0.1, 0.9], [0.1, 0.8]])
    assert dominated(values).tolist() == [True, True, False, False, True]


def test_ranks_peel_fronts_one_by_one():
    values = points(60, 3)
    rank = ranks(values)
    for number in range(rank.max() + 1):
        behind = dominated(values[rank >= number])
        assert np.array_equal(~behind, rank[rank >= number] == number)


def test_the_ends_of_a_front_have_endless_room():
    values = np.array([[0.0, 1.0], [0.1, 0.9], [0.5, 0.5], [1.0, 0.0]])
    room = crowding(values)
    assert np.isinf(room[[0, 3]]).all()
    assert room[1:3].tolist() == pytest.approx([1.0, 1.8])
    assert best_first(np.vstack([values, [[0.0, 0.0]]])).tolist() == [0, 3, 2, 1, 4]


def test_the_scalarization_is_the_least_reach_along_a_direction():
    direction = np.array([0.6, 0.8])
    values = np.array([[0.3, 0.8], [1.2, 0.4], [0.0, 5.0]])
    least = np.array([0.5, 0.5, 0.0]) + AUGMENTATION * values.sum(axis=1)
    assert scalarize(values, direction) == pytest.approx(least)


def test_over_uniform_directions_the_scalarization_has_the_dominated_area_as_its_mean():
    """In two dimensions it is pi / 4 times the mean square (Golovin & Zhang 2020, lemma 5)."""
    values = points(12, 2)
    angles = (np.arange(20_000) + 0.5) / 20_000 * np.pi / 2
    reach = [
        (scalarize(values, d) - AUGMENTATION * values.sum(axis=1)).max()
        for d in np.stack([np.cos(angles), np.sin(angles)], axis=1)
    ]
    front = np.unique(values[~dominated(values)], axis=0)
    area = (np.diff(front[:, 0], prepend=0.0) * front[:, 1]).sum()
    assert np.pi / 4 * np.mean(np.square(reach)) == pytest.approx(area, abs=1e-3)


def test_a_front_is_measured_from_just_below_its_ends():
    values = np.array([[0.2, 0.9], [0.4, 0.5], [0.3, 0.6], [0.1, 0.2]])
    assert on_front(values) == pytest.approx(
        np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.25], [-0.5, -0.75]]) + MARGIN
    )
    # Of those that are nearly as good in one, the end is who is not far out in the other.
    lucky = on_front(np.array([[0.0, 1.0], [1.0, 0.5], [1.001, 0.0]]))
    assert lucky[:2] == pytest.approx(np.array([[0.0, 1.0], [1.0, 0.0]]) + MARGIN)
    # What is best in all is the whole front, and what falls short of it lies below.
    alone = on_front(np.array([[0.2, 0.9], [0.1, 0.9]]))
    assert alone[0] == pytest.approx([MARGIN, MARGIN])
    assert alone[1, 0] < 0.0


def test_a_metric_that_hardly_differs_has_its_half_of_the_places():
    """Draws of a metric of which nothing is known but that it hardly differs.

    Measured by the means, whose front is a single point then, places go to the best of the other one alone.
    """
    rng = np.random.default_rng(2)
    first = np.linspace(0.0, 1.0, 100)
    won = []
    for d in np.abs(rng.standard_normal((300, 2))):
        drawn = np.stack([first, 0.5 + 1e-3 * rng.standard_normal(100)], axis=1)
        won.append(first[int(scalarize(on_front(drawn), d / np.linalg.norm(d)).argmax())])
    assert np.quantile(won, 0.8) - np.quantile(won, 0.2) > 0.2
    assert np.mean(np.array(won) < 0.9) > 0.3
