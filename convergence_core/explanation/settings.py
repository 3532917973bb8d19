"""Settings of a space to average over, with changed parameters.

Every parameter has a value in each setting, even if its conditions do not hold. The value takes
effect if a changed parameter activates it. ``express`` marks inactive parameters, and ``varied``
marks rows that violate a constraint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from convergence_core.records import ParamValue
from convergence_core.search.evolution import PoolBreeder
from convergence_core.space import Choice, Parameter, Space
from convergence_core.space.arrays import Encoding

N_LEVELS = 12
"""Values of a number in its effect."""
N_ROUNDS = 4
"""Attempts to draw settings that satisfy the constraints, before points are drawn individually."""


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Values of one parameter in its effect."""

    parameter: Parameter
    values: tuple[ParamValue, ...]
    genes: np.ndarray
    """Genes of the values, (n_levels,)."""
    weights: np.ndarray
    """Share of the scale for each value, with sum 1, (n_levels,)."""

    @classmethod
    def of(cls, parameter: Parameter, n: int = N_LEVELS) -> "Levels":
        """Return every value of a choice, or about n values of a number spread over its scale."""
        if isinstance(parameter, Choice):
            return cls.even(parameter, [parameter.value_at(i) for i in range(parameter.n_values)])
        is_short = parameter.n_values is not None and parameter.n_values <= n
        if is_short:
            levels = cls.even(
                parameter, [parameter.value_at(i) for i in range(parameter.n_values or 1)]
            )
        else:
            levels = cls.at(parameter, np.linspace(0.0, 1.0, n))
        if len(levels.values) == 1 or (is_short and not parameter.log):
            return levels
        edges = np.concatenate([[0.0], (levels.genes[1:] + levels.genes[:-1]) / 2, [1.0]])
        return replace(levels, weights=np.diff(edges))

    @classmethod
    def even(cls, parameter: Parameter, values: Sequence[ParamValue]) -> "Levels":
        """Return distinct values with equal weights."""
        to_gene = parameter.index if isinstance(parameter, Choice) else parameter.to_unit
        genes = np.array([to_gene(value) for value in values], dtype=np.float64)
        return cls(parameter, tuple(values), genes, np.full(len(values), 1.0 / len(values)))

    @classmethod
    def at(cls, parameter: Parameter, units: np.ndarray) -> "Levels":
        """Return the distinct values of a number at these units, with equal weights."""
        values = dict.fromkeys(parameter.from_unit(float(unit)) for unit in units)
        return cls.even(parameter, list(values))

    def nearest(self, gene: float) -> int:
        """Return the index of the level nearest to a gene."""
        return int(np.argmin(np.abs(self.genes - gene)))

    def some(self, n: int) -> "Levels":
        """Return at most n spread levels; those of a number are midpoints of equal shares."""
        if len(self.values) <= n:
            return self
        if len(self.values) == self.parameter.n_values:
            kept = np.unique(np.linspace(0, len(self.values) - 1, n).round().astype(np.intp))
            return self.even(self.parameter, [self.values[i] for i in kept])
        return self.at(self.parameter, (np.arange(n) + 0.5) / n)


@dataclass(frozen=True, eq=False, kw_only=True)
class SettingSampler:
    """Sampler of settings of a space."""

    encoding: Encoding

    @cached_property
    def _breeder(self) -> PoolBreeder:
        return PoolBreeder(encoding=self.encoding)

    @property
    def space(self) -> Space:
        """Space of the settings."""
        return self.encoding.space

    @cached_property
    def levels(self) -> tuple[Levels, ...]:
        """Levels of each parameter, in the order of dimensions."""
        return tuple(Levels.of(self.space.parameters[name]) for name in self.encoding.names)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return n settings that satisfy the constraints, spread over the space, (n, n_dims).

        Latin hypercube (McKay, Beckman & Conover 1979), as far as constraints permit.
        """
        kept = np.empty((0, len(self.levels)))
        for _ in range(N_ROUNDS):
            drawn = self._design(n, rng)
            kept = np.concatenate([kept, drawn[self._breeder.satisfied(self.express(drawn))]])[:n]
            if len(kept) == n:
                return kept
        drawn = self._design(n - len(kept), rng)
        points = [self.space.sample(rng) for _ in range(len(drawn))]
        genes = self.encoding.genes(points)
        return np.concatenate([kept, np.where(np.isnan(genes), drawn, genes)])

    def express(self, settings: np.ndarray) -> np.ndarray:
        """Return the settings with NaN for inactive parameters, (n, n_dims)."""
        return self._breeder.without_inactive(settings)

    def varied(
        self, settings: np.ndarray, columns: Sequence[int], levels: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return each setting with each combination of levels in the columns.

        Args:
            settings: Settings, (n, n_dims).
            columns: Columns of the changed parameters.
            levels: Genes of each of these parameters, (n_levels,) each.

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
        is_active[is_active] = self._breeder.satisfied(flat[is_active])
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
