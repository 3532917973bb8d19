"""Covariance of mean rewards over a mixed space, with its gradient.

    K = s_p prod_d k_d + s_id [same candidate]                                                     (1)
    k_d = (1 + r + r^2 / 3) exp(-r),    r = sqrt(5) |a - b| / length    of numbers: Matérn-5/2     (2)
    k_d = exp(-w distance)    of choices                                                           (3)

The product includes interactions. The last term is a candidate's effect beyond its point; only
several cells per candidate separate it from noise.

Notation: D dimensions, n and m candidates. Hyper-parameters are the logarithms of D lengths and
weights, of s_p and of s_id, (D + 2,).
"""

import math
from dataclasses import dataclass

import numpy as np

from convergence_core.space.arrays import Encoding, Points

SQRT5 = math.sqrt(5.0)
MEAN_LENGTH, SD_LENGTH = 0.5, 0.8
"""Median and log-sd of the prior of lengths, in units of the range."""
MEAN_WEIGHT, SD_WEIGHT = 1.0, 0.8
"""Median and log-sd of the prior of weights."""
MEAN_PRODUCT, SD_PRODUCT = 0.7, 1.0
"""Median and log-sd of the prior of s_p, in units of the standardized targets' variance."""
MEAN_NUGGET, SD_NUGGET = 0.03, 1.5
"""Median and log-sd of the prior of s_id if separable from noise, in the same units."""
MEAN_JITTER, SD_JITTER = 1e-6, 0.1
"""Median and log-sd of the prior of s_id otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class Distances:
    """Distances per dimension between two sets of points, or of pairs of points."""

    numbers: np.ndarray
    """sqrt(5) |a - b|, (n_numbers, n, m) or (n_numbers, n_pairs)."""
    choices: np.ndarray
    """Distances in [0, 1], (n_choices, n, m) or (n_choices, n_pairs)."""

    def of_pairs(self, pairs: tuple[np.ndarray, np.ndarray]) -> "Distances":
        """Return the distances of pairs, given as rows and columns, (n_pairs,) each."""
        return Distances(self.numbers[:, *pairs], self.choices[:, *pairs])


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """Covariance function of a space, with normal priors of its log hyper-parameters."""

    n_numbers: int
    of_choices: tuple[np.ndarray, ...]
    """Distances between the values of each choice."""
    prior_mean: np.ndarray
    prior_sd: np.ndarray

    @classmethod
    def of(cls, encoding: Encoding, *, has_nugget: bool) -> "Kernel":
        """Return the kernel of a space.

        Args:
            encoding: Encoding of the space.
            has_nugget: Whether candidates' individual effects are separable from noise.
        """
        q, n_choices = len(encoding.number_names), len(encoding.choice_names)
        nugget_prior = (MEAN_NUGGET, SD_NUGGET) if has_nugget else (MEAN_JITTER, SD_JITTER)
        medians = [*[MEAN_LENGTH] * q, *[MEAN_WEIGHT] * n_choices, MEAN_PRODUCT, nugget_prior[0]]
        sds = [*[SD_LENGTH] * q, *[SD_WEIGHT] * n_choices, SD_PRODUCT, nugget_prior[1]]
        mean = np.array([math.log(median) for median in medians])
        return cls(q, encoding.distances, mean, np.array(sds))

    @property
    def n_dims(self) -> int:
        """Number of dimensions: numbers, then choices."""
        return self.n_numbers + len(self.of_choices)

    def distances(self, a: Points, b: Points) -> Distances:
        """Return the distances between n and m points."""
        numbers = SQRT5 * a.numbers.T[:, :, None] - SQRT5 * b.numbers.T[:, None, :]
        np.abs(numbers, out=numbers)
        choices = np.empty((len(self.of_choices), len(a), len(b)))
        for j, distance in enumerate(self.of_choices):
            choices[j] = distance[a.codes[:, j][:, None], b.codes[:, j][None, :]]
        return Distances(numbers, choices)

    def covariance(self, log_params: np.ndarray, distances: Distances) -> np.ndarray:
        """Return the covariance without individual effects, in the distances' shape (eq. 1)."""
        q = self.n_numbers
        rates, weights = np.exp(-log_params[:q]), np.exp(log_params[q : self.n_dims])
        exponent = np.tensordot(weights, distances.choices, 1)  # (eq. 3)
        exponent += np.tensordot(rates, distances.numbers, 1)
        # One exponential for all dimensions; each polynomial is 3 times that of (eq. 2).
        total = np.exp(log_params[self.n_dims] - q * math.log(3.0) - exponent)
        for rate, distance in zip(rates, distances.numbers, strict=True):
            r = distance * rate
            r += 1.5  # 3 + 3 r + r^2, in place: the bottleneck of a fit
            r *= r
            r += 0.75
            total *= r
        return np.asarray(total, np.float64)

    def between(self, log_params: np.ndarray, a: Points, b: Points) -> np.ndarray:
        """Return the covariance between n and m points without individual effects, (n, m)."""
        q, weights = self.n_numbers, np.exp(log_params[self.n_numbers : self.n_dims])
        exponent, polynomials = np.zeros((len(a), len(b))), np.ones((len(a), len(b)))
        for weight, distance, code, other in zip(
            weights, self.of_choices, a.codes.T, b.codes.T, strict=True
        ):
            exponent += weight * distance[code[:, None], other]  # (eq. 3)
        rates, r = SQRT5 * np.exp(-log_params[:q]), np.empty_like(exponent)
        # As in ``covariance``, but one dimension at a time, which fits a processor's cache.
        for x, other in zip((a.numbers * rates).T, (b.numbers * rates).T, strict=True):
            np.abs(np.subtract(x[:, None], other, out=r), out=r)
            exponent += r
            r += 1.5
            r *= r
            r += 0.75
            polynomials *= r
        scale = np.exp(log_params[self.n_dims] - q * math.log(3.0) - exponent)
        return np.asarray(scale * polynomials, np.float64)

    def smooth_variance(self, log_params: np.ndarray) -> float:
        """Return the prior variance of a candidate without its individual effect."""
        return float(np.exp(log_params[self.n_dims]))

    def log_slope(
        self, log_params: np.ndarray, distances: Distances, dimension: int
    ) -> np.ndarray:
        """Return d log k_d / d log of its length or weight, (n, m)."""
        q, scale = self.n_numbers, math.exp(log_params[dimension])
        if dimension >= q:
            return np.asarray(-scale * distances.choices[dimension - q], np.float64)
        r = distances.numbers[dimension] * (1.0 / scale)
        slope = r + 1.0
        slope *= r
        slope *= r
        r += 1.5  # 3 + 3 r + r^2, as in ``covariance``
        r *= r
        r += 0.75
        slope /= r
        return np.asarray(slope, np.float64)

    def gradient(
        self, log_params: np.ndarray, distances: Distances, weighted: np.ndarray, trace: float
    ) -> np.ndarray:
        """Return sum_ij outer_ij dK_ij / d log_params, (D + 2,), from pairs of candidates.

        ``weighted`` is outer_ij K_ij of each pair, summed over both orders; ``trace`` is sum_i
        outer_ii.
        """
        slopes = [
            np.vdot(weighted, self.log_slope(log_params, distances, d)) for d in range(self.n_dims)
        ]
        of_scale = float(weighted.sum()) + self.smooth_variance(log_params) * trace
        return np.array([*slopes, of_scale, math.exp(log_params[-1]) * trace])
