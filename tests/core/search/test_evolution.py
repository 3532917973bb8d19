"""Operators of evolution: whatever they return is a point of the space."""

import math
from collections import Counter
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from convergence_core.config.expressions import parse
from convergence_core.records import Candidate, Params, ParamValue
from convergence_core.search.evolution import operators
from convergence_core.search.evolution.operators import STEP, Breeder, crossover, fresh, tournament
from convergence_core.space import Choice, Float, Integer, Parameter, Space

EXAMPLES = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def mutate(
    space: Space, params: Params, g: np.random.Generator, *, rate: float, step: float = STEP
) -> dict[str, ParamValue]:
    """The product's mutation, with steps of another size."""
    with mock.patch.object(operators, "STEP", step):
        return operators.mutate(space, params, g, rate)


def space_of(*constraints: str, **parameters: Parameter) -> Space:
    return Space(parameters=parameters, constraints=tuple(parse(text) for text in constraints))


RICH = space_of(
    "low <= high",
    'not (model == "small" and temperature > 1)',
    model=Choice(kind="categorical", choices=("small", "large", 1, True)),
    temperature=Float(min=0, max=1.5),
    rate=Float(min=1e-5, max=1 / 3, log=True),
    top_p=Float(min=0.5, max=1.0, step=0.05, when=(("model", ("large", True)),)),
    low=Integer(min=1, max=50),
    high=Integer(min=1, max=5000, log=True),
    stream=Choice(kind="boolean", choices=(False, True)),
    chunk=Integer(min=16, max=256, step=16, when=(("stream", (True,)), ("model", ("large",)))),
    system=Choice(kind="text", choices=("Be kind.", "Be brief."), names=("kind.md", "brief.md")),
    fixed=Integer(min=3, max=3),
)


def is_point(space: Space, params: Params) -> bool:
    return (
        space.validate(params) == []
        and space.canonical(params) == params
        and list(params) == [name for name in space.parameters if name in params]
    )


# -- mutation ----------------------------------------------------------------------------------


@EXAMPLES
@given(SEEDS, st.floats(0, 1), st.floats(1e-6, 10))
def test_a_mutant_is_another_point(seed, rate, step):
    g = rng(seed)
    parent = RICH.sample(g)
    before = dict(parent)
    for _ in range(10):
        child = mutate(RICH, parent, g, rate=rate, step=step)
        assert is_point(RICH, child)
        assert RICH.candidate_id(child) != RICH.candidate_id(parent)
    assert parent == before


def test_a_rate_of_zero_changes_one_parameter():
    space = space_of(**{name: Float(min=0, max=1) for name in "abcd"})
    g = rng()
    changed = Counter[str]()
    for _ in range(400):
        parent = space.sample(g)
        child = mutate(space, parent, g, rate=0)
        names = [name for name in "abcd" if child[name] != parent[name]]
        assert len(names) == 1
        changed.update(names)
    assert stats.chisquare(list(changed.values())).pvalue > 1e-3, changed


def test_the_rate_is_the_probability_of_each_parameter():
    space = space_of(**{f"p{i}": Float(min=0, max=1) for i in range(20)})
    parent = dict.fromkeys(space.parameters, 0.5)
    g = rng(1)
    n_changed = sum(
        value != 0.5 for _ in range(200) for value in mutate(space, parent, g, rate=0.3).values()
    )
    assert stats.binomtest(n_changed, 4000, 0.3).pvalue > 1e-3, n_changed
    all_changed = mutate(space, parent, g, rate=1)
    assert 0.5 not in all_changed.values()


@pytest.mark.parametrize(
    ("parameter", "start", "to_scale"),
    [
        (Float(min=-50, max=50), 0.0, lambda x: x / 100),
        (Float(min=1e-6, max=1e6, log=True), 1.0, lambda x: math.log10(x) / 12),
        (Integer(min=-5000, max=5000), 0, lambda x: x / 10_000),
    ],
    ids=["float", "log", "int"],
)
def test_numbers_move_by_a_normal_step_on_their_scale(parameter, start, to_scale):
    space = space_of(x=parameter)
    g = rng(2)
    steps = [to_scale(mutate(space, {"x": start}, g, rate=1)["x"]) for _ in range(1000)]
    assert stats.kstest(np.array(steps) / 0.1, "norm").pvalue > 1e-3
    assert np.std([to_scale(mutate(space, {"x": start}, g, rate=1, step=0.01)["x"])
                   for _ in range(200)]) == pytest.approx(0.01, rel=0.2)  # fmt: skip


