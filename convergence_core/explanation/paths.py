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
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve
from scipy.special import stdtrit

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
