"""Effects of a two-way fit, and their significance.

Effects are those of a weighted two-way fit,

    value(setting, level) = setting + effect(level) + rest                                         (1)

which is exact for additive effects, even with missing combinations. An interaction is the rest of
a mean over settings beyond both effects,

    rest(j, k) = mean(j, k) - first(j) - second(k)                                                 (2)

Draws never have variance 0. So an effect is significant only if zero lies outside the ball around
the posterior mean with all but the given error probability. The radius is that of a chi-squared
distribution with the draws' mean and variance (Satterthwaite 1946),

    scale = variance / (2 mean),    dof = 2 mean^2 / variance                                      (3)

Notation: S draws.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from convergence_core.explanation.records import LEVEL

TINY = 1e-12
"""Variance that counts as 0."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Combinations:
    """Combinations of two parameters' values, with a basis of their additive functions."""

    first: np.ndarray
    """Index of the first parameter's value, (n_cells,)."""
    second: np.ndarray
    weights: np.ndarray
    """Weights with sum 1, (n_cells,)."""
    basis: np.ndarray
    """Orthonormal basis of the weighted additive functions, (n_cells, n_basis)."""
    root: np.ndarray
    """Square roots of the weights before normalization, (n_cells, 1)."""

    @classmethod
    def of(
        cls, cells: np.ndarray, weights: tuple[np.ndarray, np.ndarray]
    ) -> "Combinations | None":
        """Return the existing combinations; ``None`` if they allow no interaction.

        Args:
            cells: Whether each combination exists, (n_first * n_second,).
            weights: Weights of each parameter's values, (n_first,) and (n_second,).
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
            values: Values of each setting in turn, (n_settings * n_cells, S).
        """
        mean = values.reshape(-1, len(self.weights), values.shape[1]).mean(axis=0)
        weighted = mean * self.root
        return np.asarray(mean - self.basis @ (self.basis.T @ weighted) / self.root, np.float64)


def column_effects(values: np.ndarray, keeps: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the columns' effects of a two-way fit, weighted mean 0, (n_columns, S) (eq. 1).

    Args:
        values: Values, (n_rows, n_columns, S).
        keeps: Whether each value exists, (n_rows, n_columns).
        weights: Weights of the columns, (n_columns,).
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
    """Return whether the effect is significant: zero lies outside the ball around the mean.

    Args:
        drawn: Drawn effects, (n_levels, S).
        weights: Weights of the levels, (n_levels,).
        error: Probability outside the ball.
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
    """Return the mean of drawn shares, clipped to [0, 1]."""
    return float(np.clip(np.asarray(drawn).mean(), 0.0, 1.0))
