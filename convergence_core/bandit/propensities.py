"""Propensities of Thompson sampling, by numerical integration.

Thompson sampling draws a mean for each arm and takes the highest (W. R. Thompson, 1933), so arm k
is chosen with the probability that it is the best:

    pi_k = integral of f_k(y) prod_(j != k) F_j(y) dy                                              (1)

Beta posteriors are integrated on the logit scale, where their densities are smooth even for counts
below 1:

    f(y) = x^a (1 - x)^b / B(a, b),    x = 1 / (1 + e^-y)                                          (2)

Nodes are those of Gauss and Legendre in panels laid around every posterior, so narrow ones are not
missed.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, digamma, expit, log_expit, ndtr, polygamma

Floats = NDArray[np.float64]
Function = Callable[[Floats], Floats]
"""From nodes (n_nodes, 1) to one value for each arm, (n_nodes, n_arms)."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(7)
_EDGES = np.array([-20.0, -12.0, -8.0, -5.0, -3.0, -1.5, 0.0, 1.5, 3.0, 5.0, 8.0, 12.0, 20.0])
"""Edges of the panels, in standard deviations from each mean."""


def of_beta(alpha: ArrayLike, beta: ArrayLike) -> Floats:
    """Return the probability that each Beta draw is the highest, (n_arms,), summing to 1.

    Args:
        alpha: (n_arms,), positive.
        beta: (n_arms,), positive.

    Raises:
        ValueError: a parameter is not positive and finite.
    """
    a, b = _paired(alpha, beta)
    if not a.size or not np.all((a > 0) & (b > 0) & np.isfinite(a) & np.isfinite(b)):
        raise ValueError("alpha and beta must be positive and finite, one pair for each arm")
    norm = betaln(a, b)
    return _integrated(
        np.asarray(digamma(a) - digamma(b)),
        np.asarray(np.sqrt(polygamma(1, a) + polygamma(1, b))),
        density=lambda y: np.exp(a * log_expit(y) + b * log_expit(-y) - norm),  # (eq. 2)
        distribution=lambda y: np.asarray(betainc(a, b, expit(y))),
    )


def of_gaussian(means: ArrayLike, sds: ArrayLike) -> Floats:
    """Return the probability that each Gaussian draw is the highest, (n_arms,), summing to 1.

    Args:
        means: (n_arms,).
        sds: standard deviations, (n_arms,), positive.

    Raises:
        ValueError: a mean is not finite, or a deviation not positive and finite.
    """
    mean, sd = _paired(means, sds)
    if not mean.size or not np.all(np.isfinite(mean) & np.isfinite(sd) & (sd > 0)):
        raise ValueError("means must be finite and sds positive and finite, one pair for each arm")
    scale = 1.0 / (sd * np.sqrt(2.0 * np.pi))
    return _integrated(
        mean,
        sd,
        density=lambda y: scale * np.exp(-0.5 * ((y - mean) / sd) ** 2),
        distribution=lambda y: np.asarray(ndtr((y - mean) / sd)),
    )


def _paired(first: ArrayLike, second: ArrayLike) -> tuple[Floats, Floats]:
    """Return both as (n_arms,); empty where they have another shape."""
    a, b = np.broadcast_arrays(np.asarray(first, np.float64), np.asarray(second, np.float64))
    return (a, b) if a.ndim == 1 else (np.empty(0), np.empty(0))


def _integrated(
    means: Floats, sds: Floats, *, density: Function, distribution: Function
) -> Floats:
    if means.size == 1:
        return np.ones(1)
    edges = np.unique((means[:, None] + sds[:, None] * _EDGES).ravel())
    # Below this some arm lies above surely, so no product is positive.
    least = (means + sds * _EDGES[0]).max()
    edges = edges[edges >= least]
    middle, half = (edges[1:] + edges[:-1]) / 2.0, np.diff(edges) / 2.0
    y = (middle[:, None] + half[:, None] * _NODES).reshape(-1, 1)
    weights = (half[:, None] * _WEIGHTS).ravel()
    below = distribution(y)  # (n_nodes, n_arms)
    # The product over all others, without dividing by what may be 0.
    ones = np.ones((len(y), 1))
    before = np.cumprod(np.hstack((ones, below[:, :-1])), axis=1)
    after = np.cumprod(np.hstack((ones, below[:, :0:-1])), axis=1)[:, ::-1]
    chances = weights @ (density(y) * before * after)  # (eq. 1)
    return np.asarray(chances / chances.sum(), dtype=np.float64)
