"""Draws of whole functions from the posterior of a Gaussian process.

    f | z  =  m + g - K(., X) (K + v R)^-1 (g(X) + e),    g ~ GP(0, K),   e ~ N(0, v R + own)

(Wilson et al. 2020, "Efficiently sampling functions from Gaussian process posteriors", eq. 7; the
rule is Matheron's.) A function costs as much per place as the posterior mean does, where a joint
draw at n places would cost n³. The prior g is a sum of waves: the product of Matérn-5/2 kernels is
the mean of cos(w (x - x')) over w ~ t_5 / length (Rahimi & Recht 2007), and a kernel exp(-u d) of
choices with 1 - d positive semi-definite that over phases ~ N(0, u (1 - d)), where it is
exp(-Var(difference) / 2). Frequencies are stratified per parameter, each wave comes with its
quarter turn, and additive terms are drawn exactly by the values that occur. The mean m is exact.

Notation: n places, N training rows, S draws, M waves, D dimensions.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve
from scipy.special import stdtrit

from convergence_core.posterior.gaussian_process import GaussianProcess
from convergence_core.posterior.kernel import SQRT5, correlation
from convergence_core.space.encoding import Points

N_WAVES = 256
"""Prior correlations differ from the kernel's with an sd of (2 M)^-1/2, here .044, less between
places that differ in few parameters; the mean is exact, and near evidence little prior is left."""
CHUNK = 1024
"""Places worked on at once: bounds memory."""


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
    additive: tuple["_Term", ...]
    pull: np.ndarray
    """(K + v R)^-1 (g(X) + e), (N, S)."""

    @classmethod
    def draw(
        cls, process: GaussianProcess, rng: np.random.Generator, n: int, *, n_waves: int = N_WAVES
    ) -> "Paths":
        """Draw n functions."""
        layout = process.layout
        theta = np.exp(process.log_params)
        q = layout.n_numbers
        lots = (_strata(rng, q, n_waves) + rng.random((q, n_waves))) / n_waves
        prior = cls(
            process=process,
            frequencies=stdtrit(5.0, lots) / theta[:q, None],
            phases=tuple(
                math.sqrt(weight) * _root(1.0 - d) @ rng.standard_normal((len(d), n_waves))
                for d, weight in zip(process.of_choices, theta[q : layout.n_dims], strict=True)
            ),
            amplitudes=rng.standard_normal((2 * n_waves, n))
            * math.sqrt(theta[layout.product] / n_waves),
            additive=tuple(
                _Term.draw(process, d, float(theta[layout.product + 1 + i]), rng, n)
                for i, d in enumerate(layout.additive)
            ),
            pull=np.zeros((len(process.places), n)),
        )
        _, at_rows = prior.at(process.places)
        everywhere = slice(0, len(process.places))
        smooth = prior._cross(prior._tables(process.places), everywhere)
        errors = process.factor @ process.factor.T - smooth
        errors_drawn = _root(errors) @ rng.standard_normal(at_rows.shape)
        pull = cho_solve((process.factor, True), at_rows + errors_drawn)
        return cls(
            process=process,
            frequencies=prior.frequencies,
            phases=prior.phases,
            amplitudes=prior.amplitudes,
            additive=prior.additive,
            pull=np.asarray(pull, np.float64),
        )

    def at(self, places: Points) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior mean, (n,), and the deviations from it, (n, S).

        Of the surface, on the process's scale; a candidate's own effect is none of it.
        """
        mean = np.empty(len(places))
        drawn = np.empty((len(places), self.amplitudes.shape[1]))
        tables = self._tables(places)
        for rows in _chunks(len(places)):
            cross = self._cross(tables, rows)
            mean[rows] = cross @ self.process.weights
            drawn[rows] = self._waves(tables, rows) - cross @ self.pull
            for term in self.additive:
                table = tables[term.dim]
                drawn[rows] += term.at(table.values)[table.index[rows]]
        return mean, drawn

    def mean_at(self, places: Points) -> np.ndarray:
        """Return the posterior mean alone, (n,)."""
        mean = np.empty(len(places))
        tables = self._tables(places)
        for rows in _chunks(len(places)):
            mean[rows] = self._cross(tables, rows) @ self.process.weights
        return mean

    def _cross(self, tables: "tuple[_Table, ...]", rows: slice) -> np.ndarray:
        """Return K(places, X), (n, N)."""
        layout, theta = self.process.layout, np.exp(self.process.log_params)
        cross = np.full((), theta[layout.product])
        for table in tables:
            cross = cross * table.kernel[table.index[rows]]
        for i, d in enumerate(layout.additive):
            table = tables[d]
            cross += (theta[layout.product + 1 + i] * table.kernel)[table.index[rows]]
        return np.asarray(cross, np.float64)

    def _waves(self, tables: "tuple[_Table, ...]", rows: slice) -> np.ndarray:
        """Return the prior's product part, (n, S)."""
        phase = sum((table.phase[table.index[rows]] for table in tables), start=np.zeros(()))
        n_waves = self.frequencies.shape[1]
        cosines = np.cos(phase) @ self.amplitudes[:n_waves]
        return np.asarray(cosines + np.sin(phase) @ self.amplitudes[n_waves:], np.float64)

    def _tables(self, places: Points) -> "tuple[_Table, ...]":
        """Return what each dimension brings, by the values that occur."""
        process = self.process
        layout, log_params, q = process.layout, process.log_params, process.layout.n_numbers
        tables = []
        for d in range(q):
            values, index = np.unique(places.numbers[:, d], return_inverse=True)
            apart = np.abs(values[:, None] - process.places.numbers[:, d]) * SQRT5
            kernel = correlation(layout, log_params, apart, d)
            phase = values[:, None] * self.frequencies[d]
            tables.append(_Table(values, index.reshape(-1), kernel, phase))
        for j, distance in enumerate(process.of_choices):
            apart = distance[:, process.places.codes[:, j]]
            kernel = correlation(layout, log_params, apart, q + j)
            values = np.arange(len(distance), dtype=np.float64)
            tables.append(_Table(values, places.codes[:, j], kernel, self.phases[j]))
        return tuple(tables)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """One dimension of some places, by the values that occur."""

    values: np.ndarray
    """Different ones, (n_values,)."""
    index: np.ndarray
    """Which of them each place has, (n,)."""
    kernel: np.ndarray
    """k_d to the training rows, (n_values, N)."""
    phase: np.ndarray
    """(n_values, M)."""