@pytest.mark.parametrize(
    ("parameter", "value", "reached"),
    [
        (Integer(min=0, max=2), 1, {0, 2}),
        (Integer(min=0, max=2), 0, {1}),
        (Integer(min=0, max=2), 2, {1}),
        (Integer(min=1, max=4, log=True), 4, {3}),
        (Integer(min=0, max=30, step=10), 10, {0, 20}),
        (Float(min=0, max=1, step=0.25), 0.5, {0.25, 0.75}),
        (Float(min=0.1, max=0.3, step=0.1), 0.3, {0.2}),
    ],
)
def test_a_number_with_coarse_steps_moves_to_a_neighbour(parameter, value, reached):
    space = space_of(x=parameter)
    g = rng(4)
    assert {mutate(space, {"x": value}, g, rate=0, step=1e-6)["x"] for _ in range(40)} == reached


def test_a_step_below_the_resolution_of_a_float_draws_it_anew():
    space = space_of(x=Float(min=0, max=1))
    child = mutate(space, {"x": 0.5}, rng(), rate=1, step=1e-12)
    assert child["x"] != 0.5


@pytest.mark.parametrize("log", [False, True])
def test_bounds_are_never_passed_and_do_not_attract(log):
    low, high = 0.1 + 0.2, 2 / 3
    space = space_of(x=Float(min=low, max=high, log=log))
    g = rng(5)
    seen = []
    x: dict[str, ParamValue] = {"x": high}
    for _ in range(500):
        x = mutate(space, x, g, rate=1, step=2.5)
        assert low <= float(x["x"]) <= high
        seen.append(space.parameters["x"].to_unit(x["x"]))
    assert stats.kstest(seen, "uniform").pvalue > 1e-3


def test_conditions_follow_their_parameter():
    space = space_of(
        model=Choice(kind="categorical", choices=("small", "large")),
        top_k=Integer(min=1, max=9, when=(("model", ("large",)),)),
    )
    g = rng(6)
    grown = mutate(space, {"model": "small"}, g, rate=0)
    assert grown["model"] == "large"
    assert grown["top_k"] in range(1, 10)
    shrunk = [mutate(space, {"model": "large", "top_k": 4}, g, rate=0) for _ in range(40)]
    assert {"model": "small"} in shrunk


def test_constraints_that_tie_parameters_together_do_not_stop_mutation():
    space = space_of("a + b == 4", a=Integer(min=0, max=4), b=Integer(min=0, max=4))
    g = rng(7)
    for _ in range(50):
        parent = space.sample(g)
        child = mutate(space, parent, g, rate=0)
        assert child != parent
        assert int(child["a"]) + int(child["b"]) == 4


def test_the_only_other_point_is_found():
    names = "abcdefgh"
    far = " and ".join(f"{name} == 3" for name in names[:4])
    space = space_of(
        f"(a + b + c + d + e + f == 0) or ({far} and e == 1 and f == 2)",
        **{name: Integer(min=0, max=3) for name in names[:6]},
    )
    zero = dict.fromkeys(names[:6], 0)
    other = {"a": 3, "b": 3, "c": 3, "d": 3, "e": 1, "f": 2}
    assert space.size() == 2
    assert mutate(space, zero, rng(), rate=0, step=1e-3) == other


def test_where_points_cannot_be_walked_one_is_drawn():
    space = space_of("x > 0.9 and y > 0.9 or x + y == 0", x=Float(min=0, max=1), y=Float(min=0, max=1))  # fmt: skip
    for seed in range(5):
        child = mutate(space, {"x": 0.0, "y": 0.0}, rng(seed), rate=0, step=1e-4)
        assert float(child["x"]) > 0.9


