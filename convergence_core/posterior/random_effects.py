"""Random effects of cases, with candidates absorbed.

A cell (i, j) of precision w_ij reads

    y_ij = a_i + b_j + e_ij,    b_j ~ N(0, variance),    Var(e_ij) = 1 / w_ij                      (1)

with a free. With a absorbed, b has (Henderson 1950)

    precision P = diag(sum_i w_ij + 1 / variance) - w^T diag(1 / sum_j w_ij) w                     (2)
    mean P^-1 sum_i w_ij (y_ij - ybar_i),    ybar_i = sum_j w_ij y_ij / sum_j w_ij                 (3)
    next variance = sum_j b_j^2 / dof,    dof = sum_j (1 - Var(b_j) / variance)                    (4)

the last by the steps of Fellner (1986) and Schall (1991) to restricted likelihood: those of
expectation-maximization are too short where candidates share few cases.

Notation: M candidates, N cases.

    value(i, j) = m + a_i + b_j + e_ij,    a_i ~ N(0, s_a^2),  b_j ~ N(0, s_b^2),  e_ij ~ N(0, s_e^2)  (1)
    adjusted mean(i) = m + a_i + sum_j w_j b_j                                                     (2)

The best linear unbiased prediction of the mean over all cases, by a two-way random-effects model
(Henderson 1975): a candidate with easy cases gains nothing by them, and one with few
cases is shrunk to the average. With the cases absorbed, u = (m, a) has

    (X^T X + diag(s_e^2 / s_a^2) - C D C^T) u = X^T y - C D Z^T y,    b = D (Z^T y - C^T u)        (3)

where C are the counts of (m, a) by case and D = diag(1 / (n_j + s_e^2 / s_b^2)). Variances are of
restricted likelihood, in the steps of Schall (1991) (4).

Notation: M candidates, N cases, w_j the cases' shares in the mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dtrtri

from convergence_core.posterior.evidence import Evidence

MIN_DOF = 1e-3
"""Degrees of freedom that effects count for at least; none: nothing tells them."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RandomEffectsFit:
    """Posterior of b given variances; its covariance is diag(d) + F^T F."""

    total: np.ndarray
    """Precision of each candidate were b known, (M,)."""
    share: np.ndarray
    """Of each cell in its candidate's precision, (M, N)."""
    plain: np.ndarray
    """Means of a candidate's cells by precision, (M,)."""
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
            response: a_i + b_j with noise, anything where nothing was seen, (M, N).
            precision: of each cell, 0 where nothing was seen, (M, N).
            variance: of b; 0: there are no effects.
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
        """Return the next estimate of b's variance, and the degrees of freedom it rests on (eq. 4).

        Args:
            variance: of b in this fit.
            shown: whether a case was asked, (N,).
        """
        dof = float((1.0 - self.effect_variance / variance)[shown].sum())
        return float((self.effect[shown] ** 2).sum()) / max(dof, MIN_DOF), dof

    def errors(self, loading: np.ndarray, variances: np.ndarray) -> np.ndarray:
        """Return the covariance of numbers that move with b, (M, M).

        Args:
            loading: how each moves with b, (M, N).
            variances: variances of each that no other shares, (M,).
        """
        apart, half = loading * np.sqrt(self.diagonal), loading @ self.factor.T
        return np.asarray(np.diag(variances) + apart @ apart.T + half @ half.T, np.float64)


def cell_weights(evidence: Evidence) -> np.ndarray:
    """Return how many plain cells each cell counts for, (M, N); rows sum to Kish's number."""
    weight = evidence.count * evidence.case_weight
    total = weight.sum(axis=1, keepdims=True)
    counted = np.where(evidence.count > 0, weight**2 / np.maximum(evidence.count, 1.0), 0.0)
    effective = total**2 / counted.sum(axis=1, keepdims=True)
    return np.asarray(weight * effective / total, np.float64)


