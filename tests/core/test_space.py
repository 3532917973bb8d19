"""The search space: bounds, steps, conditions, constraints and identity."""

import math
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from convergence_core.config import SearchSpaceConfig
from convergence_core.errors import ConfigurationError
from convergence_core.expressions import parse
from convergence_core.records import ParamValue
from convergence_core.space import Choice, Float, Integer, Parameter, Space, When, same_value

EXAMPLES = settings(max_examples=60, deadline=None)
FINITE = st.floats(-1e6, 1e6, allow_nan=False)


def from_config(
    parameters: Mapping[str, Any],
    constraints: Sequence[str] = (),
    texts: Mapping[str, str] | None = None,
) -> Space:
    cfg = SearchSpaceConfig.model_validate(
        {"parameters": parameters, "constraints": list(constraints)}
    )
    return Space.from_config(cfg, texts or {})


@st.composite
def floats(draw: st.DrawFn, when: When = ()) -> Float:
    log = draw(st.booleans())
    if log:
        low = draw(st.floats(1e-8, 1e6))
        high = draw(st.floats(low * (1 + 1e-6), low * 1e12))
    else:
        low = draw(FINITE)
        high = draw(st.floats(low + 1e-6, low + 1e7))
    step = draw(st.none() | st.floats((high - low) / 1000, high - low))
    return Float(min=low, max=high, log=log, step=step, when=when)


@st.composite
def integers(draw: st.DrawFn, when: When = ()) -> Integer:
    log = draw(st.booleans())
    low = draw(st.integers(1 if log else -(10**6), 10**6))
    high = draw(st.integers(low + 1, low + 10 ** draw(st.integers(1, 15))))
    return Integer(min=low, max=high, log=log, step=draw(st.integers(1, 1000)), when=when)


CHOICES = st.lists(
    st.text(max_size=3) | st.integers(-5, 5) | st.booleans() | FINITE,
    min_size=1,
    max_size=6,
    unique_by=lambda value: (isinstance(value, bool), value),
)


def choices(when: When = ()) -> st.SearchStrategy[Choice]:
    return CHOICES.map(lambda c: Choice(kind="categorical", choices=tuple(c), when=when))


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    first = draw(choices())
    when = (("first", first.choices[: draw(st.integers(1, len(first.choices)))]),)
    parameters: dict[str, Parameter] = {
        "first": first,
        "flag": Choice(kind="boolean", choices=(False, True)),
        "free": draw(floats()),
        "whole": draw(integers()),
        "inner": draw(floats(when) | integers(when) | choices(when)),
        "switch": Choice(kind="boolean", choices=(False, True), when=when),
        "deep": draw(integers((("switch", (True,)),))),
    }
    names = draw(st.permutations(list(parameters)))
    return Space(parameters={name: parameters[name] for name in names})


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


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


def test_log_scales_are_drawn_evenly():
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


def test_a_small_log_range_does_not_collapse():
    parameter = Float(min=1e-5, max=1e-2, log=True)
    assert len({parameter.sample(rng(seed)) for seed in range(50)}) > 45


def test_a_parameter_with_one_value_lies_in_the_middle():
    for parameter in (Float(min=2, max=2), Float(min=2, max=2, log=True), Integer(min=2, max=2)):
        assert parameter.n_values == 1
        assert parameter.value_at(0) == 2
        assert parameter.to_unit(2) == 0.5
        assert parameter.canonical(7) == parameter.sample(rng()) == parameter.from_unit(0.1) == 2


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


@pytest.mark.parametrize(
    "make",
    [
        lambda: Float(min=1, max=0),
        lambda: Float(min=-1e308, max=1e308),
        lambda: Float(min=0, max=1, log=True),
        lambda: Float(min=0, max=1, step=0.0),
        lambda: Float(min=0, max=1, step=1e-300),
        lambda: Integer(min=1, max=0),
        lambda: Integer(min=0, max=1, log=True),
        lambda: Integer(min=0, max=1, step=0),
        lambda: Choice(kind="categorical", choices=()),
        lambda: Choice(kind="categorical", choices=(1, 1.0)),
        lambda: Choice(kind="categorical", choices=(1,), names=("a",)),
        lambda: Choice(kind="text", choices=("a",)),
    ],
    ids=range(12),
)
def test_impossible_parameters_are_refused(make):
    with pytest.raises(ValueError, match=r"must|has|needs|only"):
        make()


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


