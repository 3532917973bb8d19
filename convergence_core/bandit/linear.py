"""Contextual arms by linear Thompson sampling.

The reward of arm k for the request x is normal around ``x . w_k``, the weights normal with mean
``mu_k`` and precision ``A_k`` (S. Agrawal, N. Goyal, "Thompson sampling for contextual bandits with
linear payoffs", 2013, Alg. 1; one weight vector for each arm, as in L. Li et al., 2010, Alg. 1):

    A_k = I + sum x x^T,    w_k = A_k^-1 b_k,    b_k = sum r x                                     (1)
    x . w_k,    v x^T A_k^-1 x                                                                     (2)

the latter mean and variance of an arm's expected reward given x. The inverses are kept by the
formula of Sherman and Morrison, 1950,

    (A + x x^T)^-1 = A^-1 - A^-1 x x^T A^-1 / (1 + x^T A^-1 x)                                     (3)

so a reward costs d^2, a choice n_arms d^2. The prior's mean is that of the arm without context, on
the constant. We depart from the paper in ``v``: it is the variance of a reward (0.25 bounds it in
[0, 1]), not its bound with logarithms, which explores far more than any real system needs.

Notation: d features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from convergence_core.bandit.propensities import Floats

VARIANCE = 0.25
"""Largest variance of a reward in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearArms:
    """Posteriors of the arms' weights."""

    covariance: Floats
    """``A^-1`` of each arm, (n_arms, d, d)."""
    b: Floats
    """Prior precision times prior mean, plus the sum of ``r x``; (n_arms, d)."""
    weights: Floats
    """``A^-1 b`` of each arm, (n_arms, d)."""
    n: Floats
    """Rewards learned from, (n_arms,)."""
    variance: float
    """Of a reward given x."""

    @classmethod
    def begin(
        cls,
        prior_means: ArrayLike,
        n_features: int,
        *,
        prior_weights: ArrayLike = 1.0,
        variance: float = VARIANCE,
    ) -> Self:
        """Return arms that know their prior alone.

        Args:
            prior_means: expected reward without context, (n_arms,).
            n_features: d; the first coordinate of every request is the constant 1.
            prior_weights: how many rewards the prior mean is worth, (n_arms,) or one number.
            variance: of a reward given x, above 0.

        Raises:
            ValueError: an argument is out of range.
        """
        means = np.atleast_1d(np.asarray(prior_means, dtype=np.float64))
        worth = np.broadcast_to(np.asarray(prior_weights, dtype=np.float64), means.shape)
        if n_features < 1 or not (variance > 0 and np.all(np.isfinite(means) & (worth > 0))):
            raise ValueError(
                "prior means must be finite, n_features 1 or more, variance and prior weights "
                "positive"
            )
        covariance = np.tile(np.eye(n_features), (means.size, 1, 1))
        covariance[:, 0, 0] = 1.0 / worth
        b, weights = np.zeros((2, means.size, n_features))
        b[:, 0], weights[:, 0] = worth * means, means
        return cls(
            covariance=covariance, b=b, weights=weights, n=np.zeros(means.size), variance=variance
        )

    def moments(self, x: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of each arm's expected reward, both (n_arms,)."""
        # One product of a tall matrix is several times faster than a stack of small ones.
        tall = self.covariance.reshape(-1, x.size)
        spread = tall.dot(x).reshape(self.weights.shape).dot(x)
        spread *= self.variance
        return self.weights.dot(x), np.sqrt(spread, out=spread)  # (eq. 2)


class LinearLearner:
    """Posteriors that learn in place, so that a reward copies no other arm."""

    def __init__(self, arms: LinearArms) -> None:
        self.arms = LinearArms(
            covariance=arms.covariance.copy(),
            b=arms.b.copy(),
            weights=arms.weights.copy(),
            n=arms.n.copy(),
            variance=arms.variance,
        )
        """The posteriors now; they change with the next ``tell``."""

    def tell(self, arm: int, x: Floats, reward: float) -> None:
        """Learn from one finite reward of a request, (d,)."""
        covariance, weights = self.arms.covariance[arm], self.arms.weights[arm]
        direction = covariance.dot(x)
        scale = 1.0 / (1.0 + float(x.dot(direction)))
        # In place, for the transpose is in the order of Fortran; half the time of an outer product.
        _rank_one()(-scale, direction, direction, a=covariance.T, overwrite_a=1)  # (eq. 3)
        weights += direction * (scale * (reward - float(x.dot(weights))))  # (eq. 1), by (3)
        self.arms.b[arm] += reward * x
        self.arms.n[arm] += 1.0


@cache
def _rank_one() -> Callable[..., Any]:
    """Return BLAS's a + alpha x y^T."""
    from scipy.linalg.blas import dger  # noqa: PLC0415 - only contextual arms need all of linalg

    return dger
