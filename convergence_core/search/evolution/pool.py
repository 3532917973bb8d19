"""Pools of hundreds of new candidates, as arrays of genes.

Posterior draws choose among many more candidates than a run ever evaluates. This module breeds
rows of genes (``Encoding.genes``) within bounds, steps and conditions, without building
candidates. A row becomes a candidate only when chosen.

Parents win a tournament. Crossover is uniform, with probability 1/2. Mutation changes one to three
genes on average, with a step drawn log-uniformly from .01 to .32 of the range: the pool holds
coarse and fine moves, and the posterior picks. Rows that violate a constraint or equal their first
parent are dropped.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from convergence_core.records import Candidate, Origin, Params, ParamValue
from convergence_core.space import Choice, Float, Integer, Parameter, Space
from convergence_core.space.arrays import Encoding

TOURNAMENT = 4
"""Contestants per parent."""
N_LEVELS = 100_000
"""Maximum values of a number with a grid. Others move freely and are then rounded, which may undo
a move."""
FINEST = 10_000
"""Levels at which a free number moves freely; four digits of its range distinguish no more."""
N_RESCUED = 8
"""Points drawn individually if constraints reject all rows."""


CROSSOVER_RATE = 0.5
"""Probability that a child has two parents."""
LOG_STEPS = (-2.0, -0.5)
"""Decimal logarithms of the smallest and largest step, as shares of the range."""
N_HITS = (1, 3)
"""Minimum and maximum expected number of genes that a mutation changes."""


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Rows of genes and their parents."""

    genes: np.ndarray
    """Genes, (n, n_dims)."""
    parents: np.ndarray
    """Rows of up to two parents, -1 for none, (n, 2)."""

    @classmethod
    def without_parents(cls, genes: np.ndarray) -> "Pool":
        """Return a pool of rows without parents, (n, n_dims)."""
        return cls(genes, np.full((len(genes), 2), -1, dtype=np.intp))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.genes)

    def take(self, rows: np.ndarray) -> "Pool":
        """Return these rows."""
        return Pool(self.genes[rows], self.parents[rows])

    def join(self, other: "Pool") -> "Pool":
        """Return this pool's rows followed by the other's."""
        return Pool(
            np.concatenate([self.genes, other.genes]),
            np.concatenate([self.parents, other.parents]),
        )

    def origin(self, row: int) -> Origin:
        """Return the operator that made a row."""
        first, second = self.parents[row]
        if first < 0:
            return "sample"
        return "mutation" if second < 0 else "crossover"