def test_candidates_know_their_origin():
    space = Space(parameters={"n": Integer(min=0, max=5)})
    candidate = space.candidate({"n": 9}, "mutation", ("a",))
    assert candidate.params == {"n": 5}
    assert (candidate.origin, candidate.parent_ids) == ("mutation", ("a",))
    assert candidate.candidate_id == space.candidate_id({"n": 5})
    with pytest.raises(ValueError, match="`n` is active but has no value"):
        space.candidate({})
    with pytest.raises(ValueError, match="`n` must be a finite number"):
        space.candidate({"n": "x"})


# -- spaces ------------------------------------------------------------------------------------


@EXAMPLES
@given(spaces(), st.integers(0, 2**32))
def test_decode_reverts_encode(space, seed):
    g = rng(seed)
    for _ in range(5):
        point = space.sample(g)
        place = space.encode(point)
        assert place.shape == (space.n_dims,)
        assert np.all((place >= 0) & (place <= 1))
        assert space.decode(place) == point
        assert space.canonical(point) == point
        assert space.validate(point) == []
        assert list(point) == [name for name in space.parameters if name in point]


@EXAMPLES
@given(spaces(), st.integers(0, 2**32))
def test_every_place_of_the_cube_is_a_point(space, seed):
    place = rng(seed).random(space.n_dims)
    point = space.decode(place)
    assert space.validate(point) == []
    assert space.decode(space.encode(point)) == point
    for name in space.parameters:
        assert (name in point) == space.is_active(name, point)


def test_decode_checks_the_shape():
    space = Space(parameters={"n": Integer(min=0, max=5)})
    with pytest.raises(ValueError, match=r"must have shape \(n_dims,\)=\(1,\)"):
        space.decode(np.zeros(2))


SMALL = {
    "model": {"type": "categorical", "choices": ["small", "large"]},
    "top_k": {"type": "int", "min": 1, "max": 3, "when": {"model": ["large"]}},
    "n": {"type": "int", "min": 1, "max": 3},
}


def test_inactive_parameters_are_dropped():
    space = from_config(SMALL)
    assert space.canonical({"model": "small", "top_k": 2, "n": 1}) == {"model": "small", "n": 1}
    same = {space.candidate_id({"model": "small", "top_k": k, "n": 1}) for k in (1, 2, 3)}
    assert len(same) == 1
    assert space.encode({"model": "small", "n": 1})[1] == 0.5


def test_finite_spaces_can_be_counted_and_walked():
    space = from_config(SMALL, ["top_k <= n"])
    points = list(space.points())
    assert space.size() == len(points) == 3 + 6
    assert len({space.candidate_id(point) for point in points}) == 9
    assert all(space.satisfied(point) for point in points)
    plain = from_config({"a": {"type": "boolean"}, "n": {"type": "int", "min": 1, "max": 50}})
    assert plain.size() == 100
    assert len(list(plain.points())) == 100
    assert from_config({"x": {"type": "float", "min": 0, "max": 1}}).size() is None
    big = {f"n{i}": {"type": "int", "min": 1, "max": 1000} for i in range(3)}
    assert from_config(big).size() is None
    assert from_config(big, ["n0 < n1"]).size() is None
    with pytest.raises(ValueError, match="too many"):
        next(from_config(big).points())


def test_constraints_hold_for_all_samples():
    space = from_config(
        {
            "low": {"type": "int", "min": 1, "max": 100},
            "high": {"type": "int", "min": 1, "max": 100},
        },
        ["low <= high", "high - low < 10"],
    )
    g = rng()
    for _ in range(100):
        point = space.sample(g)
        low, high = int(point["low"]), int(point["high"])
        assert low <= high < low + 10


