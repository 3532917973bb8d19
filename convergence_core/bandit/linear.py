"""Linear arms over the features of a request.

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

A number enters as it is. A category becomes one coordinate with a sign, both from a hash of name and
value (K. Weinberger et al., "Feature hashing for large scale multitask learning", 2009, eq. 1), so
that no list of values has to be kept and collisions cancel in the mean. Hashes are BLAKE2's, the same
in every process.

*Partial pooling.* Every feature enters once for all users, and the constant once more for this user
and for this agent type, times ``pooling``. Under a ridge prior a coordinate scaled by s has a prior
deviation of s: how far a user may lie from the rest, until own rewards show it. It is the random
intercept of a mixed model, hashed as Weinberger et al. do for users of a spam filter.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
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


Feature = float | int | bool | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Settings of the encoding of requests."""

    n_features: int = 16
    """Coordinates, the constant's one included."""
    pooling: float = 0.5
    """Scale of the user's and the agent type's own coordinates; 0: all users are alike."""

    def __post_init__(self) -> None:
        """Refuse settings without meaning.

        Raises:
            ValueError: fewer than two coordinates, or a negative scale.
        """
        if self.n_features < 2 or not self.pooling >= 0.0:
            raise ValueError(
                f"n_features must be 2 or more and pooling 0 or more, but got {self.n_features} "
                f"and {self.pooling}"
            )

    def encode(
        self,
        context: Mapping[str, Feature],
        *,
        user_id: str | None = None,
        agent_type: str | None = None,
    ) -> Floats:
        """Return the vector of a request, (n_features,).

        Numbers should be of the size of 1. ``None`` is left out; a boolean is a category.

        Raises:
            ValueError: a number is not finite.
            TypeError: a value is neither number, text, boolean nor ``None``.
        """
        vector = np.zeros(self.n_features)
        vector[0] = 1.0
        for name, value in context.items():
            if value is None:
                continue
            if isinstance(value, bool | str):
                self._add(vector, f"{name}={value}", 1.0)
            elif isinstance(value, int | float):
                if not math.isfinite(value):
                    raise ValueError(f"context.{name} must be finite, but got {value}")
                self._add(vector, name, float(value))
            else:
                raise TypeError(
                    f"context.{name} must be a number, text or boolean, but got "
                    f"{type(value).__name__}"
                )
        for kind, value in (("user", user_id), ("agent", agent_type)):
            if value is not None and self.pooling:
                self._add(vector, f"{kind}\0{value}", self.pooling)
        return vector

    def _add(self, vector: Floats, text: str, value: float) -> None:
        index, sign = _hashed(text, self.n_features - 1)
        vector[1 + index] += sign * value  # (eq. 1)


@lru_cache(maxsize=65_536)
def _hashed(text: str, size: int) -> tuple[int, float]:
    """Return an index in [0, size) and a sign."""
    number = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return (number >> 1) % size, 1.0 if number & 1 else -1.0
