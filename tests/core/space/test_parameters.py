"""Parameters of the search space: bounds, steps, choices and identity."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from convergence_core.space import Choice, Float, Integer, Space, same_params, same_value
from tests.core.space.strategies import EXAMPLES, floats, integers, rng

# -- numbers -----------------------------------------------------------------------------------


@EXAMPLES
@given(floats(), st.floats(allow_nan=False, allow_infinity=False))
def test_floats_stay_within_bounds_and_canonical_values_are_stable(parameter, value):
    canonical = parameter.canonical(value)
    assert parameter.min <= canonical <= parameter.max
    assert parameter.canonical(canonical) == canonical
    assert parameter.from_unit(parameter.to_unit(canonical)) == canonical
    assert 0 <= parameter.to_unit(canonical) <= 1
    assert parameter.problem(canonical) is None


@EXAMPLES
@given(integers(), st.integers() | st.floats(-1e12, 1e12))
def test_integers_stay_within_bounds_and_canonical_values_are_stable(parameter, value):
    canonical = parameter.canonical(value)
    assert type(canonical) is int
    assert parameter.min <= canonical <= parameter.max
    assert (canonical - parameter.min) % parameter.step == 0
    assert parameter.canonical(canonical) == canonical
    assert parameter.from_unit(parameter.to_unit(canonical)) == canonical
    assert parameter.problem(canonical) is None


@EXAMPLES
@given(floats() | integers(), st.floats(-1, 2), st.integers(0, 2**32))
def test_every_place_and_every_draw_is_a_value(parameter, unit, seed):
    for value in (parameter.from_unit(unit), parameter.sample(rng(seed))):
        assert parameter.min <= value <= parameter.max
        assert parameter.canonical(value) == value


def test_log_bounds_survive_rounding():
    for low, high in [(1e-5, 1e-2), (1 / 3, 2 / 3), (1e-300, 1e300), (0.1 + 0.2, 7e11)]:
        parameter = Float(min=low, max=high, log=True)
        assert parameter.from_unit(1.0) <= high
        assert parameter.from_unit(0.0) >= low
        assert parameter.to_unit(parameter.canonical(high)) == pytest.approx(1.0)
        assert parameter.canonical(-5) >= low
        assert parameter.canonical(1e308) <= high


@pytest.mark.parametrize(
    "parameter",
    [
        Float(min=0, max=1_000_000, default=0.00001),
        Float(min=0, max=1, default=0.3333333333333333),
        Float(min=1e-9, max=1, log=True, default=0.1234567890123),
        Integer(min=1, max=10**15, log=True, default=12_345_678_901_234),
    ],
)
def test_the_default_is_exactly_what_the_user_wrote(parameter):
    """It has one form, so nothing beside it looks alike and is another point."""
    default = parameter.default
    assert parameter.canonical(default) == default
    assert Space(parameters={"x": parameter}).baseline() == {"x": default}
    assert parameter.from_unit(parameter.to_unit(default)) == default
    bare = dataclasses.replace(parameter, default=None)
    for near in {bare.canonical(default)} - {parameter.min}:
        assert parameter.canonical(near) == default
    for unit in np.linspace(0, 1, 42):
        assert parameter.from_unit(unit) == bare.from_unit(unit)


def test_log_scales_are_drawn_evenly():
    widest = Float(min=1e-320, max=1e300, log=True)
    assert widest.from_unit(0.0) == 1e-320
    assert widest.from_unit(0.5) == pytest.approx(1e-10, rel=1e-3)
    parameter = Float(min=1e-5, max=1e-1, log=True)
    g = rng()
    units = np.sort([parameter.to_unit(parameter.sample(g)) for _ in range(2000)])
    assert np.max(np.abs(units - np.linspace(0, 1, 2000))) < 0.05
    whole = Integer(min=1, max=1000, log=True)
    below_32 = np.mean([whole.sample(g) < 32 for _ in range(2000)])
    assert 0.45 < below_32 < 0.65


def test_steps_count_from_min():
    parameter = Float(min=0.05, max=1.0, step=0.1)
    assert [parameter.value_at(i) for i in range(4)] == [0.05, 0.15, 0.25, 0.35]
    assert parameter.n_values == 10
    assert parameter.canonical(1.0) == 0.95
    assert parameter.canonical(0.2) in (0.15, 0.25)
    assert Float(min=0, max=1, step=0.1).n_values == 11
    assert Float(min=0, max=1, step=0.1).value_at(3) == 0.3
    whole = Integer(min=3, max=20, step=5)
    assert [whole.canonical(v) for v in (0, 5, 6, 100)] == [3, 3, 8, 18]
    assert {whole.sample(rng(seed)) for seed in range(30)} == {3, 8, 13, 18}
    stepped_log = Float(min=1, max=10, step=1, log=True)
    assert {stepped_log.sample(rng(seed)) for seed in range(60)} <= set(range(1, 11))


def test_spans_beyond_the_resolution_of_floats_are_coarsened():
    wide = Integer(min=-(2**53), max=2**53)
    assert wide.step > 1
    log = Integer(min=1, max=2**53, log=True)
    stepped = Integer(min=1, max=2**53, log=True, step=7)
    for parameter in (wide, log, stepped):
        g = rng(3)
        for _ in range(200):
            value = parameter.sample(g)
            assert parameter.from_unit(parameter.to_unit(value)) == value
        assert parameter.canonical(parameter.max) <= parameter.max


def test_no_two_choices_look_alike():
    choices = (1, True, "1", 1.5, "true", "a b", "a  b", "True")
    choice = Choice(kind="categorical", choices=choices)
    shown = [choice.show(value) for value in choices]
    assert shown == ["1", "true", '"1"', "1.5", '"true"', "a b #6", "a b #7", "True"]


def test_configurations_are_equal_by_value_and_kind():
    assert same_params({"a": 1, "b": "x"}, {"b": "x", "a": 1.0})
    assert not same_params({"a": 1}, {"a": True})
    assert not same_params({"a": 1}, {"a": 1, "b": 2})


def test_choices_that_are_the_same_value_are_refused():
    with pytest.raises(ValueError, match="the same value"):
        Choice(kind="categorical", choices=(1, 1.0))


def test_values_are_checked_with_the_rule_they_break():
    ratio = Float(min=0, max=1, step=0.25)
    assert ratio.problem(0.5) is None
    assert ratio.problem(0.3) == "must be 0 plus a multiple of 0.25"
    assert ratio.problem(1.5) == "must lie in [0, 1]"
    assert ratio.problem(math.nan) == "must lie in [0, 1]"
    assert ratio.problem(True) == ratio.problem("x") == "must be a number"
    count = Integer(min=2, max=10, step=4)
    assert count.problem(6) is count.problem(6.0) is None
    assert count.problem(4) == "must be 2 plus a multiple of 4"
    assert count.problem(14) == "must lie in [2, 10]"
    assert count.problem(2.5) == count.problem(False) == "must be a whole number"
    many = Choice(kind="categorical", choices=tuple(range(9)))
    assert many.problem(3) is None
    assert many.problem(True) == "must be one of 0, 1, 2, 3, 4, 5, 6, 7, …"
    flag = Choice(kind="boolean", choices=(False, True))
    assert flag.problem(1) == flag.problem([1]) == "must be one of false, true"
    for parameter in (ratio, count):
        for value in ("x", math.nan, None):
            with pytest.raises(ValueError, match="finite number"):
                parameter.canonical(value)


# -- choices -----------------------------------------------------------------------------------


def test_one_true_and_one_point_zero():
    """A boolean is not a number unless only the number is on offer."""
    assert same_value(1, 1.0)
    assert not same_value(1, True)
    mixed = Choice(kind="categorical", choices=(1, True, "1"))
    assert [mixed.index(v) for v in (1, 1.0, True, "1")] == [0, 0, 1, 2]
    assert Choice(kind="boolean", choices=(False, True)).canonical(1) is True
    assert Choice(kind="categorical", choices=(0, 1)).canonical(True) == 1
    with pytest.raises(ValueError, match="one of its choices"):
        mixed.index("2")
    with pytest.raises(ValueError, match="one of its choices"):
        mixed.index([1])


def test_identical_points_have_one_identity():
    space = Space(
        parameters={
            "x": Float(min=-1, max=1),
            "n": Integer(min=0, max=5),
            "c": Choice(kind="categorical", choices=(0.0, 2, "2")),
            "flag": Choice(kind="boolean", choices=(False, True)),
        }
    )
    points = [
        {"x": 0.0, "n": 1, "c": 2, "flag": True},
        {"flag": 1, "c": 2.0, "n": 1.0, "x": -0.0},
        {"x": 1e-13, "n": True, "c": 2, "flag": 1.0, "unknown": 3},
        {"x": -1e-14, "n": 1.2, "c": 2, "flag": True},
    ]
    ids = {space.candidate_id(point) for point in points}
    assert len(ids) == 1
    assert len(ids.pop()) == 16
    assert str(space.canonical(points[1])["x"]) == "0.0"
    assert type(space.canonical(points[2])["n"]) is int
    assert type(space.canonical(points[1])["c"]) is int
    assert space.candidate_id({**points[0], "c": "2"}) != space.candidate_id(points[0])
