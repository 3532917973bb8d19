"""Exact propensities of arms under a policy.

Thompson sampling draws a mean for each arm and takes the highest (W. R. Thompson, 1933), so arm k
is chosen with the probability that it is the best:

    pi_k = integral of f_k(y) prod_(j != k) F_j(y) dy                                              (1)

Beta posteriors are integrated on the logit scale, where their densities are smooth even for counts
below 1:

    f(y) = x^a (1 - x)^b / B(a, b),    x = 1 / (1 + e^-y)                                          (2)

Nodes are those of Gauss and Legendre in panels laid around every posterior, so narrow ones are not
missed.

A *policy* is one version of the propensities of all arms; an arm is drawn from them. Drawing from
the probability of being best is Thompson sampling, whether the means or the arm are drawn, so
nothing is lost by integrating once per version and every logged propensity is exact. A version
lasts until the evidence has grown by ``GROWTH`` or a second reason to look again comes (an alarm, an
arm added or retired), so a decision costs a look into a table. Of several processes one makes the versions,
and the others have more patience.

Exploration may be raised: a share of all requests is then spread evenly over the arms.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

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


GROWTH = 0.02
"""Share by which the number of rewards grows before propensities are taken again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One version of all propensities."""

    propensities: tuple[float, ...]
    """Of each arm, summing to 1."""
    edges: tuple[float, ...]
    """Running sums of the propensities."""
    n: float
    """Rewards behind it."""

    @classmethod
    def of(cls, propensities: ArrayLike, *, n: float = 0.0, explore: float = 0.0) -> "Policy":
        """Return the policy of these propensities.

        Args:
            propensities: (n_arms,), not negative; they are made to sum to 1.
            n: rewards behind them.
            explore: share of the requests that is spread evenly, in [0, 1].

        Raises:
            ValueError: an argument is out of range.
        """
        p = np.asarray(propensities, dtype=np.float64)
        if p.ndim != 1 or not p.size or not np.all(p >= 0.0) or not 0.0 < p.sum() < np.inf:
            raise ValueError("propensities must be numbers of 0 or more, not all 0")
        if not 0.0 <= explore <= 1.0:
            raise ValueError(f"explore must lie in [0, 1], but got {explore}")
        mixed = (1.0 - explore) * p / p.sum() + explore / p.size
        chances = (mixed / mixed.sum()).tolist()
        return cls(propensities=tuple(chances), edges=tuple(accumulate(chances)), n=n)

    def choose(self, uniform: float) -> int:
        """Return the arm at a uniform number in [0, 1)."""
        arm = bisect_right(self.edges, uniform * self.edges[-1])
        while arm >= len(self.edges) or self.propensities[arm] == 0.0:
            arm -= 1  # a rounded last edge
        return arm

    def is_stale(self, n: float, *, patience: float = 1.0) -> bool:
        """Return whether so many rewards call for a new version; see ``stale_at``."""
        return n >= self.stale_at(patience)

    def stale_at(self, patience: float = 1.0) -> float:
        """Return the number of rewards that calls for a new version.

        Args:
            patience: how many times ``GROWTH`` is waited for; more than 1 where another process is
                about to make the version.
        """
        return self.n + patience * max(1.0, GROWTH * self.n)
