"""Prior runs as evidence, discounted by their agreement with this run.

    z_k = f_k + b_k + e_k,    f_k = rho_k f + sqrt(1 - rho_k^2) g_k                                (1)

f is this run's surface and f_k that of prior run k. The drift g_k is as variable as f and
independent of it: the intrinsic coregionalization of Gaussian processes (Bonilla, Chai & Williams
2008). The level b_k is nearly free, so a prior run shows which candidates are better than others,
not how good they are. Divided by rho_k, it is a set of pseudo-observations of f at its points:

    z_k / rho_k = f + error,    Var(error) = (lambda_k - 1) K + lambda_k (R_k + b)                 (2)

lambda = 1 / rho^2 is the inflation. The prior of rho gives probability one half to 0, which
ignores the run. Its posterior given this run's rewards (3) uses

    p(z | z_k, rho) = N(rho H^T h, K + R - rho^2 H^T H),    [H, h] = L_k^-1 [K_k, z_k]             (4)

with L_k the Cholesky factor of K_kk + R_k + b. Drift varies like the surface, so many candidates
at one point never count for more than one observation of variance ``(lambda - 1) K``.
``MAX_WEIGHT`` bounds that further. Several runs may share their drift, so each one's is multiplied
by their number. Without agreement the process is returned unchanged.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from convergence_core.posterior.gaussian_process import JITTER, GaussianProcess
from convergence_core.posterior.warped_posterior import Warp
from convergence_core.space.arrays import Points

CORRELATIONS = (0.3, 0.5, 0.7, 0.85, 0.95)
"""Nonzero values of rho, equally likely a priori, together as likely as 0."""
MIN_CORRELATION = 0.3
"""Minimum expected rho; a run below it would count for less than a tenth and is ignored."""
MAX_WEIGHT = 5.0
"""Maximum weight of a prior run at one point, in candidates evaluated in this run."""
LEVEL_VARIANCE = 4.0
"""Variance of b, in units of the squared spread of this run's candidates."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EarlierRun:
    """Measurements of a prior run, of m candidates that are valid in today's space."""

    run_id: str
    points: Points
    mean: np.ndarray
    """Estimated mean rewards, (m,)."""
    errors: np.ndarray
    """Covariance of the errors of these estimates, in squared rewards, (m, m)."""
    log_params: np.ndarray
    """Log hyper-parameters of its process; the last, the scale of errors, is not transferred."""
    scale: float
    """Reward per unit of its process."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Scored:
    """A prior run in this run's units, with its agreement."""

    points: Points
    targets: np.ndarray
    errors: np.ndarray
    correlation: float
    log_params: np.ndarray
    gain: float
    """Log-likelihood advantage over ignoring the run."""


def newest_within(runs: Sequence[EarlierRun], n_rows: int) -> list[EarlierRun]:
    """Return the newest runs that have at most ``n_rows`` candidates together.

    The cost of a process grows with the cube of its rows, and a run's own candidates are the best
    evidence about it.
    """
    total = np.cumsum([len(run.mean) for run in runs])
    return [run for run, n in zip(runs, total, strict=True) if n <= n_rows]


def with_prior_runs(
    process: GaussianProcess,
    targets: np.ndarray,
    errors: np.ndarray,
    warp: Warp,
    runs: Sequence[EarlierRun],
) -> tuple[GaussianProcess, tuple[float, ...]]:
    """Return the process conditioned on agreeing prior runs, and each one's expected rho.

    rho is 0 for ignored runs.

    Args:
        process: Process fitted to this run alone.
        targets: Targets of that fit, (n,).
        errors: R of that fit, (n, n).
        warp: Warp of this run's rewards.
        runs: Prior runs.
    """
    scored = [_score(process, targets, errors, warp, run) for run in runs]
    used = [earlier_run for earlier_run in scored if earlier_run.correlation >= MIN_CORRELATION]
    agreement = tuple(
        earlier_run.correlation if earlier_run in used else 0.0 for earlier_run in scored
    )
    if not used:
        return process, agreement
    log_params = max(used, key=lambda earlier_run: earlier_run.gain).log_params
    points = process.points
    for earlier_run in used:
        points = points.join(earlier_run.points)
    covariance = process.kernel.between(log_params[:-1], points, points)
    n = len(targets)
    covariance[:n, :n] += _error_covariance(n, log_params) + math.exp(log_params[-1]) * errors
    begin = n
    for earlier_run in used:
        rows = slice(begin, begin + len(earlier_run.targets))
        begin = rows.stop
        inflation = earlier_run.correlation**-2
        block = covariance[rows, rows]
        covariance[rows, rows] = (  # (eq. 2)
            block
            + len(used) * (inflation - 1.0) * block
            + inflation * _noise(earlier_run.errors, log_params)
        )
    all_targets = np.concatenate(
        [targets, *(earlier_run.targets / earlier_run.correlation for earlier_run in used)]
    )
    conditioned = GaussianProcess.conditioned(
        process.kernel, points, all_targets, covariance, log_params
    )
    return conditioned, agreement