# -- crossover ---------------------------------------------------------------------------------


@EXAMPLES
@given(SEEDS)
def test_a_child_of_two_is_another_point(seed):
    g = rng(seed)
    a, b = RICH.sample(g), RICH.sample(g)
    before = (dict(a), dict(b))
    child = crossover(RICH, a, b, g)
    assert is_point(RICH, child)
    assert RICH.candidate_id(child) not in (RICH.candidate_id(a), RICH.candidate_id(b))
    assert (a, b) == before


def test_each_parameter_comes_from_either_parent_by_a_fair_coin():
    space = space_of(**{f"p{i}": Integer(min=0, max=9) for i in range(20)})
    a, b = dict.fromkeys(space.parameters, 2), dict.fromkeys(space.parameters, 7)
    g = rng(8)
    values = [v for _ in range(100) for v in crossover(space, a, b, g).values()]
    assert set(values) == {2, 7}
    assert stats.binomtest(values.count(2), 2000, 0.5).pvalue > 1e-3, values.count(2)


def test_a_parameter_that_only_the_mixture_needs_is_drawn():
    space = space_of(
        a=Integer(min=0, max=1),
        b=Integer(min=0, max=1),
        both=Integer(min=5, max=9, when=(("a", (1,)), ("b", (1,)))),
    )
    g = rng(9)
    children = [crossover(space, {"a": 1, "b": 0}, {"a": 0, "b": 1}, g) for _ in range(60)]
    assert {"a": 0, "b": 0} in children
    assert {child["both"] for child in children if "both" in child} == set(range(5, 10))
    assert all(("both" in child) == (child["a"] == child["b"] == 1) for child in children)


def test_a_parameter_that_one_parent_has_is_handed_on():
    space = space_of(
        model=Choice(kind="categorical", choices=("small", "large")),
        n=Integer(min=0, max=9),
        top_k=Integer(min=0, max=10**6, when=(("model", ("large",)),)),
    )
    a: dict[str, ParamValue] = {"model": "small", "n": 1}
    b: dict[str, ParamValue] = {"model": "large", "n": 2, "top_k": 777}
    children = [crossover(space, a, b, rng(seed)) for seed in range(20)]
    assert {repr(child) for child in children} == {
        "{'model': 'small', 'n': 2}",
        "{'model': 'large', 'n': 1, 'top_k': 777}",
    }


def test_parents_whose_mixtures_are_themselves_are_mutated():
    space = space_of(a=Integer(min=0, max=9), b=Integer(min=0, max=9))
    a, b = {"a": 1, "b": 2}, {"a": 1, "b": 7}
    for seed in range(20):
        assert crossover(space, a, b, rng(seed)) not in (a, b)
        assert crossover(space, a, a, rng(seed)) != a


def test_mixtures_that_break_a_constraint_are_not_children():
    space = space_of("a == b", a=Integer(min=0, max=9), b=Integer(min=0, max=9))
    for seed in range(10):
        child = crossover(space, {"a": 1, "b": 1}, {"a": 2, "b": 2}, rng(seed))
        assert child["a"] == child["b"] not in (1, 2)


def test_one_is_not_true():
    space = space_of(c=Choice(kind="categorical", choices=(1, True)), n=Integer(min=0, max=1))
    children = {
        repr(crossover(space, {"c": 1, "n": 0}, {"c": True, "n": 1}, rng(seed)))
        for seed in range(20)
    }
    assert children == {"{'c': 1, 'n': 1}", "{'c': True, 'n': 0}"}
    mutants = {repr(mutate(space, {"c": 1, "n": 0}, rng(seed), rate=0)) for seed in range(40)}
    assert mutants == {"{'c': True, 'n': 0}", "{'c': 1, 'n': 1}"}


# -- selection ---------------------------------------------------------------------------------