def _covariance(
    precision: np.ndarray, share: np.ndarray, variance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return d and F (eq. 2), by way of the smaller of two matrices."""
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


N_ROUNDS = 12
"""Rounds of estimating variances at most."""
TOLERANCE = 0.02
"""Relative change of the variances at which the rounds end; less changes no means to speak of."""
MIN_VARIANCE = 1e-9
"""In units of the variance of all cells."""


def adjusted_means(
    cells: Sequence[tuple[str, str, float, int]],
    *,
    case_weights: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return candidate → mean of one metric over all cases seen, in the metric's unit.

    Args:
        cells: (candidate, case, mean over repeats, repeats), finite, each pair once.
        case_weights: case → positive weight; absent ones weigh 1.
    """
    if not cells:
        return {}
    names, case_ids, values, repeats = zip(*cells, strict=True)
    candidates = {name: i for i, name in enumerate(dict.fromkeys(names))}
    cases = {name: j for j, name in enumerate(dict.fromkeys(case_ids))}
    at = [candidates[name] for name in names], [cases[case] for case in case_ids]
    value = np.array(values, dtype=np.float64)
    share = np.array([(case_weights or {}).get(name, 1.0) for name in cases], dtype=np.float64)
    share /= share.sum()
    center, spread = float(value.mean()), float(value.std())
    if spread <= 0.0:
        return dict.fromkeys(candidates, center)
    count = np.zeros((len(candidates), len(cases)))
    count[at] = repeats
    scaled = np.zeros_like(count)
    scaled[at] = (value - center) / spread
    predicted = _predicted(scaled, count, share)
    return {name: center + spread * float(predicted[i]) for name, i in candidates.items()}


def _predicted(value: np.ndarray, count: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return the adjusted means, (M,).

    Args:
        value: of each cell, 0 where nothing was seen, (M, N).
        count: repeats, 0 where nothing was seen, (M, N).
        share: w, (N,).
    """
    n_candidates, n_cases = count.shape
    n_cells = float((count > 0).sum())
    square = float((count * value**2).sum())
    variances = np.array([0.3, 0.3, 0.4])  # of a, of b, of a cell
    solution = _Solution.of(value, count, variances)
    for _ in range(N_ROUNDS):
        dof_a = n_candidates - solution.spare_a / variances[0]
        dof_b = n_cases - solution.spare_b / variances[1]
        rest = max(square - solution.explained, 0.0) / max(n_cells - 1.0 - dof_a - dof_b, 1.0)
        before = variances
        of_a = float(solution.a @ solution.a) / max(dof_a, MIN_DOF)
        of_b = float(solution.b @ solution.b) / max(dof_b, MIN_DOF)
        variances = np.maximum([of_a, of_b, rest], MIN_VARIANCE)  # (eq. 4)
        solution = _Solution.of(value, count, variances)
        if np.allclose(before, variances, rtol=TOLERANCE, atol=MIN_VARIANCE):
            break
    return np.asarray(solution.mean + solution.a + share @ solution.b, np.float64)  # (eq. 2)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Solution:
    """Effects given the variances."""

    mean: float
    a: np.ndarray
    """(M,)."""
    b: np.ndarray
    """(N,)."""
    spare_a: float
    """Sum of the variances of the errors of a."""
    spare_b: float
    explained: float
    """Sum of squares that the effects explain."""

    @classmethod
    def of(cls, value: np.ndarray, count: np.ndarray, variances: np.ndarray) -> "_Solution":
        """Solve Henderson's equations with the cases absorbed (eq. 3).

        Args:
            value: of each cell, 0 where nothing was seen, (M, N).
            count: repeats, (M, N).
            variances: of a, of b, of a cell, (3,).
        """
        of_a, of_b, noise = (float(variance) for variance in variances)
        weighted = count * value
        # C and X^T X, (1 + M, N) and (1 + M, 1 + M).
        across = np.vstack([count.sum(axis=0), count])
        normal = np.diag(np.concatenate([[count.sum()], count.sum(axis=1)]))
        normal[0, 1:] = normal[1:, 0] = count.sum(axis=1)
        penalty = np.concatenate([[0.0], np.full(len(count), noise / of_a)])
        variance = 1.0 / (count.sum(axis=0) + noise / of_b)  # (N,)
        pull = np.concatenate([[weighted.sum()], weighted.sum(axis=1)])
        pull_b = weighted.sum(axis=0)
        inverse = np.linalg.inv(normal + np.diag(penalty) - (across * variance) @ across.T)
        u = inverse @ (pull - across @ (variance * pull_b))
        b = variance * (pull_b - across.T @ u)
        loading = across * variance  # (1 + M, N)
        spare_b = variance.sum() + float(np.einsum("ij,ij->", loading, inverse @ loading))
        shrunk = float(penalty @ u**2) + noise / of_b * float(b @ b)
        return cls(
            mean=float(u[0]),
            a=u[1:],
            b=b,
            spare_a=noise * float(np.trace(inverse)) - noise * float(inverse[0, 0]),
            spare_b=noise * float(spare_b),
            explained=float(u @ pull + b @ pull_b) + shrunk,
        )
