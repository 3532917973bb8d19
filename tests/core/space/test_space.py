"""The search space: conditions, constraints, encoding and what is wrong with one."""

import itertools
import pickle
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, strategies as st

from convergence_core.config.expressions import parse
from convergence_core.errors import ConfigurationError
from convergence_core.records import Params, ParamValue
from convergence_core.space import Choice, Float, Integer, Space
from tests.core.space.strategies import EXAMPLES, from_config, rng, spaces
from tests.support.random_spaces import points, random_space


@EXAMPLES
@given(spaces(), st.integers(0, 2**32))
def test_a_drawn_point_is_canonical(space, seed):
    g = rng(seed)
    for _ in range(5):
        point = space.sample(g)
        assert space.canonical(point) == point
        assert space.validate(point) == []
        assert list(point) == [name for name in space.parameters if name in point]
        for name in space.parameters:
            assert (name in point) == space.is_active(name, point)


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


def test_points_from_outside_are_checked():
    space = from_config(SMALL, ["top_k <= n"])
    assert space.validate({"model": "large", "top_k": 1, "n": 1}) == []
    rules = {p.key: p.rule for p in space.validate({"model": "small", "top_k": 2, "m": 1})}
    assert rules == {
        "m": "must be a parameter of the space",
        "top_k": "must be absent, because its conditions do not hold",
        "n": "must have a value",
    }
    near = space.validate({"modle": "small", "n": 1, "zzzz": 0})
    assert [p.fix for p in near[:2]] == ["Did you mean `model`?", "Remove it."]
    (wrong,) = space.validate({"model": "small", "n": 7})
    assert str(wrong) == "`n` must lie in [1, 3], but got 7. Write a value that it can take."
    (broken,) = space.validate({"model": "large", "top_k": 3, "n": 1})
    assert broken.fix == "Satisfy `top_k <= n`."
    assert broken.value == "model=large top_k=3 n=1"


def test_labels_name_all_that_can_vary_or_say_how_many_more():
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
        "temperature": 0.7,
        "stream": True,
        "n": 3,
    }
    assert space.label(point) == "model=small temperature=0.7 stream=true n=3"
    assert space.label(point, n=3) == "model=small temperature=0.7 stream=true (+1 more)"
    assert space.label(point, n=4).endswith("n=3")


def test_no_two_long_choices_are_shown_alike():
    begin = "a name that is longer than a label shows, and "
    long = Choice(kind="categorical", choices=(begin + "one", begin + "two", "short"))
    shown = [long.show(choice) for choice in long.choices]
    assert len(set(shown)) == 3
    assert shown[1].endswith("…#2")
    space = Space(parameters={"model": long})
    points: list[dict[str, ParamValue]] = [{"model": choice} for choice in long.choices]
    assert space.named_values(points) == {
        "model": {shown[0]: begin + "one", shown[1]: begin + "two"}
    }


def test_no_two_numbers_are_named_alike():
    space = Space(parameters={"limit": Float(min=100_000.0, max=100_001.0)})
    assert space.label({"limit": 100_000.25}) == "limit=100000.25"
    labels = {space.label(space.canonical({"limit": 100_000.0 + i / 1000})) for i in range(1000)}
    assert len(labels) == 1000


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


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("has_defaults", [True, False])
def test_no_two_candidates_have_one_name(seed: int, has_defaults: bool):
    rng = np.random.default_rng(seed)
    space = random_space(seed)
    if has_defaults:
        default = space.sample(rng)
        parameters = {
            name: replace(cast("Any", parameter), default=default.get(name))
            for name, parameter in space.parameters.items()
        }
        space = replace(space, parameters=parameters)
        assert space.name(space.candidate(default)) == "default"
    candidates = [space.candidate(point) for point in points(space, 200, rng)]
    names = [space.name(candidate) for candidate in candidates]
    assert len(set(names)) == len(candidates)
    short = space.names({one.candidate_id: one.params for one in candidates})
    assert len(set(short.values())) == len(candidates)
    assert max(map(len, short.values())) <= 40


