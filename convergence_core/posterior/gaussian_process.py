"""Gaussian process regression over a mixed space.

    z = f + e,    f ~ N(0, K),    e ~ N(0, v R)                                                    (1)
    log p(z) = -z^T (K + v R)^-1 z / 2 - log |K + v R| / 2                                         (2)
    d log p / d theta = tr((w w^T - (K + v R)^-1) dK / d theta) / 2,    w = (K + v R)^-1 z         (3)
    E[f*] = k*^T w,    Cov[f*] = K** - k*^T (K + v R)^-1 k*                                        (4)

(Rasmussen & Williams 2006, §2.2 and §5.4.1). R, the covariance of the measurement errors, is
given. It need not be diagonal, since candidates on the same cases share the luck of these cases.
Its scale v is learned, freely or near a known value. Repeats of measurements have a separate
likelihood without f and candidates' individual effects, so they separate v from both:

    log p(S | v) = -nu / 2 log v - S / (2 v)                                                       (5)

S is the sum of squares within candidates, nu its degrees of freedom. Hyper-parameters maximize the
posterior density, by L-BFGS-B with analytic gradients. Few measurements leave them uncertain.
Their posterior is approximately normal, with the precision of Fisher's information and of their
priors,

    P_ij = tr(C^-1 C_i C^-1 C_j) / 2 + [i = j] / sd_i^2,    C = K + v R                            (6)

(Mardia & Marshall 1984), C_i the derivative of C. To first order they add to the variance of a
claim

    Var[f*] = Var[f* | theta] + J^T P^-1 J,    J_i = dE[f*] / d theta_i = k_i*^T w - k*^T C^-1 C_i w  (7)

Centering the targets treats their mean as known. If it is uncertain, because all share the luck of
few cases, ordinary kriging adds

    (1 - 1^T C^-1 k*)^2 / 1^T C^-1 1                                                               (8)
"""

import math
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.special import gammaincinv

from convergence_core.posterior.kernel import Distances, Kernel
from convergence_core.space.arrays import Points

BLOCK = 128
"""Candidates per block of marginals: an array of 300 kB fits a processor's cache."""
JITTER = 1e-6
MAX_JITTER = 1e-1
"""Maximum jitter in units of the mean variance, far above rounding."""
UPDATE_JITTER = 1e-8
"""Jitter of additional measurements, in units of the mean variance."""
N_BOUND_SDS = 4.0
"""Bounds of hyper-parameters, in prior standard deviations from the mean."""
N_SAMPLE = 75
"""Measurements in a first fit that finds a start for the full fit, if there are twice as many."""
N_LAST_STEPS = 12
"""Optimizer iterations of the full fit from that start."""
SURE = 1e-3
"""Minimum standard deviation of log v, for a known v."""


@dataclass(frozen=True, slots=True)
class NoisePrior:
    """Normal prior of log v, in units of the standardized targets' variance."""

    median: float
    log_sd: float
    least: float = 0.0
    """Lower bound of v; 0 means no extra bound."""


FREE_NOISE = NoisePrior(0.2, 1.2, least=1e-4)
"""Prior of an unknown v."""
MEASURED_NOISE = NoisePrior(1.0, 0.02)
"""Prior of v for measured errors, which are nearly fixed. Without it, the process halves the
errors, takes luck for merit, and recommends the luckiest candidate."""
NO_NOISE = NoisePrior(1e-6, 0.02)
"""Prior of v for measurements without noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Sufficient statistics of repeated measurements for v."""

    square: float
    """S, in squared units of the targets."""
    dof: int
    """nu, at least 1."""

    def highest(self, level: float) -> float:
        """Return the upper confidence limit of v: S / v follows a chi-squared distribution."""
        return self.square / (2.0 * float(gammaincinv(0.5 * self.dof, 1.0 - level)))


