"""Settings of a space to average over: a spread sample, and the same with one parameter changed.

Every parameter has a value in each setting, also where its conditions do not hold: it comes into
force when another parameter that is changed activates it. What then lies in the space is
``express`` ed: inactive parameters are left out, and rows that break a constraint are marked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from convergence_core.records import ParamValue
from convergence_core.search.evolution import PoolBreeder
from convergence_core.space import Choice, Float, Integer, Parameter, Space
from convergence_core.space.encoding import Encoding

N_LEVELS = 12
"""Places of a number at which an effect is told."""
N_ROUNDS = 4
"""Samples drawn where constraints refuse some, before points are drawn one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """The values of one parameter at which its effect is told."""

    parameter: Parameter
    values: tuple[ParamValue, ...]
    genes: np.ndarray
    """(n_levels,)."""
    weights: np.ndarray
    """Share of the scale that each stands for; their sum is 1, (n_levels,)."""

    @classmethod
    def of(cls, parameter: Parameter, n: int = N_LEVELS) -> "Levels":
        """Return every value of a choice, and of a number about n spread over its scale."""
        if isinstance(parameter, Choice):
            k = parameter.n_values
            values = tuple(parameter.value_at(i) for i in range(k))
            return cls(parameter, values, np.arange(k, dtype=np.float64), np.full(k, 1.0 / k))
        if _is_short(parameter, n):
            values = tuple(parameter.value_at(i) for i in range(parameter.n_values or 1))
        else:
            spread = (parameter.from_unit(float(u)) for u in np.linspace(0.0, 1.0, n))
            values = tuple(dict.fromkeys(spread))
        genes = np.array([parameter.to_unit(value) for value in values])
        k = len(values)
        if k == 1 or (_is_short(parameter, n) and _is_even(parameter)):
            return cls(parameter, values, genes, np.full(k, 1.0 / k))
        edges = np.concatenate([[0.0], (genes[1:] + genes[:-1]) / 2, [1.0]])
        return cls(parameter, values, genes, np.diff(edges))

    def nearest(self, gene: float) -> int:
        """Return which level a gene is, or is nearest to."""
        return int(np.argmin(np.abs(self.genes - gene)))

    def some(self, n: int) -> "Levels":
        """Return at most n of the levels, spread; those of a number in the middle of equal shares."""
        if len(self.values) <= n:
            return self
        if len(self.values) == self.parameter.n_values:
            kept = np.unique(np.linspace(0, len(self.values) - 1, n).round().astype(np.intp))
            values = tuple(self.values[i] for i in kept)
            return Levels(
                self.parameter, values, self.genes[kept], np.full(len(kept), 1 / len(kept))
            )
        units = (np.arange(n) + 0.5) / n
        values = tuple(dict.fromkeys(self.parameter.from_unit(float(u)) for u in units))
        genes = np.array([self.parameter.to_unit(value) for value in values])
        return Levels(self.parameter, values, genes, np.full(len(values), 1.0 / len(values)))


def _is_short(parameter: Parameter, n: int) -> bool:
    return parameter.n_values is not None and parameter.n_values <= n


def _is_even(parameter: Parameter) -> bool:
    """Return whether all values of a number lie equally far apart on its scale."""
    return not (isinstance(parameter, Float | Integer) and parameter.log)


@dataclass(frozen=True, eq=False, kw_only=True)
class SettingSampler:
    """Makes settings of a space."""

    encoding: Encoding
    _breeder: PoolBreeder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Prepare to make points of rows."""
        object.__setattr__(self, "_breeder", PoolBreeder(encoding=self.encoding))

    @property
    def space(self) -> Space:
        """Where the settings lie."""
        return self.encoding.space

    @cached_property
    def levels(self) -> tuple[Levels, ...]:
        """Of each parameter, in the order of dimensions."""
        return tuple(Levels.of(self.space.parameters[name]) for name in self.encoding.names)

    @cached_property
    def _conditions(self) -> tuple[tuple[int, int, np.ndarray], ...]:
        """(column, the column it depends on, the genes that activate it), parents first."""
        column = {name: j for j, name in enumerate(self.encoding.names)}
        found = []
        for name in self.space.order:
            for other, values in self.space.parameters[name].when:
                parameter = self.space.parameters[other]
                to_gene = parameter.index if isinstance(parameter, Choice) else parameter.to_unit
                allowed = np.array([to_gene(value) for value in values], dtype=np.float64)
                found.append((column[name], column[other], allowed))
        return tuple(found)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return n settings that keep the constraints, spread over the space, (n, n_dims).

        A Latin hypercube (McKay, Beckman & Conover 1979), as far as constraints permit.
        """
        kept = np.empty((0, len(self.levels)))
        for _ in range(N_ROUNDS):
            drawn = self._design(n, rng)
            kept = np.concatenate([kept, drawn[self.keeps(self.express(drawn))]])[:n]
            if len(kept) == n:
                return kept
        drawn = self._design(n - len(kept), rng)
        points = [self.space.sample(rng) for _ in range(len(drawn))]
        genes = self.encoding.genes(points)
        return np.concatenate([kept, np.where(np.isnan(genes), drawn, genes)])

    def express(self, settings: np.ndarray) -> np.ndarray:
        """Return the settings with NaN where a parameter is not active, (n, n_dims)."""
        genes = settings.copy()
        for column, other, allowed in self._conditions:
            given = genes[:, other]
            holds = (np.abs(given[:, None] - allowed) < 1e-9).any(axis=1)
            genes[~holds, column] = np.nan
        return genes

    def keeps(self, genes: np.ndarray) -> np.ndarray:
        """Return which rows keep the constraints, (n,)."""
        if not self.space.constraints:
            return np.ones(len(genes), dtype=bool)
        return np.array([self.space.satisfied(self._breeder.point(row)) for row in genes], bool)

    def varied(
        self, settings: np.ndarray, columns: Sequence[int], levels: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return each setting with each combination of levels in the columns.

        Args:
            settings: (n, n_dims).
            columns: which parameters change.
            levels: genes that each of them takes, (n_levels,) each.

        Returns:
            Genes, (n, n_combinations, n_dims), and whether they are in the space with the changed
            parameters active, (n, n_combinations).
        """
        mesh = np.meshgrid(*levels, indexing="ij")
        combinations = np.stack([axis.reshape(-1) for axis in mesh], axis=1)  # (n_combinations, k)
        varied = np.repeat(settings[:, None, :], len(combinations), axis=1)
        varied[:, :, list(columns)] = combinations
        flat = self.express(varied.reshape(-1, settings.shape[1]))
        is_active = ~np.isnan(flat[:, list(columns)]).any(axis=1)
        is_active[is_active] = self.keeps(flat[is_active])
        return flat.reshape(varied.shape), is_active.reshape(varied.shape[:2])

    def _design(self, n: int, rng: np.random.Generator) -> np.ndarray:
        genes = np.empty((n, len(self.levels)))
        for j, levels in enumerate(self.levels):
            parameter = levels.parameter
            if np.ptp(levels.weights) == 0 and len(levels.values) == parameter.n_values:
                k = len(levels.values)
                rounds = [rng.permutation(k) for _ in range(n // k + 1)]
                genes[:, j] = levels.genes[np.concatenate(rounds)[:n]]
                continue
            units = (rng.permutation(n) + rng.random(n)) / max(n, 1)
            genes[:, j] = [parameter.to_unit(parameter.from_unit(float(u))) for u in units]
        return genes
