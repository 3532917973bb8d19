"""Pools of children: they lie in the space, move as stated, and know their parents."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from convergence_core.config.expressions import parse
from convergence_core.errors import ConfigurationError
from convergence_core.search.evolution import PoolBreeder
from convergence_core.search.evolution.pool import N_LEVELS, _nearest
from convergence_core.space import Choice, Float, Integer, Parameter, Space
from convergence_core.space.arrays import Encoding
from tests.support.random_spaces import points, random_space

EXAMPLES = settings(max_examples=60)
SEEDS = st.integers(0, 10_000)


def breeder(space: Space, levels: int | None = None) -> PoolBreeder:
    encoding = Encoding.of(space)
    names = [encoding.names[j] for j in encoding.free_columns if levels is not None]
    return PoolBreeder(encoding=encoding, levels=dict.fromkeys(names, levels or 0))


def of(**parameters: Parameter) -> PoolBreeder:
    return breeder(Space(parameters=parameters))


def keys(genes: np.ndarray) -> list[tuple[float, ...]]:
    return [tuple(row) for row in np.nan_to_num(np.round(genes, 7), nan=-1.0).tolist()]


# -- every row is a point ------------------------------------------------------------------------


@EXAMPLES
@given(SEEDS, st.sampled_from([None, 4, 20]), st.booleans())
def test_every_row_keeps_bounds_steps_conditions_and_constraints(seed, levels, constrained):
    space = random_space(seed, constrained=constrained)
    rng = np.random.default_rng(seed)
    bred = breeder(space, levels)
    parents = bred.encoding.genes(points(space, 6, rng))
    for pool in (bred.sample(30, rng), bred.design(30, rng), bred.breed(parents, 30, rng)):
        assert 0 < len(pool) <= 30
        assert pool.genes.shape == (len(pool), len(space.parameters))
        assert len(set(keys(pool.genes))) == len(pool)
        points_of = [bred.candidate(pool, row, ()).params for row in range(len(pool))]
        for point in points_of:
            assert space.validate(point) == []
        # A row lies where its candidate does, to a ten-thousandth of the range.
        again = bred.encoding.genes(points_of)
        assert again == pytest.approx(pool.genes, abs=1e-6, nan_ok=True)


@EXAMPLES
@given(SEEDS, st.sampled_from([None, 4]))
def test_every_child_differs_from_its_first_parent(seed, levels):
    space = random_space(seed)
    rng = np.random.default_rng(seed)
    bred = breeder(space, levels)
    parents = bred.encoding.genes(points(space, 4, rng))
    pool = bred.breed(parents, 40, rng)
    for row, (first, _) in enumerate(pool.parents):
        child = bred.point(pool.genes[row])
        assert space.candidate_id(child) != space.candidate_id(bred.point(parents[first]))


# -- parents -------------------------------------------------------------------------------------


def test_children_are_labelled_by_the_parents_they_took_genes_of():
    space = Space(
        parameters={
            f"c{j}": Choice(kind="categorical", choices=tuple(range(40))) for j in range(8)
        }
    )
    bred = breeder(space)
    parents = np.repeat(np.arange(5.0)[:, None], 8, axis=1)
    pool = bred.breed(parents, 400, np.random.default_rng(0))
    origins = [pool.origin(row) for row in range(len(pool))]
    assert set(origins) == {"mutation", "crossover"}
    for row, origin in enumerate(origins):
        first, second = pool.parents[row]
        foreign = set(pool.genes[row]) - {float(first)}
        assert first >= 0
        assert (second >= 0) == (origin == "crossover")
        assert second != first
        # Up to three of eight genes are hit on average, so a second parent shows mostly.
        if origin == "mutation":
            assert float(first) in pool.genes[row]
        else:
            assert len(foreign) > 0
    shows = [
        float(pool.parents[row][1]) in pool.genes[row]
        for row, origin in enumerate(origins)
        if origin == "crossover"
    ]
    assert np.mean(shows) > 0.9
    sample = bred.sample(3, np.random.default_rng(0))
    assert [sample.origin(row) for row in range(3)] == ["sample"] * 3
    assert (sample.parents == -1).all()
    child = bred.candidate(pool, 0, ("a", "b"))
    assert (child.origin, child.parent_ids) == (origins[0], ("a", "b"))


def test_a_tournament_of_four_prefers_the_best():
    bred = of(x=Float(min=0, max=1))
    rng = np.random.default_rng(0)
    parents = np.linspace(0, 1, 4)[:, None]
    # Small pools, so that next to none is dropped as a duplicate.
    firsts = [bred.breed(parents, 10, rng).parents[:, 0] for _ in range(300)]
    found = np.bincount(np.concatenate(firsts), minlength=4)
    worse = np.arange(4)
    expected = ((4 - worse) / 4) ** 4 - ((3 - worse) / 4) ** 4
    assert stats.chisquare(found, expected * found.sum()).pvalue > 1e-3, (found, expected)


def test_pools_can_be_joined_and_taken_from():
    bred = breeder(random_space(2))
    rng = np.random.default_rng(0)
    first, second = bred.sample(5, rng), bred.breed(bred.sample(4, rng).genes, 8, rng)
    both = first.join(second)
    assert len(both) == len(first) + len(second)
    last = both.take(np.array([len(both) - 1, 0]))
    assert keys(last.genes) == [keys(second.genes)[-1], keys(first.genes)[0]]
    assert last.parents.tolist() == [second.parents[-1].tolist(), [-1, -1]]


# -- operators -----------------------------------------------------------------------------------


def test_the_crossover_rate_is_the_share_of_children_of_two_parents():
    space = Space(
        parameters={
            f"c{j}": Choice(kind="categorical", choices=tuple(range(40))) for j in range(8)
        }
    )
    bred = breeder(space)
    rng = np.random.default_rng(0)
    parents = np.repeat(np.arange(20.0)[:, None], 8, axis=1)
    origins = [
        pool.origin(row)
        for _ in range(20)
        for pool in [bred.breed(parents, 50, rng)]
        for row in range(len(pool))
    ]
    n = origins.count("crossover")
    # Half of them cross; one in 7 of these with itself (four of 20 compete), 1 in 256 takes no gene.
    both = np.diff((1 - np.arange(21) / 20) ** 4) ** 2
    expected = 0.5 * (1 - both.sum()) * (1 - 2**-8)
    assert stats.binomtest(n, len(origins), expected).pvalue > 1e-3, (n / len(origins), expected)


# -- how numbers move ----------------------------------------------------------------------------


def test_steps_are_coarse_and_fine():
    bred = of(x=Float(min=0, max=1))
    pool = bred.breed(np.array([[0.5]]), 3000, np.random.default_rng(0))
    step = np.abs(pool.genes[:, 0] - 0.5)
    assert np.quantile(step, 0.1) < 0.01
    assert 0.2 < np.quantile(step, 0.95) <= 0.5
    assert stats.binomtest(int((pool.genes[:, 0] > 0.5).sum()), len(pool), 0.5).pvalue > 1e-3


@pytest.mark.parametrize("border", [0.0, 1.0])
def test_borders_reflect_and_do_not_attract(border):
    bred = of(x=Float(min=0, max=1))
    rng = np.random.default_rng(0)

    def steps(start: float) -> np.ndarray:
        """Sizes of moves, in small pools, so that next to none is dropped as a duplicate."""
        pools = [bred.breed(np.array([[start]]), 10, rng).genes[:, 0] for _ in range(200)]
        size = np.abs(np.concatenate(pools) - start)
        return size[size < 0.4]

    at_border = steps(border)
    assert (at_border > 0).all()
    assert stats.ks_2samp(at_border, steps(0.5)).pvalue > 1e-3


@pytest.mark.parametrize(
    "number",
    [
        Integer(min=1, max=3),
        Integer(min=0, max=1000),
        Integer(min=1, max=4096, log=True),
        Integer(min=1, max=32_768, log=True),
        Float(min=0, max=2, step=0.25),
        Float(min=0.25, max=2, log=True, step=0.25),
    ],
    ids=["three", "thousand", "log", "long log", "steps", "log steps"],
)
def test_a_number_in_steps_moves_by_one_at_least(number):
    bred = of(n=number)
    n_values = number.n_values or 0
    for index in {0, 1, n_values - 1}:
        value = number.value_at(index)
        parent = bred.encoding.genes([{"n": value}])
        pool = bred.breed(parent, 50, np.random.default_rng(0))
        moved = [bred.point(row)["n"] for row in pool.genes]
        assert value not in moved
        assert moved
        near = {number.value_at(i) for i in (index - 1, index + 1) if 0 <= i < n_values}
        assert index > 1 or near & set(moved)


def test_free_numbers_are_snapped_to_levels():
    bred = breeder(Space(parameters={"x": Float(min=-1, max=3)}), levels=4)
    rng = np.random.default_rng(0)
    values = {bred.point(row)["x"] for row in bred.sample(200, rng).genes}
    assert values == {-1.0, 0.0, 1.0, 2.0, 3.0}
    children = {bred.point(row)["x"] for row in bred.breed(np.array([[0.3]]), 300, rng).genes}
    assert children <= values
    finer = bred.finer
    assert finer is not None
    assert values < {finer.point(row)["x"] for row in finer.sample(400, rng).genes}


def test_half_the_steps_end_in_free_numbers_and_numbers_with_values_have_no_levels():
    space = Space(
        parameters={"x": Float(min=1e-6, max=1, log=True), "n": Integer(min=1, max=10**6)}
    )
    bred, n_steps = breeder(space, levels=20), []
    while (finer := bred.finer) is not None:
        bred = finer
        n_steps.append(bred.levels.get("x"))
    assert n_steps == [40, 80, 160, 320, 640, 1280, 2560, 5120, None]


def test_logarithmic_numbers_are_uniform_on_their_scale():
    bred = of(x=Float(min=1e-4, max=1, log=True))
    drawn = bred.sample(2000, np.random.default_rng(0))
    values = np.array([float(bred.point(row)["x"]) for row in drawn.genes])
    assert stats.kstest(np.log10(values), stats.uniform(-4, 4).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    "number",
    [Integer(min=1, max=3), Integer(min=0, max=9, step=3), Float(min=0, max=1, step=0.25)],
    ids=["three", "step", "float"],
)
def test_every_value_of_a_linear_grid_is_equally_likely(number):
    # A second, free number keeps rows apart.
    bred = of(n=number, free=Float(min=0, max=1))
    genes = np.concatenate([bred.sample(1500, np.random.default_rng(s)).genes for s in range(2)])
    _, found = np.unique(genes[:, 0], return_counts=True)
    assert len(found) == number.n_values
    assert stats.chisquare(found).pvalue > 1e-3, found


def test_the_nearest_place_of_a_grid():
    grid = np.array([0.0, 0.1, 0.5, 1.0])
    units = np.array([-1.0, 0.04, 0.06, 0.29, 0.31, 0.76, 2.0])
    assert _nearest(grid, units).tolist() == [0, 0, 1, 1, 2, 3, 3]
    assert _nearest(np.array([0.5]), units).tolist() == [0] * 7


# -- numbers with too many steps for a grid ------------------------------------------------------


@pytest.mark.parametrize(
    "number",
    [
        Integer(min=1, max=10**7),
        Integer(min=5, max=10**15, log=True),
        Integer(min=-(10**6), max=10**6, step=3),
        Float(min=0, max=1000, step=0.001),
    ],
    ids=["linear", "log", "steps", "float"],
)
@pytest.mark.parametrize("is_switch", [False, True])
def test_numbers_beyond_the_grid_are_snapped_to_their_values(number, is_switch):
    assert (number.n_values or 0) > N_LEVELS
    parameters: dict[str, Parameter] = {"n": number}
    if is_switch:
        on = (("n", (number.value_at(0),)),)
        parameters["inner"] = Choice(kind="boolean", choices=(False, True), when=on)
    bred = breeder(Space(parameters=parameters))
    rng = np.random.default_rng(0)
    sample = bred.sample(50, rng)
    for pool in (sample, bred.breed(sample.genes[:5], 50, rng)):
        some = [bred.candidate(pool, row, ()).params for row in range(len(pool))]
        assert all(bred.space.validate(point) == [] for point in some)
        assert bred.encoding.genes(some) == pytest.approx(pool.genes, abs=1e-7, nan_ok=True)


def test_a_free_number_that_switches_another_is_decided_by_its_value():
    """A gene beside 0 becomes 0 when it is written with four digits, and 0 switches."""
    space = Space(
        parameters={
            "temperature": Float(min=0, max=1),
            "greedy": Choice(
                kind="categorical", choices=("a", "b"), when=(("temperature", (0.0,)),)
            ),
        }
    )
    bred = breeder(space)
    genes = bred._express(
        np.array([[2e-5, 1.0], [0.0, 0.0], [0.3, 1.0]]), np.random.default_rng(0)
    )
    assert [bred.point(row) for row in genes] == [
        {"temperature": 0.0, "greedy": "b"},
        {"temperature": 0.0, "greedy": "a"},
        {"temperature": 0.3},
    ]


# -- designs and constraints ---------------------------------------------------------------------


def test_the_design_is_a_latin_hypercube():
    bred = of(
        x=Float(min=0, max=1),
        y=Float(min=1e-3, max=1, log=True),
        n=Integer(min=1, max=4),
        c=Choice(kind="categorical", choices=tuple("abc")),
    )
    n = 24
    pool = bred.design(n, np.random.default_rng(0))
    assert len(pool) == n
    for column in (0, 1):
        # One in each of n equal strata; writing with four digits may move a border case.
        strata = np.floor(pool.genes[:, column] * n)
        assert len(np.unique(strata)) >= n - 1
    assert np.unique(pool.genes[:, 2], return_counts=True)[1].tolist() == [6] * 4
    assert np.unique(pool.genes[:, 3], return_counts=True)[1].tolist() == [8] * 3
    other = bred.design(n, np.random.default_rng(1))
    assert keys(pool.genes) != keys(other.genes)


def test_rows_that_break_a_constraint_are_left_out():
    space = Space(
        parameters={"low": Integer(min=0, max=9), "high": Integer(min=0, max=9)},
        constraints=(parse("low < high"),),
    )
    bred = breeder(space)
    pool = bred.sample(300, np.random.default_rng(0))
    points_of = [bred.point(row) for row in pool.genes]
    assert len(points_of) > 20
    assert all(float(point["low"]) < float(point["high"]) for point in points_of)


def test_where_constraints_leave_next_to_nothing_some_points_are_drawn_all_the_same():
    parameters: dict[str, Parameter] = {f"n{j}": Integer(min=0, max=9) for j in range(4)}
    rule = parse("n0 == 7 and n1 == 7 and n2 == 7")
    bred = breeder(Space(parameters=parameters, constraints=(rule,)))
    pool = bred.sample(20, np.random.default_rng(0))
    assert 0 < len(pool) <= 20
    assert all(bred.point(row)["n1"] == 7 for row in pool.genes)
    assert [pool.origin(row) for row in range(len(pool))] == ["sample"] * len(pool)
    nothing = Space(parameters=parameters, constraints=(parse("n0 > 20"),))
    with pytest.raises(ConfigurationError, match="constraints"):
        breeder(nothing).sample(5, np.random.default_rng(0))