def test_rare_points_of_a_finite_space_are_found():
    space = from_config(
        {n: {"type": "int", "min": 0, "max": 99} for n in ("a", "b")}, ["a * 1000 + b == 7023"]
    )
    for seed in range(3):
        assert space.sample(rng(seed)) == {"a": 7, "b": 23}


def test_a_space_without_points_says_so():
    for space in (
        from_config({"x": {"type": "float", "min": 0, "max": 1}}, ["x > 2"]),
        from_config({"n": {"type": "int", "min": 0, "max": 1}}, ["n > 2"]),
    ):
        with pytest.raises(ConfigurationError, match="must leave points to search"):
            space.sample(rng())


def test_defaults_are_the_baseline():
    space = from_config(
        {
            "model": {"type": "categorical", "choices": ["a", "b"], "default": "a"},
            "x": {"type": "float", "min": 0, "max": 1, "default": 0.123456},
            "t": {"type": "float", "min": 0, "max": 1, "when": {"model": ["b"]}},
        }
    )
    assert space.baseline() == {"model": "a", "x": 0.123456}
    assert from_config(SMALL).baseline() is None
    partial = Space(
        parameters={
            "n": Integer(min=0, max=4, default=1),
            "c": Choice(kind="categorical", choices=("p", "q")),
            "m": Integer(min=0, max=4),
        }
    )
    assert partial.baseline() == {"n": 1, "c": "p", "m": 2}


def test_defaults_have_to_keep_the_constraints():
    parameters = {
        "a": {"type": "int", "min": 0, "max": 9, "default": 5},
        "b": {"type": "int", "min": 0, "max": 9, "default": 1},
    }
    with pytest.raises(ConfigurationError, match="must hold for the defaults"):
        from_config(parameters, ["b <= a", "a <= b"])
    assert from_config(parameters, ["b <= a"]).baseline() == {"a": 5, "b": 1}


TEXTS = {"prompts/a.md": "You are A.", "prompts/b.md": "You are B.", "x/b.md": "Other B."}


def test_the_value_of_a_text_is_the_text():
    space = from_config(
        {
            "system": {
                "type": "text",
                "variants": ["prompts/a.md", "prompts/b.md", "x/b.md", "Say it plainly."],
                "default": "prompts/b.md",
            },
            "k": {"type": "int", "min": 1, "max": 4, "when": {"system": ["prompts/a.md"]}},
        },
        ['system != "x/b.md" or system == "x/b.md"'],
        TEXTS,
    )
    assert space.baseline() == {"system": "You are B."}
    assert space.canonical({"system": "prompts/a.md", "k": 2})["system"] == "You are A."
    assert space.is_active("k", {"system": "You are A."})
    assert space.spell({"system": "You are B."}) == {"system": "prompts/b.md"}
    system = space.parameters["system"]
    shown = [space.label({"system": system.value_at(i)}) for i in range(4)]
    assert shown == ["system=a", "system=prompts/b.md", "system=x/b.md", "system=#4"]
    description: Any = space.to_json()
    assert "You are" not in str(description)
    assert description["parameters"]["system"]["default"] == "prompts/b.md"
    assert description["parameters"]["k"]["when"] == {"system": ["prompts/a.md"]}


def test_constraints_see_texts_as_the_configuration_spells_them():
    space = Space(
        parameters={
            "system": Choice(kind="text", choices=("long", "short"), names=("l.md", "s.md")),
            "n": Integer(min=1, max=9),
        },
        constraints=(parse('not (system == "s.md" and n > 3)'),),
    )
    assert not space.satisfied({"system": "short", "n": 4})
    assert space.satisfied({"system": "long", "n": 4})


def test_two_variants_with_one_text_are_refused():
    with pytest.raises(ConfigurationError, match="same value"):
        from_config(
            {"system": {"type": "text", "variants": ["a.md", "b.md"]}},
            texts={"a.md": "same", "b.md": "same"},
        )


