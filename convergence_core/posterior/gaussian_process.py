"""Regression over a mixed space by a Gaussian process; numpy and scipy only.

    z = f + e,   f ~ N(0, K),   e ~ N(0, v R)

R, the covariance of the measurements' errors, is given: it need not be diagonal, since candidates
that were asked the same cases share those cases' luck. Its scale v is learned, freely or near a
known value; repeats of measurements have a likelihood of their own, in which neither f nor a candidate's
own effect occurs, so they tell v from both:

    log p(S | v) = -nu / 2 log v - S / (2 v)

with S the sum of squares within candidates and nu its degrees of freedom. Hyper-parameters are those of
highest posterior density, by L-BFGS-B on analytic gradients (Rasmussen & Williams 2006, §5.4.1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.special import gammaincinv

from convergence_core.posterior.kernel import (
    Distances,
    Layout,
    covariance,
    gradient,
    smooth_variance,
)
from convergence_core.space.encoding import Points

BLOCK = 64
"""Candidates whose marginals are computed at a time: distances to 300 others in 20 dimensions take 3 MB,
which a processor keeps near; with 512 it takes a third longer."""
JITTER = 1e-6
MAX_JITTER = 1e-1
"""Times the mean variance: more than rounding can ever ask for."""
N_BOUND_SDS = 4.0
"""How many prior standard deviations a hyper-parameter may stray."""
MIN_NOISE = 1e-4
FREE_NOISE = (0.2, 1.2)
"""Median and log-sd of the prior of an unknown v, in units of the standardized targets."""
KNOWN_NOISE_SD = 0.02
"""Log-sd of the prior of v where the errors were measured: they are believed. Left to itself the
process halves them, takes luck for merit, and hands over the luckiest."""
EXACT_NOISE = 1e-6
"""v of measurements without noise, in units of the standardized targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """What repeated measurements say of v."""

    square: float
    """S, in squared units of the targets."""
    dof: int
    """nu, at least 1."""

    def highest(self, level: float) -> float:
        """Return the upper confidence limit of v: S / v follows a chi-squared distribution."""
        return self.square / (2.0 * float(gammaincinv(0.5 * self.dof, 1.0 - level)))


