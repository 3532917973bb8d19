"""Draws of whole functions from the posterior of a Gaussian process.

    f | z = m + g - K(., X) (K + v R)^-1 (g(X) + e),    g ~ GP(0, K),   e ~ N(0, v R + own)        (1)
    g(x) = sqrt(s_p / M) sum_w (a_w cos(w . x) + b_w sin(w . x)),    a, b ~ N(0, 1)                (2)

(Wilson et al. 2020, "Efficiently sampling functions from Gaussian process posteriors", eq. 7; the
rule is Matheron's.) A function costs as much per point as the posterior mean does, where a joint
draw at n points would cost n³. The prior g is a sum of waves: the product of Matérn-5/2 kernels is
the mean of cos(w (x - x')) over w ~ t_5 / length (Rahimi & Recht 2007) (3), and a kernel exp(-u d) of
choices with 1 - d positive semi-definite that over phases ~ N(0, u (1 - d)), where it is
exp(-Var(difference) / 2) (4). Frequencies are stratified per parameter, and each wave comes with its
quarter turn. The mean m is exact.

Notation: n points, N training rows, S draws, M waves, D dimensions.

Effects are those of a weighted two-way fit,

    value(setting, level) = setting + effect(level) + rest                                         (1)

which are exact where the effects are additive, whatever combinations are missing. An interaction is
what is left of a mean over settings by both effects,

    rest(j, k) = mean(j, k) - first(j) - second(k)                                                 (2)

A variance is never drawn as 0. So an effect counts as sure only if "none at all" lies outside of
the ball around the posterior mean that holds all but a given error; the radius is that of a
chi-squared distribution with the draws' mean and variance (Satterthwaite 1946),

    scale = variance / (2 mean),    dof = 2 mean^2 / variance                                      (3)

Notation: S draws.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve
from scipy.special import chdtrc, stdtrit

from convergence_core.explanation.records import LEVEL
from convergence_core.posterior.gaussian_process import GaussianProcess, matrix_root
from convergence_core.posterior.kernel import SQRT5
from convergence_core.space.arrays import Points

N_WAVES = 256
"""Prior correlations differ from the kernel's with an sd of (2 M)^-1/2, here .044, less between
points that differ in few parameters; the mean is exact, and near evidence little prior is left."""
CHUNK = 1024
"""Points worked on at once: bounds memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """S deviations of the surface from its posterior mean; equally likely with either sign."""

    process: GaussianProcess
    frequencies: np.ndarray
    """Of the numbers, (n_numbers, M)."""
    phases: tuple[np.ndarray, ...]
    """Of the choices' values, (n_values + 1, M) each."""
    amplitudes: np.ndarray
    """Of cosines, then sines, (2 M, S)."""
    pull: np.ndarray
    """(K + v R)^-1 (g(X) + e), (N, S)."""

    @classmethod
    def draw(
        cls, process: GaussianProcess, rng: np.random.Generator, n: int, *, n_waves: int = N_WAVES
    ) -> "Paths":
        """Draw n functions."""
        kernel, theta = process.kernel, np.exp(process.log_params)
        q, n_dims = kernel.n_numbers, kernel.n_dims
        lots = (_strata(rng, q, n_waves) + rng.random((q, n_waves))) / n_waves
        prior = cls(
            process=process,
            frequencies=stdtrit(5.0, lots) / theta[:q, None],  # (eq. 3)
            phases=tuple(
                math.sqrt(weight) * matrix_root(1.0 - d) @ rng.standard_normal((len(d), n_waves))
                for d, weight in zip(kernel.of_choices, theta[q:n_dims], strict=True)
            ),  # (eq. 4)
            amplitudes=rng.standard_normal((2 * n_waves, n)) * math.sqrt(theta[n_dims] / n_waves),
            pull=np.zeros((len(process.points), n)),
        )
        _, at_rows = prior.at(process.points)
        everywhere = slice(0, len(process.points))
        smooth = prior._cross(prior._tables(process.points), everywhere)
        errors = process.factor @ process.factor.T - smooth
        errors_drawn = matrix_root(errors) @ rng.standard_normal(at_rows.shape)
        pull = cho_solve((process.factor, True), at_rows + errors_drawn)
        return replace(prior, pull=np.asarray(pull, np.float64))

    def at(self, points: Points) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior mean, (n,), and the deviations from it, (n, S).

        Of the surface, on the process's scale; a candidate's own effect is none of it.
        """
        mean = np.empty(len(points))
        drawn = np.empty((len(points), self.amplitudes.shape[1]))
        tables = self._tables(points)
        for rows in _chunks(len(points)):
            cross = self._cross(tables, rows)
            mean[rows] = cross @ self.process.weights
            drawn[rows] = self._waves(tables, rows) - cross @ self.pull  # (eq. 1)
        return mean, drawn

    def mean_at(self, points: Points) -> np.ndarray:
        """Return the posterior mean alone, (n,)."""
        mean = np.empty(len(points))
        tables = self._tables(points)
        for rows in _chunks(len(points)):
            mean[rows] = self._cross(tables, rows) @ self.process.weights
        return mean

    def _cross(self, tables: "tuple[_Table, ...]", rows: slice) -> np.ndarray:
        """Return K(points, X), (n, N)."""
        theta = np.exp(self.process.log_params)
        cross = np.full((), theta[self.process.kernel.n_dims])
        for table in tables:
            cross = cross * table.kernel[table.index[rows]]
        return np.asarray(cross, np.float64)

    def _waves(self, tables: "tuple[_Table, ...]", rows: slice) -> np.ndarray:
        """Return the prior g, (n, S)."""
        phase = sum((table.phase[table.index[rows]] for table in tables), start=np.zeros(()))
        n_waves = self.frequencies.shape[1]
        cosines = np.cos(phase) @ self.amplitudes[:n_waves]
        sines = np.sin(phase) @ self.amplitudes[n_waves:]
        return np.asarray(cosines + sines, np.float64)  # (eq. 2)

    def _tables(self, points: Points) -> "tuple[_Table, ...]":
        """Return each dimension of the points, by the values that occur."""
        process, kernel = self.process, self.process.kernel
        log_params, q = process.log_params, process.kernel.n_numbers
        tables = []
        for d in range(q):
            values, index = np.unique(points.numbers[:, d], return_inverse=True)
            apart = np.abs(values[:, None] - process.points.numbers[:, d]) * SQRT5
            correlation = kernel.correlation(log_params, apart, d)
            phase = values[:, None] * self.frequencies[d]
            tables.append(_Table(index.reshape(-1), correlation, phase))
        for j, distance in enumerate(kernel.of_choices):
            apart = distance[:, process.points.codes[:, j]]
            correlation = kernel.correlation(log_params, apart, q + j)
            tables.append(_Table(points.codes[:, j], correlation, self.phases[j]))
        return tuple(tables)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """One dimension of some points, by the values that occur."""

    index: np.ndarray
    """Which of them each point has, (n,)."""
    kernel: np.ndarray
    """k_d to the training rows, (n_values, N)."""
    phase: np.ndarray
    """(n_values, M)."""


def _strata(rng: np.random.Generator, n_rows: int, n: int) -> np.ndarray:
    """Return a permutation of 0 ... n - 1 in each row, (n_rows, n)."""
    return rng.permuted(np.tile(np.arange(n, dtype=np.float64), (n_rows, 1)), axis=1)


def _chunks(n: int) -> Iterator[slice]:
    for start in range(0, n, CHUNK):
        yield slice(start, start + CHUNK)


TINY = 1e-12
"""Variance below which nothing varies."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Combinations:
    """Combinations of two parameters' values, with a basis of the additive functions of them."""

    first: np.ndarray
    """Which value of the first parameter each has, (n_cells,)."""
    second: np.ndarray
    weights: np.ndarray
    """Their sum is 1, (n_cells,)."""
    basis: np.ndarray
    """Orthonormal, of what is additive, weighted, (n_cells, n_basis)."""
    root: np.ndarray
    """Square roots of the weights before they were shared out, (n_cells, 1)."""

    @classmethod
    def of(
        cls, cells: np.ndarray, weights: tuple[np.ndarray, np.ndarray]
    ) -> "Combinations | None":
        """Return the combinations that exist; ``None`` if they allow no interaction.

        Args:
            cells: which combinations exist, (n_first * n_second,).
            weights: of the values of each parameter, (n_first,) and (n_second,).
        """
        shape = (len(weights[0]), len(weights[1]))
        first, second = np.unravel_index(np.flatnonzero(cells), shape)
        design = np.concatenate([np.eye(shape[0])[first], np.eye(shape[1])[second]], axis=1)
        if len(first) <= np.linalg.matrix_rank(design):
            return None
        weight = weights[0][first] * weights[1][second]
        root = np.sqrt(weight)[:, None]
        basis, sizes, _ = np.linalg.svd(design * root, full_matrices=False)
        return cls(
            first=first,
            second=second,
            weights=weight / weight.sum(),
            basis=basis[:, sizes > 1e-9 * sizes[0]],
            root=root,
        )

    def interaction(self, values: np.ndarray) -> np.ndarray:
        """Return the rest of means over settings beyond both effects, (n_cells, S) (eq. 2).

        Args:
            values: of each setting in turn, (n_settings * n_cells, S).
        """
        mean = values.reshape(-1, len(self.weights), values.shape[1]).mean(axis=0)
        weighted = mean * self.root
        return np.asarray(mean - self.basis @ (self.basis.T @ weighted) / self.root, np.float64)


