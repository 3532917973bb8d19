"""Contextual arms: linear Thompson sampling.

The reward of arm k for the request x is normal around ``x . w_k``, the weights normal with mean
``mu_k`` and precision ``A_k`` (S. Agrawal, N. Goyal, "Thompson sampling for contextual bandits with
linear payoffs", 2013, Alg. 1; one weight vector for each arm, as in L. Li et al., 2010, Alg. 1):

    A_k = I + sum x x^T,    w_k = A_k^-1 b_k,    b_k = sum r x

so given x, an arm's expected reward is normal with mean ``x . w_k`` and variance
``v x^T A_k^-1 x``. The inverses are kept by the formula of Sherman and Morrison: a reward costs
d^2, a choice n_arms d^2. The prior's mean is that of the arm without context, on the constant.

We depart from the paper in ``v``: it is the variance of a reward (0.25 bounds it in [0, 1]), not
its bound with logarithms, which explores far more than any real system needs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from convergence_core.bandit.arms import checked_discount
from convergence_core.bandit.propensities import Floats, of_gaussian

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
        if (
            n_features < 1
            or not variance > 0
            or not np.all(np.isfinite(means))
            or not np.all(worth > 0)
        ):
            raise ValueError(
                "prior means must be finite, n_features 1 or more, variance and prior weights "
                "positive"
            )
        covariance = np.tile(np.eye(n_features), (means.size, 1, 1))
        covariance[:, 0, 0] = 1.0 / worth
        b = np.zeros((means.size, n_features))
        b[:, 0] = worth * means
        weights = np.zeros_like(b)
        weights[:, 0] = means
        return cls(
            covariance=covariance, b=b, weights=weights, n=np.zeros(means.size), variance=variance
        )

    def moments(self, x: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of each arm's expected reward, both (n_arms,)."""
        # One product of a tall matrix is several times faster than a stack of small ones.
        tall = self.covariance.reshape(-1, x.size)
        spread = tall.dot(x).reshape(self.weights.shape).dot(x)
        spread *= self.variance
        return self.weights.dot(x), np.sqrt(spread, out=spread)

    def draw(self, x: Floats, rng: np.random.Generator) -> Floats:
        """Draw each arm's expected reward for a request, (n_arms,)."""
        means, sds = self.moments(x)
        sds *= rng.standard_normal(means.size)
        return means + sds

    def propensities(self, x: Floats) -> Floats:
        """Return the probability of each arm to be drawn highest for a request, (n_arms,)."""
        return of_gaussian(*self.moments(x))

    def tell(self, arm: int, x: Floats, reward: float) -> Self:
        """Return the arms after one reward.

        Raises:
            ValueError: the reward is not finite.
        """
        if not np.isfinite(reward):
            raise ValueError(f"a reward must be finite, but got {reward}")
        covariance, b, weights, n = (
            array.copy() for array in (self.covariance, self.b, self.weights, self.n)
        )
        _learn(covariance[arm], b[arm], weights[arm], x, reward)
        n[arm] += 1.0
        return replace(self, covariance=covariance, b=b, weights=weights, n=n)

    def discounted(self, discount: float, prior: Self) -> Self:
        """Return the arms with their evidence beyond a prior multiplied by a discount.

        Args:
            discount: share that is kept, in (0, 1].
            prior: as ``begin`` made it.

        Raises:
            ValueError: the discount is out of range.
        """
        kept = checked_discount(discount)
        precision = np.linalg.inv(self.covariance)
        before = np.linalg.inv(prior.covariance)
        covariance: Floats = np.linalg.inv(before + kept * (precision - before)).astype(np.float64)
        b = prior.b + kept * (self.b - prior.b)
        weights = np.einsum("kij,kj->ki", covariance, b)
        return replace(self, covariance=covariance, b=b, weights=weights)


class LinearLearner:
    """The same in place, for a process that serves requests: a reward copies no other arm."""

    def __init__(self, arms: LinearArms) -> None:
        self._arms = LinearArms(
            covariance=arms.covariance.copy(),
            b=arms.b.copy(),
            weights=arms.weights.copy(),
            n=arms.n.copy(),
            variance=arms.variance,
        )

    @property
    def arms(self) -> LinearArms:
        """The posteriors now; they change with the next ``tell``."""
        return self._arms

    def tell(self, arm: int, x: Floats, reward: float) -> None:
        """Learn from one finite reward."""
        arms = self._arms
        _learn(arms.covariance[arm], arms.b[arm], arms.weights[arm], x, reward)
        arms.n[arm] += 1.0


def _learn(covariance: Floats, b: Floats, weights: Floats, x: Floats, reward: float) -> None:
    """Add one reward to an arm's arrays, in place (Sherman and Morrison, 1950)."""
    direction = covariance.dot(x)
    scale = 1.0 / (1.0 + float(x.dot(direction)))
    if covariance.flags.c_contiguous:
        # In place, for the transpose is in the order of Fortran; half the time of an outer product.
        _rank_one()(-scale, direction, direction, a=covariance.T, overwrite_a=1)
    else:
        covariance -= scale * np.multiply.outer(direction, direction)
    # The new weights from the old: w + A^-1 x (r - x . w) / (1 + x^T A^-1 x).
    weights += direction * (scale * (reward - float(x.dot(weights))))
    b += reward * x


@cache
def _rank_one() -> Callable[..., Any]:
    """Return BLAS's a + alpha x y^T."""
    from scipy.linalg.blas import dger  # noqa: PLC0415 - only contextual arms need all of linalg

    return dger
