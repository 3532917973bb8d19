"""Adjusted means of a metric, for candidates that were asked different cases.

    value(i, j) = m + a_i + b_j + e_ij,    a_i ~ N(0, s_a^2),  b_j ~ N(0, s_b^2),  e_ij ~ N(0, s_e^2)  (1)
    adjusted mean(i) = m + a_i + sum_j w_j b_j                                                     (2)

The best linear unbiased prediction of the mean over all cases, by a two-way random-effects model
(Henderson 1975): a candidate that was asked the easy cases gains nothing by it, and one that was
asked few is shrunk to the average. With the cases absorbed, u = (m, a) has

    (X^T X + diag(s_e^2 / s_a^2) - C D C^T) u = X^T y - C D Z^T y,    b = D (Z^T y - C^T u)        (3)

where C are the counts of (m, a) by case and D = diag(1 / (n_j + s_e^2 / s_b^2)). Variances are of
restricted likelihood, in the steps of Schall (1991) (4).

Notation: M candidates, N cases, w_j the cases' shares in the mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.posterior.random_effects import MIN_DOF

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
    found = _predicted(scaled, count, share)
    return {name: center + spread * float(found[i]) for name, i in candidates.items()}


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
    found = _Solution.of(value, count, variances)
    for _ in range(N_ROUNDS):
        dof_a = n_candidates - found.spare_a / variances[0]
        dof_b = n_cases - found.spare_b / variances[1]
        rest = max(square - found.explained, 0.0) / max(n_cells - 1.0 - dof_a - dof_b, 1.0)
        before = variances
        of_a = float(found.a @ found.a) / max(dof_a, MIN_DOF)
        of_b = float(found.b @ found.b) / max(dof_b, MIN_DOF)
        variances = np.maximum([of_a, of_b, rest], MIN_VARIANCE)  # (eq. 4)
        found = _Solution.of(value, count, variances)
        if np.allclose(before, variances, rtol=TOLERANCE, atol=MIN_VARIANCE):
            break
    return np.asarray(found.mean + found.a + share @ found.b, np.float64)  # (eq. 2)


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
        own = 1.0 / (count.sum(axis=0) + noise / of_b)  # (N,)
        pull = np.concatenate([[weighted.sum()], weighted.sum(axis=1)])
        pull_b = weighted.sum(axis=0)
        inverse = np.linalg.inv(normal + np.diag(penalty) - (across * own) @ across.T)
        u = inverse @ (pull - across @ (own * pull_b))
        b = own * (pull_b - across.T @ u)
        loading = across * own  # (1 + M, N)
        spare_b = own.sum() + float(np.einsum("ij,ij->", loading, inverse @ loading))
        shrunk = float(penalty @ u**2) + noise / of_b * float(b @ b)
        return cls(
            mean=float(u[0]),
            a=u[1:],
            b=b,
            spare_a=noise * float(np.trace(inverse)) - noise * float(inverse[0, 0]),
            spare_b=noise * float(spare_b),
            explained=float(u @ pull + b @ pull_b) + shrunk,
        )