def test_a_short_name_says_what_differs_among_the_leaders():
    texts = ("Name the mood.", "Name the mood of this message in one word, and nothing else.")
    space = Space(
        parameters={
            "temperature": Float(min=0.0, max=1.0, default=0.5),
            "model": Choice(kind="categorical", choices=("gpt-4o", "mini"), default="mini"),
            "prompt": Choice(kind="text", choices=texts, names=("a/plain.txt", texts[1])),
            "n": Integer(min=1, max=9, default=3),
            "stream": Choice(kind="boolean", choices=(False, True), default=False),
        }
    )
    space = replace(
        space, parameters={**space.parameters, "prompt": replace(space.parameters["prompt"], default=texts[0])}  # type: ignore[arg-type]
    )  # fmt: skip
    given: Params = {
        "temperature": 0.5,
        "model": "mini",
        "prompt": texts[0],
        "n": 3,
        "stream": False,
    }
    points = {
        "a": {**given, "model": "gpt-4o", "prompt": texts[1], "temperature": 0.3},
        "b": given,
        "c": {**given, "model": "gpt-4o", "prompt": texts[1], "temperature": 0.3, "stream": True},
        "d": {**given, "model": "gpt-4o", "prompt": texts[1], "temperature": 0.3001, "n": 4},
    }
    assert space.names(points) == {
        "a": "gpt-4o · prompt 2 · t 0.3 · n 3",
        "b": "default",
        "c": "gpt-4o · prompt 2 · t 0.3 · n 3 · stream",
        "d": "gpt-4o · prompt 2 · t 0.3 · n 4",
    }
    only = space.names({"e": {**given, "prompt": texts[1]}}, known={"f": "default"})
    assert only == {"e": "prompt 2: Name the mood of this message…"}


def test_a_prompt_is_named_by_what_it_adds_to_earlier_ones():
    default = "Tell me what you think of this message."
    longer = f"{default} Answer in one word."
    longest = f"{longer} Explain nothing."
    prompt = Choice(
        kind="text",
        choices=(default, longer, longest),
        names=("a.txt", longer, longest),
        default=default,
    )
    space = Space(parameters={"prompt": prompt})
    assert space.names({"a": {"prompt": longer}, "b": {"prompt": longest}}) == {
        "a": "prompt 2: … Answer in one word.",
        "b": "prompt 3: … Explain nothing.",
    }


def test_a_name_is_what_differs_from_the_defaults():
    space = Space(
        parameters={
            "model": Choice(kind="categorical", choices=("small", "large"), default="small"),
            "t": Float(min=0.0, max=1.0, default=0.5),
            "n": Integer(min=1, max=9, default=3),
        }
    )
    candidate = space.candidate({"model": "large", "t": 0.5, "n": 4})
    assert space.name(candidate) == "model=large n=4"
    assert space.name(candidate, n=1) == "model=large (+1 more)"
    assert space.name(space.candidate({"model": "small", "t": 0.5, "n": 3})) == "default"


def shares(n: int, rule: str, **more: Any) -> Space:
    unit = {"type": "float", "min": 0, "max": 1}
    return from_config({f"w{i}": unit for i in range(n)} | more, [rule])


def total(n: int) -> str:
    return " + ".join(f"w{i}" for i in range(n))


