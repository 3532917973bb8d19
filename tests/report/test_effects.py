"""Parameter effects: marginal means over the candidates asked."""

import numpy as np
import pytest
from scipy import stats

from convergence_core.space import Choice, Float, Integer, Space
from tasks.report.effects import MAX_BINS, Seen, parameter_effects


def test_numbers_with_many_values_are_sorted_into_ranges_of_their_scale():
    space = Space(parameters={"rate": Float(min=1e-6, max=1.0, log=True)})
    rates = [10.0**-exponent for exponent in np.linspace(0.01, 5.99, 60)]
    (effect,) = parameter_effects(space, [Seen(params={"rate": r}, mean=0.5) for r in rates])
    assert effect.log
    assert [point.n_candidates for point in effect.points] == [10] * MAX_BINS
    for point, low in zip(effect.points, range(-6, 0), strict=True):
        assert point.x is not None
        assert 10.0**low <= point.x <= 10.0 ** (low + 1)
        assert " to " in point.label


def test_few_distinct_numbers_stay_apart():
    space = Space(parameters={"n": Integer(min=1, max=100)})
    seen = [Seen(params={"n": n}, mean=n / 10) for n in (1, 5, 5, 9)]
    (effect,) = parameter_effects(space, seen)
    assert [(p.label, p.x, p.n_candidates) for p in effect.points] == [
        ("1", 1.0, 1),
        ("5", 5.0, 2),
        ("9", 9.0, 1),
    ]


def test_the_interval_is_students_over_candidates():
    space = Space(parameters={"kind": Choice(choices=("a", "b"), kind="categorical")})
    means = [0.4, 0.5, 0.55, 0.7]
    (effect,) = parameter_effects(space, [Seen(params={"kind": "a"}, mean=m) for m in means])
    low, high = stats.t.interval(0.95, 3, loc=np.mean(means), scale=stats.sem(means))
    assert effect.points[0].low == pytest.approx(low)
    assert effect.points[0].high == pytest.approx(high)


def test_inactive_parameters_count_only_where_they_are_active():
    space = Space(
        parameters={
            "kind": Choice(choices=("a", "b"), kind="categorical"),
            "depth": Integer(min=1, max=3, when=(("kind", ("a",)),)),
        }
    )
    seen = [
        Seen(params={"kind": "a", "depth": 2}, mean=0.2),
        Seen(params={"kind": "b"}, mean=0.8),
    ]
    effects = {effect.parameter: effect for effect in parameter_effects(space, seen)}
    assert sum(point.n_candidates for point in effects["depth"].points) == 1
    assert parameter_effects(space, []) == ()


def test_effects_of_most_variation_come_first():
    space = Space(parameters={"flat": Float(min=0, max=1), "steep": Float(min=0, max=1)})
    seen = [
        Seen(params={"flat": x, "steep": y}, mean=y) for x in (0.0, 1.0) for y in (0.0, 0.5, 1.0)
    ]
    assert [effect.parameter for effect in parameter_effects(space, seen)] == ["steep", "flat"]