@dataclass(frozen=True, slots=True, eq=False)
class _Term:
    """Draws of the prior's additive term of one dimension."""

    dim: int
    by_value: np.ndarray | None
    """Of a choice's values, (n_values + 1, S)."""
    frequencies: np.ndarray
    amplitudes: np.ndarray

    @classmethod
    def draw(
        cls, process: GaussianProcess, dim: int, variance: float, rng: np.random.Generator, n: int
    ) -> "_Term":
        q = process.layout.n_numbers
        nothing = np.empty(0)
        if dim >= q:
            distance = process.of_choices[dim - q]
            covariance = variance * correlation(process.layout, process.log_params, distance, dim)
            drawn = _root(covariance) @ rng.standard_normal((len(covariance), n))
            return cls(dim, drawn, nothing, nothing)
        n_waves = N_WAVES // 4
        lots = (np.arange(n_waves) + rng.random(n_waves)) / n_waves
        amplitudes = rng.standard_normal((2 * n_waves, n)) * math.sqrt(variance / n_waves)
        return cls(dim, None, stdtrit(5.0, lots) / math.exp(process.log_params[dim]), amplitudes)

    def at(self, values: np.ndarray) -> np.ndarray:
        """Return the draws at these values, (n_values, S)."""
        if self.by_value is not None:
            return self.by_value
        phase = values[:, None] * self.frequencies
        waves = np.concatenate([np.cos(phase), np.sin(phase)], axis=1)
        return np.asarray(waves @ self.amplitudes, np.float64)


def _strata(rng: np.random.Generator, n_rows: int, n: int) -> np.ndarray:
    """Return a permutation of 0 ... n - 1 in each row, (n_rows, n)."""
    return rng.permuted(np.tile(np.arange(n, dtype=np.float64), (n_rows, 1)), axis=1)


def _root(covariance: np.ndarray) -> np.ndarray:
    """Return R with R R^T = covariance, which rounding may have left slightly indefinite."""
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), np.float64)


def _chunks(n: int) -> Iterator[slice]:
    for start in range(0, n, CHUNK):
        yield slice(start, start + CHUNK)