@dataclass(frozen=True, eq=False, kw_only=True)
class PoolBreeder:
    """Breeder of gene rows of a space."""

    encoding: Encoding
    levels: Mapping[str, int] = field(default_factory=dict)
    """Free number → steps of its grid, which gathers evidence on few candidates; others move
    freely."""

    @cached_property
    def _parameters(self) -> tuple[Parameter, ...]:
        return tuple(self.space.parameters[name] for name in self.encoding.names)

    @cached_property
    def _grids(self) -> tuple[np.ndarray | None, ...]:
        """Values of each number; ``None`` for choices and free numbers."""
        return tuple(
            _grid(parameter, self.levels.get(name))
            for name, parameter in zip(self.encoding.names, self._parameters, strict=True)
        )

    @property
    def finer(self) -> "PoolBreeder | None":
        """Breeder with half-size steps, whose grid includes this one; ``None`` without levels."""
        finer = {name: 2 * n for name, n in self.levels.items() if 2 * n < FINEST}
        return replace(self, levels=finer) if self.levels else None

    @cached_property
    def _n_values(self) -> np.ndarray:
        """Number of values per choice, 0 for numbers, (n_dims,)."""
        n = [p.n_values if isinstance(p, Choice) else 0 for p in self._parameters]
        return np.array(n, dtype=np.intp)

    @cached_property
    def _movable(self) -> np.ndarray:
        """Whether a parameter has more than one value, (n_dims,)."""
        is_free = [grid is None or len(grid) > 1 for grid in self._grids]
        return np.where(self._n_values > 0, self._n_values > 1, is_free)

    @cached_property
    def _conditions(self) -> tuple[tuple[int, int, np.ndarray], ...]:
        """(column, column of the condition, genes that activate it), parents first."""
        column = {name: j for j, name in enumerate(self.encoding.names)}
        conditions = []
        for name in self.space.order:
            for other, values in self.space.parameters[name].when:
                parameter = self.space.parameters[other]
                to_gene = parameter.index if isinstance(parameter, Choice) else parameter.to_unit
                allowed = np.array([to_gene(value) for value in values], dtype=np.float64)
                conditions.append((column[name], column[other], allowed))
        return tuple(conditions)

    @property
    def space(self) -> Space:
        """Space of the rows."""
        return self.encoding.space

    def sample(self, n: int, rng: np.random.Generator) -> Pool:
        """Draw up to n rows, uniform per parameter, and drop those that violate a constraint.

        Raises:
            ConfigurationError: No draw satisfied the constraints.
        """
        genes = self._express(np.full((n, len(self._n_values)), np.nan), rng)
        pool = self._kept(Pool.without_parents(genes))
        if n and not len(pool):
            points = [self.space.sample(rng) for _ in range(min(n, N_RESCUED))]
            pool = self._kept(Pool.without_parents(self.encoding.genes(points)))
        return pool

    def design(self, n: int, rng: np.random.Generator) -> Pool:
        """Draw up to n spread-out rows, with equal shares of each parameter's values.

        Latin hypercube (McKay, Beckman & Conover 1979).
        """
        genes = np.empty((n, len(self._n_values)))
        for j, n_values in enumerate(self._n_values):
            if n_values:
                rounds = [rng.permutation(n_values) for _ in range(n // n_values + 1)]
                genes[:, j] = np.concatenate(rounds)[:n]
            else:
                units = (rng.permutation(n) + rng.random(n)) / max(n, 1)
                genes[:, j] = _spread(self._grids[j], units)
        return self._kept(Pool.without_parents(self._express(genes, rng)))

    def breed(
        self,
        parents: np.ndarray,
        n: int,
        rng: np.random.Generator,
    ) -> Pool:
        """Breed up to n children.

        Args:
            parents: Rows of genes, best first, (n_parents, n_dims), at least one.
            n: Maximum number of children.
            rng: Random generator.
        """
        n_parents, n_dims = parents.shape
        first = rng.integers(n_parents, size=(n, TOURNAMENT)).min(axis=1)
        second = rng.integers(n_parents, size=(n, TOURNAMENT)).min(axis=1)
        parent, other = parents[first], parents[second]
        crosses = rng.random(n) < CROSSOVER_RATE
        taken = crosses[:, None] & (rng.random((n, n_dims)) < 0.5)
        taken &= ~np.isnan(other) & (other != parent)
        second = np.where(taken.any(axis=1), second, -1)
        # Expressed first, so that no mutation hits a gene that crossover deactivated.
        genes = self._express(np.where(taken, other, parent), rng)
        genes = self._express(self._mutated(genes, rng), rng)
        is_new = ~np.isclose(genes, parent, rtol=0.0, atol=1e-9, equal_nan=True).all(axis=1)
        return self._kept(Pool(genes, np.stack([first, second], axis=1)).take(is_new))

    def point(self, genes: np.ndarray) -> Params:
        """Return the canonical point of a row."""
        params: dict[str, ParamValue] = {}
        for j, name in enumerate(self.encoding.names):
            if not np.isnan(genes[j]):
                params[name] = _value(self._parameters[j], float(genes[j]))
        return self.space.canonical(params)

    def candidate(self, pool: Pool, row: int, parent_ids: tuple[str, ...]) -> Candidate:
        """Return a row as a candidate."""
        return self.space.candidate(self.point(pool.genes[row]), pool.origin(row), parent_ids)

    def _mutated(self, genes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the n rows with at least one changed gene each."""
        n, n_dims = genes.shape
        is_active = ~np.isnan(genes)
        movable = is_active & self._movable
        fewest, most = N_HITS
        rate = np.minimum(rng.integers(fewest, most + 1, size=n) / n_dims, 1.0)
        hits = movable & (rng.random((n, n_dims)) < rate[:, None])
        # If no gene was hit, the movable gene with the highest lot moves.
        lots = np.where(movable, rng.random((n, n_dims)), -1.0)
        hits[np.arange(n), lots.argmax(axis=1)] |= ~hits.any(axis=1) & movable.any(axis=1)
        step = 10.0 ** rng.uniform(*LOG_STEPS, size=n)
        moved = genes.copy()
        for j, n_values in enumerate(self._n_values):
            rows = np.flatnonzero(hits[:, j])
            if n_values:
                shift = rng.integers(1, max(2, n_values), size=len(rows))
                moved[rows, j] = (genes[rows, j] + shift) % n_values
                continue
            jump = step[rows] * rng.standard_normal(len(rows))
            moved[rows, j] = self._moved(j, genes[rows, j], jump)
        return moved

    def _moved(self, column: int, units: np.ndarray, jump: np.ndarray) -> np.ndarray:
        """Return moved numbers, reflected at the borders; grid values move at least one step."""
        target = np.abs(units + jump) % 2.0
        target = np.where(target > 1.0, 2.0 - target, target)
        grid = self._grids[column]
        if grid is None:
            return np.asarray(target, np.float64)
        old, new = _nearest(grid, units), _nearest(grid, target)
        next_one = old + np.where(jump < 0, -1, 1)
        next_one = np.where((next_one < 0) | (next_one >= len(grid)), 2 * old - next_one, next_one)
        return np.asarray(grid[np.where(new == old, next_one, new)], np.float64)

    def _express(self, genes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return rows with missing genes drawn, numbers on their grid and inactive genes NaN."""
        drawn = rng.random(genes.shape)
        for j, n_values in enumerate(self._n_values):
            units = drawn[:, j]
            drawn[:, j] = (
                np.floor(units * n_values) if n_values else _spread(self._grids[j], units)
            )
        genes = np.where(np.isnan(genes), drawn, genes)
        switches = {other for _, other, _ in self._conditions}
        for j, (parameter, grid) in enumerate(zip(self._parameters, self._grids, strict=True)):
            if not isinstance(parameter, Float | Integer):
                continue
            if grid is not None:
                genes[:, j] = grid[_nearest(grid, genes[:, j])]
            elif j in switches:
                # Exact, since the point's value decides which parameters are active.
                genes[:, j] = [parameter.to_unit(_value(parameter, unit)) for unit in genes[:, j]]
            else:
                genes[:, j] = _snapped(parameter, genes[:, j])
        return self.without_inactive(genes)

    def without_inactive(self, genes: np.ndarray) -> np.ndarray:
        """Return rows with NaN for inactive parameters, (n, n_dims)."""
        genes = genes.copy()
        for column, other, allowed in self._conditions:
            given = genes[:, other]
            holds = (np.abs(given[:, None] - allowed) < 1e-9).any(axis=1)
            genes[~holds, column] = np.nan
        return genes

    def satisfied(self, genes: np.ndarray) -> np.ndarray:
        """Return which rows satisfy the constraints, (n,)."""
        if not self.space.constraints:
            return np.ones(len(genes), dtype=bool)
        return np.array([self.space.satisfied(self.point(row)) for row in genes], dtype=bool)

    def _kept(self, pool: Pool) -> Pool:
        """Return the distinct rows that satisfy the constraints."""
        keys = np.where(np.isnan(pool.genes), -1.0, np.round(pool.genes, 9))
        _, first = np.unique(keys, axis=0, return_index=True)
        pool = pool.take(np.sort(first))
        return pool.take(self.satisfied(pool.genes))


def _value(parameter: Parameter, gene: float) -> ParamValue:
    """Return the value of a gene; free numbers have four digits of their range."""
    if isinstance(parameter, Choice):
        return parameter.value_at(int(gene))
    if isinstance(parameter, Float):
        return parameter.tidy(parameter.from_unit(gene))
    return parameter.from_unit(gene)


def _grid(parameter: Parameter, levels: int | None) -> np.ndarray | None:
    """Return a number's grid in units, ascending, or ``None`` if the parameter has no grid."""
    if not isinstance(parameter, Float | Integer):
        return None
    n_values = parameter.n_values
    if n_values is None:
        if levels is None:
            return None
        units = np.linspace(0.0, 1.0, levels + 1)
        return np.unique([parameter.to_unit(_value(parameter, unit)) for unit in units])
    if n_values > N_LEVELS:
        return None
    return _units(parameter, parameter.min + np.arange(n_values) * float(parameter.step or 1))


def _units(parameter: Float | Integer, values: np.ndarray) -> np.ndarray:
    """Return the units of values, a vectorized ``to_unit``."""
    low, high = float(parameter.min), float(parameter.max)
    if low == high:
        return np.full(len(values), 0.5)
    values = np.clip(values, low, high)
    if parameter.log:
        return np.asarray(np.log(values / low) / math.log(high / low), np.float64)
    return np.asarray((values - low) / (high - low), np.float64)


def _spread(grid: np.ndarray | None, units: np.ndarray) -> np.ndarray:
    """Return uniform draws stretched so that a grid's ends are as likely as the other values."""
    if grid is None or len(grid) == 1:
        return units
    low = grid[0] - (grid[1] - grid[0]) / 2
    high = grid[-1] + (grid[-1] - grid[-2]) / 2
    return np.asarray(low + units * (high - low), np.float64)


def _snapped(parameter: Float | Integer, units: np.ndarray) -> np.ndarray:
    """Return the units of the nearest values of a number without a grid; see ``_value``."""
    low, span = float(parameter.min), float(parameter.max) - float(parameter.min)
    ratio = math.log(parameter.max / parameter.min) if parameter.log else 0.0
    values = low * np.exp(units * ratio) if parameter.log else low + units * span
    if parameter.n_values is not None:
        step = float(parameter.step or 1)
        steps = np.rint((values - low) / step)
        values = low + np.clip(steps, 0, parameter.n_values - 1) * step
    elif parameter.log:
        decade = 10.0 ** (np.floor(np.log10(values)) - 3.0)
        values = np.rint(values / decade) * decade
    else:
        values = np.round(values, 4 - math.ceil(math.log10(span)))
    return _units(parameter, values)


def _nearest(grid: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the indices of the nearest units of an ascending grid."""
    right = np.clip(np.searchsorted(grid, units), 1, max(1, len(grid) - 1))
    if len(grid) == 1:
        return np.zeros(len(units), dtype=np.intp)
    is_left = units - grid[right - 1] <= grid[right] - units
    return np.asarray(right - is_left, np.intp)