def test_the_best_of_the_drawn_wins():
    g = rng(11)
    wins = Counter(tournament(4, 2, g) for _ in range(1200))
    assert set(wins) == {0, 1, 2}
    observed = [wins[rank] for rank in range(3)]
    assert stats.chisquare(observed, [600, 400, 200]).pvalue > 1e-3, wins
    assert {tournament(4, 99, g) for _ in range(9)} == {0}
    assert {tournament(4, 1, g) for _ in range(60)} == {0, 1, 2, 3}


# -- breeding ----------------------------------------------------------------------------------


def family(space: Space, n: int, seed: int = 0) -> list[Candidate]:
    return fresh(space, rng(seed), set(), n)


@EXAMPLES
@given(SEEDS, st.floats(0, 1), st.floats(0, 1))
def test_children_are_new_points_that_know_their_parents(seed, rate, crossover_rate):
    parents = family(RICH, 8, seed)
    ids = {parent.candidate_id for parent in parents}
    breeder = Breeder(space=RICH, mutation_rate=rate, crossover_rate=crossover_rate)
    brood = breeder.brood(parents, rng(seed), ids, 6)
    assert len(brood) == len({child.candidate_id for child in brood}) == 6
    for child in brood:
        assert is_point(RICH, child.params)
        assert child.candidate_id == RICH.candidate_id(child.params)
        assert child.candidate_id not in ids
        assert len(set(child.parent_ids)) == {"crossover": 2, "mutation": 1}[child.origin]
        assert ids.issuperset(child.parent_ids)


def test_the_crossover_rate_is_the_share_of_children_of_two():
    parents = family(RICH, 10)
    g = rng(10)
    breeder = Breeder(space=RICH)
    n_of_two = sum(breeder.child(parents, g).origin == "crossover" for _ in range(400))
    # Of ten parents the better of two wins: p falls from 9/45 to 0, and sum p^2 pairs are alike.
    n_alike = sum((rank / 45) ** 2 for rank in range(10))
    assert stats.binomtest(n_of_two, 400, 0.7 * (1 - n_alike)).pvalue > 1e-3, n_of_two
    never = Breeder(space=RICH, crossover_rate=0.0)
    assert {never.child(parents, g).origin for _ in range(40)} == {"mutation"}


def test_better_parents_have_more_children():
    parents = family(RICH, 8)
    ids = [parent.candidate_id for parent in parents]
    g = rng(12)

    breeder = Breeder(space=RICH, crossover_rate=0)
    counts = Counter(breeder.child(parents, g).parent_ids[0] for _ in range(280))
    expected = [280 * (7 - rank) / 28 for rank in range(7)]  # a quarter of 8: two compete
    assert stats.chisquare([counts[i] for i in ids[:7]], expected).pvalue > 1e-3, counts
    assert counts[ids[7]] == 0


def test_a_brood_takes_what_the_space_has_left():
    space = space_of("a != b", a=Integer(min=0, max=3), b=Integer(min=0, max=3))
    points = [space.candidate(point) for point in space.points()]
    breeder = Breeder(space=space)
    parents, seen = points[:3], {point.candidate_id for point in points[:8]}
    brood = breeder.brood(parents, rng(), seen, 10)
    assert sorted(c.candidate_id for c in brood) == sorted(c.candidate_id for c in points[8:])
    assert breeder.brood(parents, rng(), {c.candidate_id for c in points}, 3) == []


# -- fresh points ------------------------------------------------------------------------------


def test_every_point_of_a_small_space_is_drawn_once():
    space = space_of(
        model=Choice(kind="categorical", choices=("small", "large")),
        n=Integer(min=1, max=40, log=True, when=(("model", ("large",)),)),
    )
    drawn = fresh(space, rng(), set(), 100)
    assert len(drawn) == space.size() == 41
    assert {c.candidate_id for c in drawn} == {space.candidate_id(p) for p in space.points()}
    assert fresh(space, rng(), set(), 0) == []


def test_a_space_too_large_to_walk_is_drawn_from_until_nothing_new_comes():
    flag = Choice(kind="boolean", choices=(False, True))
    space = space_of("not flag", flag=flag, x=Float(min=0, max=1, when=(("flag", (True,)),)))
    assert [c.params for c in fresh(space, rng(), set(), 3)] == [{"flag": False}]
