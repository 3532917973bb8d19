"""The covariance of mean rewards over a mixed space, with its gradient.

    K = s_p * prod_d k_d + sum_d s_d * k_d + s_id * [same candidate]

k_d is Matérn-5/2 of the distance over a length for numbers and exp(-w distance) for choices. The
product carries interactions. The additive terms are there on demand, and then where a choice has many
values (prompt templates): each dimension shows its own effect with few data. The last is what a
candidate has beyond its place, which can be told from noise only where candidates are measured by
several cells.

Notation: D dimensions, n and m candidates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.space.encoding import Encoding, Points

SQRT5 = math.sqrt(5.0)
MANY_VALUES = 15
"""With more values of one choice than this, every dimension may get an additive term."""
MEAN_LENGTH, SD_LENGTH = 0.5, 0.8
"""Median and log-sd of the prior of lengths, in units of the range."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Which hyper-parameter lies where in the vector of logarithms, and its normal prior."""

    n_numbers: int
    n_choices: int
    additive: tuple[int, ...]
    """Dimensions with a term of their own: all or none."""
    prior_mean: np.ndarray
    prior_sd: np.ndarray

    @classmethod
    def of(cls, encoding: Encoding, *, own_effect: bool, additive: bool = False) -> "Layout":
        """Return the layout for a space.

        Args:
            encoding: of the space.
            own_effect: whether a candidate's own effect can be told from noise.
            additive: whether a choice of many values brings additive terms.
        """
        n_numbers, n_choices = len(encoding.number_names), len(encoding.choice_names)
        has_many = any(len(distance) - 1 > MANY_VALUES for distance in encoding.distances)
        n_dims = n_numbers + n_choices
        terms = tuple(range(n_dims)) if additive and has_many and n_dims > 1 else ()
        mean = [
            *[math.log(MEAN_LENGTH)] * n_numbers,
            *[0.0] * n_choices,
            math.log(0.7),
            *[math.log(0.3 / max(1, len(terms)))] * len(terms),
            math.log(0.03) if own_effect else math.log(1e-6),
        ]
        sd = [
            *[SD_LENGTH] * n_numbers,
            *[0.8] * n_choices,
            1.0,
            *[1.2] * len(terms),
            1.5 if own_effect else 0.1,
        ]
        return cls(n_numbers, n_choices, terms, np.array(mean), np.array(sd))

    @property
    def n_dims(self) -> int:
        """Dimensions: numbers, then choices."""
        return self.n_numbers + self.n_choices

    @property
    def product(self) -> int:
        """Position of the product's variance; additive variances follow."""
        return self.n_dims

    @property
    def size(self) -> int:
        """Hyper-parameters; the last is the variance of a candidate's own effect."""
        return len(self.prior_mean)


@dataclass(frozen=True, slots=True, eq=False)
class Distances:
    """Between two sets of places, per dimension; they do not depend on hyper-parameters."""

    numbers: np.ndarray
    """sqrt(5) |a - b|, (n_numbers, n, m)."""
    choices: np.ndarray
    """In [0, 1], (n_choices, n, m)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Places on either side, (n, m)."""
        n, m = (self.numbers if len(self.numbers) else self.choices).shape[1:]
        return n, m

    @classmethod
    def between(cls, a: Points, b: Points, of_choices: Sequence[np.ndarray]) -> "Distances":
        """Return the distances of each place of ``a`` to each of ``b``."""
        numbers = a.numbers.T[:, :, None] - b.numbers.T[:, None, :]
        np.abs(numbers, out=numbers)
        numbers *= SQRT5
        choices = np.empty((len(of_choices), len(a), len(b)))
        for j, distance in enumerate(of_choices):
            choices[j] = distance[a.codes[:, j][:, None], b.codes[:, j][None, :]]
        return cls(numbers, choices)


def covariance(layout: Layout, log_params: np.ndarray, distances: Distances) -> np.ndarray:
    """Return the covariance without candidates' own effects, (n, m)."""
    scale = np.exp(log_params[layout.product : layout.size - 1])
    total = scale[0] * product(layout, log_params, distances)
    for i, d in enumerate(layout.additive):
        total += scale[1 + i] * component(layout, log_params, distances, d)
    return np.asarray(total, np.float64)


def product(layout: Layout, log_params: np.ndarray, distances: Distances) -> np.ndarray:
    """Return prod_d k_d, (n, m); with one exponential for all dimensions."""
    q = layout.n_numbers
    lengths, weights = np.exp(log_params[:q]), np.exp(log_params[q : layout.n_dims])
    exponent = np.zeros(distances.shape)
    factor = np.ones(distances.shape)
    for length, distance in zip(lengths, distances.numbers, strict=True):
        r = distance / length
        exponent += r
        own = r / 3.0  # 1 + r + r^2 / 3, in place: most of a fit's time is spent here
        own += 1.0
        own *= r
        own += 1.0
        factor *= own
    for weight, distance in zip(weights, distances.choices, strict=True):
        exponent += weight * distance
    return np.asarray(factor * np.exp(-exponent), np.float64)


def component(
    layout: Layout, log_params: np.ndarray, distances: Distances, dimension: int
) -> np.ndarray:
    """Return k_d of one dimension, (n, m)."""
    q = layout.n_numbers
    is_number = dimension < q
    distance = distances.numbers[dimension] if is_number else distances.choices[dimension - q]
    return correlation(layout, log_params, distance, dimension)


def correlation(
    layout: Layout, log_params: np.ndarray, distance: np.ndarray, dimension: int
) -> np.ndarray:
    """Return k_d of distances along one dimension, any shape; see ``Distances`` for their unit."""
    scale = math.exp(log_params[dimension])
    if dimension >= layout.n_numbers:
        return np.asarray(np.exp(-scale * distance), np.float64)
    r = distance / scale
    return np.asarray((1.0 + r * (1.0 + r / 3.0)) * np.exp(-r), np.float64)


def log_slope(
    layout: Layout, log_params: np.ndarray, distances: Distances, dimension: int
) -> np.ndarray:
    """Return d log k_d / d log of its length or weight, (n, m)."""
    q = layout.n_numbers
    scale = math.exp(log_params[dimension])
    if dimension >= q:
        return np.asarray(-scale * distances.choices[dimension - q], np.float64)
    r = distances.numbers[dimension] / scale
    return np.asarray(r * r * (1.0 + r) / (3.0 + r * (3.0 + r)), np.float64)


def smooth_variance(layout: Layout, log_params: np.ndarray) -> float:
    """Return the prior variance of a candidate without its own effect."""
    return float(np.exp(log_params[layout.product : layout.size - 1]).sum())


def gradient(
    layout: Layout, log_params: np.ndarray, distances: Distances, outer: np.ndarray
) -> np.ndarray:
    """Return sum_ij outer_ij dK_ij / d log_params for a symmetric K, (size,)."""
    scale = np.exp(log_params[layout.product : layout.size - 1])
    result = np.zeros(layout.size)
    of_product = outer * (scale[0] * product(layout, log_params, distances))
    result[layout.product] = of_product.sum()
    for d in range(layout.n_dims):
        slope = log_slope(layout, log_params, distances, d)
        result[d] = np.vdot(of_product, slope)
        if d in layout.additive:
            i = layout.additive.index(d)
            of_term = outer * (scale[1 + i] * component(layout, log_params, distances, d))
            result[d] += np.vdot(of_term, slope)
            result[layout.product + 1 + i] = of_term.sum()
    result[-1] = math.exp(log_params[-1]) * float(np.trace(outer))
    return result