def column_effects(values: np.ndarray, keeps: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the columns' effects of a two-way fit, weighted mean 0, (n_columns, S) (eq. 1).

    Args:
        values: (n_rows, n_columns, S).
        keeps: which of them exist, (n_rows, n_columns).
        weights: of the columns, (n_columns,).
    """
    if keeps.all():
        effect = values.mean(axis=0)
    else:
        there = keeps.astype(np.float64)
        n_row = there.sum(axis=1)
        of_row = np.einsum("rcs,rc->rs", values, there) / n_row[:, None]
        pull = np.einsum("rcs,rc->cs", values, there) - there.T @ of_row
        normal = np.diag(there.sum(axis=0)) - there.T @ (there / n_row[:, None])
        effect = np.linalg.pinv(normal) @ pull
    return np.asarray(effect - weights @ effect, np.float64)


def is_sure(drawn: np.ndarray, weights: np.ndarray, error: float) -> bool:
    """Return whether "no effect at all" lies outside of the ball that holds all but an error.

    Args:
        drawn: effects, (n_levels, S).
        weights: of the levels, (n_levels,).
        error: probability left outside of the ball.
    """
    mean = drawn.mean(axis=1)
    size = float(weights @ mean**2)
    apart = weights @ (drawn - mean[:, None]) ** 2  # (S,)
    middle, variance = float(apart.mean()), float(apart.var())
    if size <= TINY:
        return False
    if middle <= TINY**2 or variance <= 0.0:
        return True
    scale, dof = variance / (2.0 * middle), 2.0 * middle**2 / variance  # (eq. 3)
    return bool(chdtrc(dof, size / scale) < error)


def ends_of(drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the central interval over the last axis."""
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
    return low, high


def mean_share(drawn: np.ndarray) -> float:
    """Return the mean of drawn shares, in [0, 1]."""
    return float(np.clip(np.asarray(drawn).mean(), 0.0, 1.0))