@dataclass(frozen=True, slots=True, eq=False)
class GaussianProcess:
    """A fitted process."""

    kernel: Kernel
    points: Points
    """Points of the n measurements."""
    log_params: np.ndarray
    """Kernel's hyper-parameters, then log v, (D + 3,)."""
    factor: np.ndarray
    """Lower Cholesky factor L of K + v R, (n, n)."""
    weights: np.ndarray
    """w, (n,)."""
    noise_log_sd: float = 0.0
    """Standard deviation of log v under its prior and repeats; 0 means that v is known."""

    @classmethod
    def fit(
        cls,
        kernel: Kernel,
        points: Points,
        targets: np.ndarray,
        errors: np.ndarray,
        *,
        noise: NoisePrior,
        repeats: Repeats | None = None,
        start: np.ndarray | None = None,
        n_steps: int = 20,
    ) -> "GaussianProcess":
        """Fit a process to n measurements.

        Args:
            kernel: Kernel with priors of its hyper-parameters.
            points: Points of distinct candidates.
            targets: Standardized measurements z, (n,).
            errors: R, (n, n), positive semi-definite.
            noise: Prior of v.
            repeats: Repeats of single measurements, whose errors have variance v, or ``None``.
            start: Initial log hyper-parameters; ``None`` means the prior's medians.
            n_steps: Optimizer iterations; 0 keeps ``start``.
        """
        if start is None and len(targets) >= 2 * N_SAMPLE:
            sample = np.linspace(0, len(targets) - 1, N_SAMPLE).astype(np.intp)
            start = cls.fit(
                kernel,
                points.take(sample),
                targets[sample],
                errors[np.ix_(sample, sample)],
                noise=noise,
                repeats=repeats,
                n_steps=n_steps,
            ).log_params
            n_steps = min(n_steps, N_LAST_STEPS)
        problem = _Problem.of(kernel, kernel.distances(points, points), targets, errors, noise)
        problem = replace(problem, repeats=repeats)
        begin = problem.mean
        if start is not None:
            # Values outside come from a fit with different bounds.
            inside = (problem.low <= start) & (start <= problem.high)
            begin = np.where(inside, start, problem.mean)
        if n_steps:
            from scipy.optimize import minimize  # noqa: PLC0415 - reports skip this import

            optimum = minimize(
                problem.value_and_gradient,
                begin,
                jac=True,
                method="L-BFGS-B",
                bounds=list(zip(problem.low, problem.high, strict=True)),
                options={"maxiter": n_steps, "maxfun": n_steps + 5},
            )
            begin = np.asarray(optimum.x, np.float64)
        precision = noise.log_sd**-2 + (0.5 * repeats.dof if repeats else 0.0)
        fitted = cls.conditioned(kernel, points, targets, problem.covariance(begin), begin)
        return replace(fitted, noise_log_sd=precision**-0.5)

    @classmethod
    def conditioned(
        cls,
        kernel: Kernel,
        points: Points,
        targets: np.ndarray,
        covariance: np.ndarray,
        log_params: np.ndarray,
    ) -> "GaussianProcess":
        """Condition a process on measurements, with fixed hyper-parameters.

        Args:
            kernel: Kernel of the surface.
            points: Points of the candidates, (n,); repeats are allowed.
            targets: Standardized measurements, (n,).
            covariance: Covariance of the targets, including errors, (n, n).
            log_params: Log hyper-parameters of the kernel, then log v.
        """
        factor = cholesky_factor(covariance)
        weights = np.asarray(cho_solve((factor, True), targets), np.float64)
        return cls(kernel, points, log_params, factor, weights)

    def with_measurements(
        self, points: Points, targets: np.ndarray, variances: np.ndarray
    ) -> "GaussianProcess":
        """Return the process after m additional measurements, with the same hyper-parameters.

        The Cholesky factor grows by blocks: L' = [[L, 0], [B, C]], B = (L^-1 k)^T, C C^T = k'' +
        diag(variances) - B B^T.

        Args:
            points: Points of the m measurements; they become rows n to n + m - 1.
            targets: Standardized measurements, (m,).
            variances: Error variances, (m,).
        """
        params = self.log_params[:-1]
        cross = self.kernel.between(params, self.points, points)
        prior_covariance = self.kernel.between(params, points, points)
        below = solve_triangular(self.factor, cross, lower=True, check_finite=False).T  # (m, n)
        rest = prior_covariance + np.diag(variances) - below @ below.T
        scale = float(np.diag(prior_covariance).mean())
        corner = np.linalg.cholesky(rest + np.eye(len(rest)) * UPDATE_JITTER * scale)
        n, m = len(self.factor), len(rest)
        factor = np.zeros((n + m, n + m))
        factor[:n, :n], factor[n:, :n], factor[n:, n:] = self.factor, below, corner
        before = self.factor @ (self.factor.T @ self.weights)  # z = L L^T w
        weights = cho_solve((factor, True), np.concatenate([before, targets]))
        return replace(
            self,
            points=self.points.join(points),
            factor=factor,
            weights=np.asarray(weights, np.float64),
        )

    def with_errors(self, change: np.ndarray) -> "GaussianProcess":
        """Return the process with changed errors of the first m measurements, without a new fit.

        Args:
            change: Change of the diagonal of R, which stays positive semi-definite, (m,).
        """
        covariance, first = self.factor @ self.factor.T, np.arange(len(change))
        targets = covariance @ self.weights
        covariance[first, first] += self.noise * change
        return replace(
            self.conditioned(self.kernel, self.points, targets, covariance, self.log_params),
            noise_log_sd=self.noise_log_sd,
        )

    @property
    def noise(self) -> float:
        """Scale of the errors, v."""
        return math.exp(self.log_params[-1])

    @property
    def nugget_variance(self) -> float:
        """Variance of a candidate's individual effect."""
        return math.exp(self.log_params[-2])

    @property
    def smooth_variance(self) -> float:
        """Prior variance of the surface, without individual effects."""
        return self.kernel.smooth_variance(self.log_params[:-1])

    @property
    def prior_variance(self) -> float:
        """Prior variance of a candidate, including its individual effect."""
        return self.smooth_variance + self.nugget_variance

    def marginals(self, points: Points, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior means and variances, (n,) each.

        They exclude an unseen candidate's individual effect: it is unknown, so no choice can use
        it.

        Args:
            points: Points of the candidates.
            rows: Training row of each candidate, -1 if unseen, (n,).
        """
        prior = np.full(len(points), self.smooth_variance)
        prior[rows >= 0] += self.nugget_variance
        mean, explained = np.empty(len(points)), np.empty(len(points))
        for begin in range(0, len(points), BLOCK):
            block = np.arange(begin, min(begin + BLOCK, len(points)))
            mean[block], half = self._project(points.take(block), rows[block])
            explained[block] = (half * half).sum(axis=0)
        return mean, np.maximum(prior - explained, 1e-10)  # (eq. 4)

    def joint(self, points: Points, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior mean, (n,), and covariance, (n, n); see ``marginals``."""
        mean, half = self._project(points, rows)
        prior = self.kernel.between(self.log_params[:-1], points, points)
        is_same = (rows[:, None] == rows) & (rows >= 0)
        return mean, prior - half.T @ half + self.nugget_variance * is_same  # (eq. 4)

    def level_variance(self, points: Points, rows: np.ndarray) -> np.ndarray:
        """Return the variance from the unknown mean of all measurements, (m,) (eq. 8).

        Args:
            points: Points of m candidates.
            rows: See ``marginals``.
        """
        cross = self.kernel.between(self.log_params[:-1], points, self.points)
        seen = np.flatnonzero(rows >= 0)
        cross[seen, rows[seen]] += self.nugget_variance
        solved = cho_solve((self.factor, True), np.ones(len(self.weights)))
        return np.asarray((1.0 - cross @ solved) ** 2 / solved.sum(), np.float64)

    def total_variance(self, points: Points, rows: np.ndarray) -> np.ndarray:
        """Return variances that include uncertain hyper-parameters and mean, (m,) (eq. 7, 8).

        Args:
            points: Points of m candidates.
            rows: See ``marginals``.
        """
        params, w = self.log_params[:-1], self.weights
        distances, across = (
            self.kernel.distances(points_, self.points) for points_ in (self.points, points)
        )
        known = self.kernel.covariance(params, distances)
        cross = self.kernel.covariance(params, across)
        is_own = self.nugget_variance * (
            (rows[:, None] == np.arange(len(w))) & (rows >= 0)[:, None]
        )
        errors = self.factor @ self.factor.T - known  # v R
        errors[np.diag_indices_from(errors)] -= self.nugget_variance + JITTER
        inverse = cho_solve((self.factor, True), np.eye(len(w)))
        solved = inverse @ (cross + is_own).T  # (n, m)
        turned = np.empty((len(self.log_params), len(w), len(w)))  # C^-1 C_i
        jacobian = np.empty((len(turned), len(points)))  # (D + 3, m)
        of_kernel = (
            (
                known * self.kernel.log_slope(params, distances, d),
                cross * self.kernel.log_slope(params, across, d),
            )
            for d in range(self.kernel.n_dims)
        )
        others = (
            (known, cross),
            (np.eye(len(w)) * self.nugget_variance, is_own),
            (errors, np.zeros_like(cross)),
        )
        for i, (slope, cross_slope) in enumerate(chain(of_kernel, others)):  # C_i
            np.matmul(inverse, slope, out=turned[i])
            jacobian[i] = cross_slope @ w - solved.T @ (slope @ w)
        flat = turned.reshape(len(turned), -1)
        flat_turned = turned.transpose(0, 2, 1).reshape(flat.shape)
        sd = np.append(self.kernel.prior_sd, max(self.noise_log_sd, SURE))
        precision = 0.5 * flat @ flat_turned.T + np.diag(sd**-2)  # (eq. 6)
        doubt = (jacobian * np.linalg.solve(precision, jacobian)).sum(axis=0)
        doubt += self.level_variance(points, rows)
        return np.asarray(self.marginals(points, rows)[1] + doubt, np.float64)

    def _project(self, points: Points, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior means and L^-1 k(training, points), (n_training, n)."""
        cross = self.kernel.between(self.log_params[:-1], points, self.points)
        seen = np.flatnonzero(rows >= 0)
        cross[seen, rows[seen]] += self.nugget_variance
        half = solve_triangular(self.factor, cross.T, lower=True, check_finite=False)
        return cross @ self.weights, np.asarray(half, np.float64)  # (eq. 4)


def cholesky_factor(covariance: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor, (n, n).

    If rounding leaves the matrix slightly indefinite, the diagonal gets the necessary jitter.

    Raises:
        numpy.linalg.LinAlgError: No jitter suffices, or a number is not finite.
    """
    if not np.isfinite(covariance).all():
        raise np.linalg.LinAlgError(
            "the covariance of the rewards holds numbers that are not finite"
        )
    jitter = 0.0
    scale = float(np.diag(covariance).mean())
    while True:
        try:
            return np.linalg.cholesky(covariance + np.eye(len(covariance)) * (jitter * scale))
        except np.linalg.LinAlgError:
            jitter = max(10.0 * jitter, 1e-9)
            if jitter > MAX_JITTER:
                raise


def matrix_root(covariance: np.ndarray, *, jitter: float = 0.0) -> np.ndarray:
    """Return R with R R^T = covariance, a matrix that may be slightly indefinite by rounding.

    Args:
        covariance: Covariance, (n, n).
        jitter: Added to the diagonal for the Cholesky factor; if that fails, R uses eigenvectors.
    """
    try:
        return np.linalg.cholesky(covariance + np.eye(len(covariance)) * jitter)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """Minus log posterior of the hyper-parameters, for the optimizer."""

    kernel: Kernel
    pairs: tuple[np.ndarray, np.ndarray]
    """Rows i > j of the pairs of different candidates, (n_pairs,) each."""
    distances: Distances
    """Distances of these pairs."""
    targets: np.ndarray
    errors: np.ndarray
    """R of these pairs, (n_pairs,)."""
    own_errors: np.ndarray
    """The diagonal of R, (n,)."""
    mean: np.ndarray
    """Means of the normal priors of all log hyper-parameters."""
    sd: np.ndarray
    low: np.ndarray
    high: np.ndarray
    repeats: Repeats | None = None

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        distances: Distances,
        targets: np.ndarray,
        errors: np.ndarray,
        noise: NoisePrior,
    ) -> "_Problem":
        """Return the problem with priors of the kernel and of v; distances are (D, n, n)."""
        below = np.tril_indices(len(targets), -1)
        mean = np.append(kernel.prior_mean, math.log(noise.median))
        sd = np.append(kernel.prior_sd, noise.log_sd)
        low, high = mean - N_BOUND_SDS * sd, mean + N_BOUND_SDS * sd
        if noise.least:
            low[-1] = math.log(noise.least)
        of_pairs, own = distances.of_pairs(below), np.diag(errors)
        return cls(kernel, below, of_pairs, targets, errors[below], own, mean, sd, low, high)

    def covariance(self, log_params: np.ndarray) -> np.ndarray:
        """Return K + v R, (n, n) (eq. 1)."""
        lower = self._lower(log_params, self.kernel.covariance(log_params[:-1], self.distances))
        return np.asarray(lower + np.tril(lower, -1).T, np.float64)

    def _lower(self, log_params: np.ndarray, of_pairs: np.ndarray) -> np.ndarray:
        """Return the lower triangle of K + v R from the covariances of the pairs, (n, n)."""
        noise, n = math.exp(log_params[-1]), len(self.targets)
        total = np.zeros((n, n), order="F")
        total[self.pairs] = noise * self.errors + of_pairs
        own = self.kernel.smooth_variance(log_params[:-1]) + math.exp(log_params[-2]) + JITTER
        total[np.diag_indices_from(total)] = noise * self.own_errors + own
        return total

    def value_and_gradient(self, log_params: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus log posterior, up to a constant, and its gradient."""
        of_pairs = self.kernel.covariance(log_params[:-1], self.distances)
        factor, failed = dpotrf(self._lower(log_params, of_pairs), lower=1)
        if failed:
            return 1e10, np.zeros_like(log_params)
        inverse, _ = dpotri(factor, lower=1)
        solved = cho_solve((factor, True), self.targets)
        pull = (log_params - self.mean) / self.sd
        value = (
            0.5 * float(self.targets @ solved)
            + float(np.log(np.diag(factor)).sum())  # (eq. 2)
            + 0.5 * float(pull @ pull)
        )
        first, second = self.pairs
        twice = inverse[self.pairs] - solved[first] * solved[second]  # (eq. 3), both orders
        own = 0.5 * (np.diag(inverse) - solved**2)
        of_kernel = self.kernel.gradient(
            log_params[:-1], self.distances, twice * of_pairs, float(own.sum())
        )
        of_errors = twice @ self.errors + own @ self.own_errors
        of_noise = math.exp(log_params[-1]) * float(of_errors)
        if self.repeats is not None:
            half = 0.5 * self.repeats.square * math.exp(-log_params[-1])
            value += 0.5 * self.repeats.dof * float(log_params[-1]) + half  # (eq. 5)
            of_noise += 0.5 * self.repeats.dof - half
        return value, np.append(of_kernel, of_noise) + pull / self.sd
