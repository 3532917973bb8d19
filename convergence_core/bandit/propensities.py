"""Exact propensities of arms under a policy.

Thompson sampling draws a mean for each arm and takes the highest (W. R. Thompson, 1933). So arm k
is chosen with the probability that it is the best:

    pi_k = integral of f_k(y) prod_(j != k) F_j(y) dy                                              (1)

Beta posteriors are integrated on the logit scale, where their densities are smooth even for counts
below 1:

    f(y) = x^a (1 - x)^b / B(a, b),    x = 1 / (1 + e^-y)                                          (2)

Quadrature uses Gauss-Legendre nodes in panels around every posterior, so that it does not miss
narrow ones.

A *policy* is one version of the propensities of all arms; an arm is drawn from them. Drawing an
arm by its probability of being best is equivalent to drawing means. So one integration per version
loses nothing, and every logged propensity is exact. A version lasts until the evidence has grown
by ``GROWTH`` or another event requires a new one (an alarm, an added or retired arm), so a
decision costs one table look-up. Among several processes one creates the versions, and the others
wait longer.

Additional exploration spreads a share of all requests evenly over the arms.
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
"""Function from nodes, (n_nodes, 1), to values for each arm, (n_nodes, n_arms)."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(7)
_EDGES = np.array([-20.0, -12.0, -8.0, -5.0, -3.0, -1.5, 0.0, 1.5, 3.0, 5.0, 8.0, 12.0, 20.0])
"""Edges of the panels, in standard deviations from each mean."""


def of_beta(alpha: Floats, beta: Floats) -> Floats:
    """Return each Beta draw's probability of being the highest, (n_arms,), with sum 1.

    Args:
        alpha: First parameters, (n_arms,), positive.
        beta: Second parameters, (n_arms,), positive.
    """
    norm = betaln(alpha, beta)
    return _integrated(
        np.asarray(digamma(alpha) - digamma(beta)),
        np.asarray(np.sqrt(polygamma(1, alpha) + polygamma(1, beta))),
        density=lambda y: np.exp(alpha * log_expit(y) + beta * log_expit(-y) - norm),  # (eq. 2)
        distribution=lambda y: np.asarray(betainc(alpha, beta, expit(y))),
    )


def of_gaussian(means: Floats, sds: Floats) -> Floats:
    """Return each Gaussian draw's probability of being the highest, (n_arms,), with sum 1.

    Args:
        means: Means, (n_arms,).
        sds: Standard deviations, (n_arms,), positive.
    """
    scale = 1.0 / (sds * np.sqrt(2.0 * np.pi))
    return _integrated(
        means,
        sds,
        density=lambda y: scale * np.exp(-0.5 * ((y - means) / sds) ** 2),
        distribution=lambda y: np.asarray(ndtr((y - means) / sds)),
    )


def _integrated(
    means: Floats, sds: Floats, *, density: Function, distribution: Function
) -> Floats:
    if means.size == 1:
        return np.ones(1)
    edges = np.unique((means[:, None] + sds[:, None] * _EDGES).ravel())
    # Below this bound some arm is surely higher, so every product is 0.
    least = (means + sds * _EDGES[0]).max()
    edges = edges[edges >= least]
    middle, half = (edges[1:] + edges[:-1]) / 2.0, np.diff(edges) / 2.0
    y = (middle[:, None] + half[:, None] * _NODES).reshape(-1, 1)
    weights = (half[:, None] * _WEIGHTS).ravel()
    below = distribution(y)  # (n_nodes, n_arms)
    # The product over all others avoids dividing by possible zeros.
    ones = np.ones((len(y), 1))
    before = np.cumprod(np.hstack((ones, below[:, :-1])), axis=1)
    after = np.cumprod(np.hstack((ones, below[:, :0:-1])), axis=1)[:, ::-1]
    chances = weights @ (density(y) * before * after)  # (eq. 1)
    return np.asarray(chances / chances.sum(), dtype=np.float64)


GROWTH = 0.02
"""Growth of the number of rewards that requires new propensities, as a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One version of all propensities."""

    propensities: tuple[float, ...]
    """Propensity of each arm, with sum 1."""
    edges: tuple[float, ...]
    """Running sums of the propensities."""
    n: float
    """Number of rewards behind the propensities."""

    @classmethod
    def of(cls, propensities: ArrayLike, *, n: float = 0.0, explore: float = 0.0) -> "Policy":
        """Return the policy with these propensities.

        Args:
            propensities: Nonnegative weights, (n_arms,); normalized to sum 1.
            n: Number of rewards behind them.
            explore: Share of requests spread evenly over the arms, in [0, 1].

        Raises:
            ValueError: An argument is out of range.
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
        """Return the arm for a uniform number in [0, 1)."""
        arm = bisect_right(self.edges, uniform * self.edges[-1])
        while arm >= len(self.edges) or self.propensities[arm] == 0.0:
            arm -= 1  # rounding of the last edge
        return arm

    def is_stale(self, n: float, *, patience: float = 1.0) -> bool:
        """Return whether ``n`` rewards require a new version; see ``stale_at``."""
        return n >= self.stale_at(patience)

    def stale_at(self, patience: float = 1.0) -> float:
        """Return the number of rewards that requires a new version.

        Args:
            patience: Multiple of ``GROWTH`` to wait for; above 1 if another process is about to
                create the version.
        """
        return self.n + patience * max(1.0, GROWTH * self.n)