@pytest.mark.parametrize(
    "space",
    [
        shares(2, "w0 + w1 < 0.02"),
        shares(8, f"{total(8)} <= 1"),
        pytest.param(shares(12, f"{total(12)} >= 11"), marks=pytest.mark.slow),
        shares(4, "w0 < 0.05 and w1 > 0.95 and w2 < 0.05 and w3 > 0.95"),
        from_config(
            {
                "a": {"type": "float", "min": 1e-6, "max": 1, "log": True},
                "b": {"type": "int", "min": 1, "max": 100_000, "log": True},
                "c": {"type": "float", "min": 0, "max": 1, "step": 0.01},
                "d": {"type": "int", "min": 0, "max": 1000},
                "e": {"type": "categorical", "choices": ["x", "y", "z"]},
                "f": {"type": "float", "min": 0, "max": 1, "when": {"e": ["z"]}},
                "g": {"type": "float", "min": 0, "max": 1},
            },
            ["a * b < 1e-4", "c + g < 0.1", "d < 40", "f < 0.5"],
        ),
    ],
    ids=["corner", "simplex", "upper", "mixed", "kinds"],
)
def test_rare_points_of_a_space_too_large_to_count_are_found_by_few_draws(space, monkeypatch):
    checked = itertools.count()
    satisfied = Space.satisfied
    monkeypatch.setattr(
        Space, "satisfied", lambda self, p: next(checked) >= 0 and satisfied(self, p)
    )
    g = rng()
    drawn = [space.sample(g) for _ in range(20)]
    assert next(checked) < 2_500 + 20 * 6 * 10 * len(space.parameters)  # ten a step
    assert all(space.validate(point) == [] for point in drawn)
    for name, parameter in space.parameters.items():
        values = {point[name] for point in drawn if name in point}
        assert len(values) >= min(3, parameter.n_values or 3), name
    assert [space.sample(rng(7)) for _ in range(2)] == [space.sample(rng(7))] * 2


@pytest.mark.slow
def test_draws_of_a_simplex_are_uniform():
    """Of a uniform point under the simplex each share has mean 1 / (n + 1) and is Beta(1, n)."""
    n, n_draws = 6, 400
    space = shares(n, f"{total(n)} <= 1")
    g = rng(1)
    drawn = np.array([[float(v) for v in space.sample(g).values()] for _ in range(n_draws)])
    error = np.sqrt(n / ((n + 1) ** 2 * (n + 2)) / n_draws)  # of the mean of a Beta(1, n)
    assert np.abs(drawn.mean(axis=0) - 1 / (n + 1)).max() < 3.5 * error
    assert np.mean(drawn.max(axis=1) < 0.5) == pytest.approx(1 - n * 0.5**n, abs=0.06)
    # The sum is Beta(n, 1): its power of n is uniform.
    counts, _ = np.histogram(drawn.sum(axis=1) ** n, bins=8, range=(0, 1))
    assert ((counts - n_draws / 8) ** 2 / (n_draws / 8)).sum() < 24.3  # 7 degrees, p = .001


def test_a_chain_weighs_conditions_like_independent_draws():
    inner = {"type": "float", "min": 0, "max": 1, "when": {"kind": ["b"]}}
    kind = {"type": "categorical", "choices": ["a", "b"]}
    space = shares(2, "w0 + w1 < 0.02", kind=kind, inner=inner)
    g = rng(2)
    drawn = [space.sample(g) for _ in range(150)]
    assert np.mean([point["kind"] == "b" for point in drawn]) == pytest.approx(0.5, abs=0.12)
    inside = [float(point["inner"]) for point in drawn if "inner" in point]
    assert np.mean(inside) == pytest.approx(0.5, abs=0.1)


def test_ample_spaces_are_drawn_as_ever_and_empty_ones_are_refused():
    """Where draws often keep the constraints, a point is the first of independent draws."""
    space, plain = shares(3, f"{total(3)} <= 1"), shares(3, "w0 >= 0")
    g, h = rng(3), rng(3)
    for _ in range(20):
        point = space.sample(g)
        assert point == next(
            p for p in iter(lambda: plain.complete({}, h), None) if space.satisfied(p)
        )
    for rule in ("w0 + w1 > 2.5", "w0 < 0.3 and w0 > 0.6"):
        with pytest.raises(ConfigurationError, match="none was found"):
            shares(3, rule).sample(rng())


def test_an_equation_of_numbers_without_steps_is_refused():
    """Corners satisfy it, and nothing else would ever be drawn."""
    names = ("a", "b", "c")
    free = {name: Float(min=0.0, max=1.0) for name in names}
    equation = parse("a + b + c == 1")
    with pytest.raises(ConfigurationError, match=r"more than single values to `a`.*a `step`"):
        Space(parameters=free, constraints=(equation,)).sample(np.random.default_rng(0))
    stepped = {name: Float(min=0.0, max=1.0, step=0.1) for name in names}
    space = Space(parameters=stepped, constraints=(equation,))
    assert space.satisfied(space.sample(np.random.default_rng(0)))