def _score(
    process: GaussianProcess,
    targets: np.ndarray,
    errors: np.ndarray,
    warp: Warp,
    run: EarlierRun,
) -> _Scored:
    """Weight every rho by the likelihood of this run's rewards given the prior run's (eq. 3)."""
    slope = warp.slope(run.mean)
    run_data = warp.forward(run.mean), slope[:, None] * run.errors * slope
    most = _max_correlation(process, errors)
    grid = np.array([0.0, *(min(rho, most) for rho in CORRELATIONS)])
    choices = (process.log_params, _in_units_of(process, warp, run))
    scores = np.array(
        [
            _log_likelihoods(process, log_params, (targets, errors), (run.points, *run_data), grid)
            - _penalty(process, log_params)
            for log_params in choices
        ]
    )  # (2, n_grid)
    score = scores.max(axis=0)
    log_prior = np.log([0.5, *[0.5 / len(CORRELATIONS)] * len(CORRELATIONS)])
    weight = np.exp(score + log_prior - (score + log_prior).max())
    best = int(score.argmax())
    return _Scored(
        points=run.points,
        targets=run_data[0],
        errors=run_data[1],
        correlation=float(weight @ grid / weight.sum()),
        log_params=choices[int(scores[:, best].argmax())],
        gain=float(score[best] - score[0]),
    )


def _log_likelihoods(
    process: GaussianProcess,
    log_params: np.ndarray,
    present_data: tuple[np.ndarray, np.ndarray],
    run_data: tuple[Points, np.ndarray, np.ndarray],
    grid: np.ndarray,
) -> np.ndarray:
    """Return log p(z | z_k, rho) up to a constant, (n_grid,)."""
    (targets, errors), (points, their_targets, their_errors) = present_data, run_data
    kernel, params = process.kernel, log_params[:-1]
    covariance = kernel.between(params, points, points) + _noise(their_errors, log_params)
    root = np.linalg.cholesky(covariance)
    across = kernel.between(params, points, process.points)
    both = solve_triangular(root, np.column_stack([across, their_targets]), lower=True)
    half, pull = both[:, :-1], both[:, -1]  # H and h of (eq. 4)
    plain = kernel.between(params, process.points, process.points)
    plain = plain + _error_covariance(len(targets), log_params)
    plain += math.exp(log_params[-1]) * errors
    known, expected = half.T @ half, half.T @ pull
    result = np.empty(len(grid))
    for i, rho in enumerate(grid):
        factor = np.linalg.cholesky(plain - rho**2 * known)
        left = solve_triangular(factor, targets - rho * expected, lower=True)
        result[i] = -np.log(np.diag(factor)).sum() - 0.5 * float(left @ left)
    return result


def _error_covariance(n: int, log_params: np.ndarray) -> np.ndarray:
    """Return the covariance of n candidates' individual effects, (n, n)."""
    return np.eye(n) * (math.exp(log_params[-2]) + JITTER)


def _noise(errors: np.ndarray, log_params: np.ndarray) -> np.ndarray:
    """Return R_k + b: errors, individual effects and level of a prior run, (m, m)."""
    return np.asarray(
        errors + _error_covariance(len(errors), log_params) + LEVEL_VARIANCE, np.float64
    )


def _max_correlation(process: GaussianProcess, errors: np.ndarray) -> float:
    """Return the highest rho at which a run counts for at most ``MAX_WEIGHT`` candidates."""
    of_one = process.noise * float(np.median(np.diag(errors)))
    smooth = process.smooth_variance
    return math.sqrt(MAX_WEIGHT * smooth / (MAX_WEIGHT * smooth + of_one))


def _in_units_of(process: GaussianProcess, warp: Warp, run: EarlierRun) -> np.ndarray:
    """Return a prior run's hyper-parameters in this run's units, with this run's error scale."""
    moved = run.log_params.copy()
    moved[process.kernel.n_dims : -1] += 2.0 * math.log(run.scale / warp.scale)
    moved[-1] = process.log_params[-1]
    return moved


def _penalty(process: GaussianProcess, log_params: np.ndarray) -> float:
    """Return minus the log prior of the kernel's hyper-parameters, up to a constant."""
    pull = (log_params[:-1] - process.kernel.prior_mean) / process.kernel.prior_sd
    return 0.5 * float(pull @ pull)