def test_everything_wrong_with_a_space_is_said_at_once():
    with pytest.raises(ConfigurationError) as caught:
        from_config(
            {"a": {"type": "float", "min": 0, "max": 1, "log": True}}, ["a <", "a ** 2 < 1"]
        )
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigurationError) as caught:
        from_config(
            {
                "a": {"type": "boolean", "when": {"b": [True], "zz": [1]}},
                "b": {"type": "boolean", "when": {"a": [3]}},
            },
            ["nothing < 1"],
        )
    text = str(caught.value)
    assert "parameters.a.when.zz` must name a parameter" in text
    assert "parameters.b.when.a` must be one of false, true" in text
    assert "constraints[0]` must use parameters of the space, not `nothing`" in text


def test_circles_of_conditions_are_refused():
    with pytest.raises(ConfigurationError, match="itself"):
        from_config(
            {
                "a": {"type": "boolean", "when": {"b": [True]}},
                "b": {"type": "boolean", "when": {"a": [True]}},
            }
        )


def test_points_from_outside_are_checked():
    space = from_config(SMALL, ["top_k <= n"])
    assert space.validate({"model": "large", "top_k": 1, "n": 1}) == []
    rules = {p.key: p.rule for p in space.validate({"model": "small", "top_k": 2, "m": 1})}
    assert rules == {
        "m": "must be a parameter of the space",
        "top_k": "must be absent here, for its conditions do not hold",
        "n": "must have a value",
    }
    near = space.validate({"modle": "small", "n": 1, "zzzz": 0})
    assert [p.fix for p in near[:2]] == ["Did you mean `model`?", "Remove it."]
    (wrong,) = space.validate({"model": "small", "n": 7})
    assert str(wrong) == "`n` must lie in [1, 3], but got 7. Write a value that it can take."
    (broken,) = space.validate({"model": "large", "top_k": 3, "n": 1})
    assert broken.fix == "Satisfy `top_k <= n`."
    assert broken.value == "model=large top_k=3 n=1"


def test_labels_are_short():
    space = Space(
        parameters={
            "only": Integer(min=1, max=1),
            "model": Choice(kind="categorical", choices=("small", "a name that is much too long")),
            "temperature": Float(min=0, max=2),
            "stream": Choice(kind="boolean", choices=(False, True)),
            "n": Integer(min=1, max=9),
        }
    )
    point: dict[str, ParamValue] = {
        "only": 1,
        "model": "small",
        "temperature": 0.70000001,
        "stream": True,
        "n": 3,
    }
    assert space.label(point) == "model=small temperature=0.7 stream=true"
    assert space.label(point, n=4).endswith("n=3")
    long = space.label({"model": "a name that is much too long"}, n=1)
    assert long == "model=a name that is much too…"


def test_inline_texts_without_a_stem_keep_their_name():
    hidden = Choice(kind="text", choices=("one", "two"), names=(".md", "dir/two.md"))
    assert [hidden.show("one"), hidden.show("two")] == [".md", "two"]


def test_spaces_describe_themselves_and_can_be_pickled():
    space = from_config(
        {**SMALL, "x": {"type": "float", "min": 0, "max": 1}, "b": {"type": "boolean"}},
        ["top_k <= n"],
    )
    description: Any = space.to_json()
    assert description["constraints"] == ["top_k <= n"]
    assert description["parameters"]["top_k"]["when"] == {"model": ["large"]}
    copy = pickle.loads(pickle.dumps(space))  # noqa: S301
    assert copy == space
    assert copy.sample(rng(5)) == space.sample(rng(5))


def test_missing_values_are_drawn():
    space = from_config(SMALL)
    point = space.complete({"model": "large", "n": 2}, rng())
    assert point["model"] == "large"
    assert point["top_k"] in (1, 2, 3)
    assert space.complete({"model": "small", "n": 2}, rng()) == {"model": "small", "n": 2}