@dataclass(frozen=True, slots=True, eq=False)
class GaussianProcess:
    """A fitted process; see the module."""

    layout: Layout
    of_choices: tuple[np.ndarray, ...]
    """Distances between the values of each choice."""
    places: Points
    log_params: np.ndarray
    """Kernel's hyper-parameters, then log v."""
    factor: np.ndarray
    """Lower Cholesky factor of K + v R, (n, n)."""
    weights: np.ndarray
    """(K + v R)^-1 z, (n,)."""

    @classmethod
    def fit(
        cls,
        layout: Layout,
        of_choices: Sequence[np.ndarray],
        places: Points,
        targets: np.ndarray,
        errors: np.ndarray,
        *,
        known_noise: bool,
        repeats: Repeats | None = None,
        is_exact: bool = False,
        start: np.ndarray | None = None,
        n_steps: int = 20,
    ) -> "GaussianProcess":
        """Learn from n measurements.

        Args:
            layout: of the kernel.
            of_choices: distances between the values of each choice.
            places: of the candidates, each once.
            targets: standardized measurements, (n,).
            errors: R, (n, n), positive semi-definite.
            known_noise: whether v is near 1, or free.
            repeats: of single measurements, whose errors have the variance v; ``None``: none.
            is_exact: whether measurements hold no noise: v is ``EXACT_NOISE``.
            start: log hyper-parameters to begin at; ``None``: the prior's medians.
            n_steps: iterations of the optimizer; 0 keeps ``start``.
        """
        prior = _Prior.of(layout, known_noise=known_noise, is_exact=is_exact)
        distances = Distances.between(places, places, of_choices)
        begin = prior.mean
        if start is not None:
            # What lies outside was learned when less could be told apart.
            inside = (prior.low <= start) & (start <= prior.high)
            begin = np.where(inside, start, prior.mean)
        problem = _Problem(layout, prior, distances, targets, errors, repeats)
        if n_steps:
            from scipy.optimize import minimize  # noqa: PLC0415 - a report need not wait for it

            found = minimize(
                problem.value_and_gradient,
                begin,
                jac=True,
                method="L-BFGS-B",
                bounds=list(zip(prior.low, prior.high, strict=True)),
                options={"maxiter": n_steps, "maxfun": n_steps + 5},
            )
            begin = np.asarray(found.x, np.float64)
        factor = cholesky_factor(problem.covariance(begin))
        return cls(
            layout=layout,
            of_choices=tuple(of_choices),
            places=places,
            log_params=begin,
            factor=factor,
            weights=np.asarray(cho_solve((factor, True), targets), np.float64),
        )

    @classmethod
    def given(
        cls,
        like: "GaussianProcess",
        places: Points,
        targets: np.ndarray,
        covariance: np.ndarray,
        log_params: np.ndarray,
    ) -> "GaussianProcess":
        """Condition a process of this kind on other measurements; nothing is learned.

        Args:
            like: whose kernel it is.
            places: of the candidates, (n,); a place may occur again.
            targets: standardized measurements, (n,).
            covariance: of the targets, errors included, (n, n).
            log_params: of the kernel, then log v.
        """
        factor = cholesky_factor(covariance)
        return cls(
            layout=like.layout,
            of_choices=like.of_choices,
            places=places,
            log_params=log_params,
            factor=factor,
            weights=np.asarray(cho_solve((factor, True), targets), np.float64),
        )

    @property
    def noise(self) -> float:
        """Scale of the errors, v."""
        return math.exp(self.log_params[-1])

    @property
    def own_variance(self) -> float:
        """Variance of a candidate's own effect."""
        return math.exp(self.log_params[-2])

    @property
    def prior_variance(self) -> float:
        """Variance of a candidate before anybody was asked, its own effect included."""
        return smooth_variance(self.layout, self._kernel_params) + self.own_variance

    def marginals(self, places: Points, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior means and variances, (n,) each.

        An unseen candidate's own effect is left out: it cannot be chosen for what nobody knows.

        Args:
            places: of the candidates.
            rows: which training row each is, -1 for unseen ones, (n,).
        """
        prior = np.full(len(places), smooth_variance(self.layout, self._kernel_params))
        prior[rows >= 0] += self.own_variance
        mean, explained = np.empty(len(places)), np.empty(len(places))
        for begin in range(0, len(places), BLOCK):
            block = np.arange(begin, min(begin + BLOCK, len(places)))
            mean[block], half = self._project(places.take(block), rows[block])
            explained[block] = (half * half).sum(axis=0)
        return mean, np.maximum(prior - explained, 1e-10)

    def joint(self, places: Points, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior mean, (n,), and covariance, (n, n); see ``marginals``."""
        mean, half = self._project(places, rows)
        own = Distances.between(places, places, self.of_choices)
        prior = covariance(self.layout, self._kernel_params, own)
        is_same = (rows[:, None] == rows) & (rows >= 0)
        return mean, prior - half.T @ half + self.own_variance * is_same

    @property
    def _kernel_params(self) -> np.ndarray:
        return self.log_params[:-1]

    def _project(self, places: Points, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return posterior means and L^-1 k(training, places), (n_training, n)."""
        between = Distances.between(places, self.places, self.of_choices)
        cross = covariance(self.layout, self._kernel_params, between)
        seen = np.flatnonzero(rows >= 0)
        cross[seen, rows[seen]] += self.own_variance
        half = solve_triangular(self.factor, cross.T, lower=True, check_finite=False)
        return cross @ self.weights, np.asarray(half, np.float64)


def cholesky_factor(covariance: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor, (n, n).

    Rounding may leave the matrix indefinite by a little; then as much is added to its diagonal as
    it takes.

    Raises:
        numpy.linalg.LinAlgError: no jitter helps, or a number is not finite.
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


@dataclass(frozen=True, slots=True, eq=False)
class _Prior:
    """Normal priors of the logarithms of all hyper-parameters."""

    mean: np.ndarray
    sd: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, layout: Layout, *, known_noise: bool, is_exact: bool = False) -> "_Prior":
        level, spread = (1.0, KNOWN_NOISE_SD) if known_noise else FREE_NOISE
        if is_exact:
            level, spread = EXACT_NOISE, KNOWN_NOISE_SD
        mean = np.append(layout.prior_mean, math.log(level))
        sd = np.append(layout.prior_sd, spread)
        low, high = mean - N_BOUND_SDS * sd, mean + N_BOUND_SDS * sd
        if not known_noise and not is_exact:
            low[-1] = math.log(MIN_NOISE)
        return cls(mean, sd, low, high)


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """What the optimizer minimizes: minus log posterior of the hyper-parameters."""

    layout: Layout
    prior: _Prior
    distances: Distances
    targets: np.ndarray
    errors: np.ndarray
    repeats: Repeats | None = None

    def covariance(self, log_params: np.ndarray) -> np.ndarray:
        """Return K + v R, (n, n)."""
        kernel_params = log_params[:-1]
        total = covariance(self.layout, kernel_params, self.distances)
        total += math.exp(log_params[-1]) * self.errors
        total[np.diag_indices_from(total)] += math.exp(kernel_params[-1]) + JITTER
        return total

    def value_and_gradient(self, log_params: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus log posterior, up to a constant, and its gradient."""
        total = self.covariance(log_params)
        factor, failed = dpotrf(total, lower=1, clean=0, overwrite_a=0)
        if failed:
            return 1e10, np.zeros_like(log_params)
        inverse, _ = dpotri(factor, lower=1)
        lower = np.tril(inverse)
        inverse = lower + lower.T
        inverse[np.diag_indices_from(inverse)] /= 2.0
        solved = inverse @ self.targets
        pull = (log_params - self.prior.mean) / self.prior.sd
        value = (
            0.5 * float(self.targets @ solved)
            + float(np.log(np.diag(factor)).sum())
            + 0.5 * float(pull @ pull)
        )
        outer = 0.5 * (inverse - np.outer(solved, solved))
        of_kernel = gradient(self.layout, log_params[:-1], self.distances, outer)
        of_noise = math.exp(log_params[-1]) * float((outer * self.errors).sum())
        if self.repeats is not None:
            half = 0.5 * self.repeats.square * math.exp(-log_params[-1])
            value += 0.5 * self.repeats.dof * float(log_params[-1]) + half
            of_noise += 0.5 * self.repeats.dof - half
        return value, np.append(of_kernel, of_noise) + pull / self.prior.sd
