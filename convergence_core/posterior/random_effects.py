"""Random effects of cases, with candidates absorbed.

A cell (i, j) of precision w_ij follows

    y_ij = a_i + b_j + e_ij,    b_j ~ N(0, variance),    Var(e_ij) = 1 / w_ij                      (1)

with a free. After absorbing a, b has (Henderson 1950)

    precision P = diag(sum_i w_ij + 1 / variance) - w^T diag(1 / sum_j w_ij) w                     (2)
    mean P^-1 sum_i w_ij (y_ij - ybar_i),    ybar_i = sum_j w_ij y_ij / sum_j w_ij                 (3)
    next variance = sum_j b_j^2 / dof,    dof = sum_j (1 - Var(b_j) / variance)                    (4)

The last equation is a step of Fellner (1986) and Schall (1991) to restricted likelihood.
Expectation-maximization takes too short steps if candidates share few cases.

Notation: M candidates, N cases.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dtrtri

from convergence_core.posterior.evidence import Evidence

MIN_DOF = 1e-3
"""Minimum degrees of freedom of the effects, to avoid division by 0."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RandomEffectsFit:
    """Posterior of b for given variances, with covariance diag(d) + F^T F."""

    total: np.ndarray
    """Precision of each candidate's mean if b were known, (M,)."""
    share: np.ndarray
    """Share of each cell in its candidate's precision, (M, N)."""
    plain: np.ndarray
    """Precision-weighted mean of each candidate's cells, (M,)."""
    effect: np.ndarray
    """Posterior means of b, (N,)."""
    diagonal: np.ndarray
    """d, (N,)."""
    factor: np.ndarray
    """F, (n, N)."""

    @classmethod
    def solve(
        cls, response: np.ndarray, precision: np.ndarray, variance: float
    ) -> "RandomEffectsFit":
        """Return the posterior.

        Args:
            response: a_i + b_j with noise, arbitrary for unseen cells, (M, N).
            precision: Precision of each cell, 0 for unseen cells, (M, N).
            variance: Variance of b; 0 means no case effects.
        """
        total = precision.sum(axis=1)
        share = precision / total[:, None]
        plain = (share * response).sum(axis=1)
        diagonal, factor = _covariance(precision, share, variance)
        pull = (precision * (response - plain[:, None])).sum(axis=0)
        effect = diagonal * pull + factor.T @ (factor @ pull)  # (eq. 3)
        return cls(
            total=total,
            share=share,
            plain=plain,
            effect=effect,
            diagonal=diagonal,
            factor=factor,
        )

    @property
    def free(self) -> np.ndarray:
        """Candidates' effects a, (M,)."""
        return np.asarray(self.plain - self.share @ self.effect, np.float64)

    @property
    def effect_variance(self) -> np.ndarray:
        """Variances of b, (N,)."""
        return np.asarray(self.diagonal + (self.factor**2).sum(axis=0), np.float64)

    def next_variance(self, variance: float, shown: np.ndarray) -> tuple[float, float]:
        """Return the next estimate of b's variance, and its degrees of freedom (eq. 4).

        Args:
            variance: Variance of b in this fit.
            shown: Whether each case has a reward, (N,).
        """
        dof = float((1.0 - self.effect_variance / variance)[shown].sum())
        return float((self.effect[shown] ** 2).sum()) / max(dof, MIN_DOF), dof

    def errors(self, loading: np.ndarray, variances: np.ndarray) -> np.ndarray:
        """Return the covariance of M linear functions of b, (M, M).

        Args:
            loading: Coefficients on b, (M, N).
            variances: Independent variance of each function, (M,).
        """
        apart, half = loading * np.sqrt(self.diagonal), loading @ self.factor.T
        return np.asarray(np.diag(variances) + apart @ apart.T + half @ half.T, np.float64)


def cell_weights(evidence: Evidence) -> np.ndarray:
    """Return the effective number of cells per cell, (M, N); rows sum to Kish's number."""
    weight = evidence.count * evidence.case_weight
    total = weight.sum(axis=1, keepdims=True)
    counted = np.where(evidence.count > 0, weight**2 / np.maximum(evidence.count, 1.0), 0.0)
    effective = total**2 / counted.sum(axis=1, keepdims=True)
    return np.asarray(weight * effective / total, np.float64)


def _covariance(
    precision: np.ndarray, share: np.ndarray, variance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return d and F (eq. 2), by inverting the smaller of two matrices."""
    n_members, n_cases = precision.shape
    if not variance:
        return np.zeros(n_cases), np.zeros((0, n_cases))
    of_case = precision.sum(axis=0) + 1.0 / variance
    if n_cases <= n_members:
        root = np.linalg.cholesky(np.diag(of_case) - precision.T @ share)
        inverse_root, _ = dtrtri(root, lower=1)
        return np.zeros(n_cases), np.asarray(inverse_root, np.float64)
    total = precision.sum(axis=1)
    per_case = precision / of_case
    root = np.linalg.cholesky(np.diag(total) - per_case @ precision.T)
    half = solve_triangular(root, per_case, lower=True, check_finite=False)
    return 1.0 / of_case, np.asarray(half, np.float64)
