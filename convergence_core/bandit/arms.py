"""What is believed of each arm's mean reward: Beta and Gaussian posteriors.

``BetaArms`` hold two counts per arm. A reward r in [0, 1] adds r to one and 1 - r to the other,
which for rewards between 0 and 1 is the update of E. Kaufmann, N. Korda, R. Munos, 2012, without the
coin toss. ``GaussianArms`` are normal with unknown mean and variance; their draws are normal
too, with the Student posterior's variance (K. P. Murphy, "Conjugate
Bayesian analysis of the Gaussian distribution", 2007, eqs. 85 to 89), for rewards of any scale.

*Discounting* (option): before an arm learns, its evidence beyond the prior is multiplied by
``discount``, so that old rewards fade: at .99 an arm remembers its last hundred rewards or so.

Both are values: ``tell`` returns new ones, and everything learned is the prior plus a sum over
rewards, in any order, as long as nothing is discounted.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from convergence_core.bandit.propensities import Floats, of_beta, of_gaussian


def checked_reward(reward: float) -> float:
    """Return a reward as a float.

    Raises:
        ValueError: it is not finite or not in [0, 1].
    """
    value = float(reward)
    if not 0.0 <= value <= 1.0:  # NaN fails as well
        raise ValueError(f"a reward must be a finite number in [0, 1], but got {reward}")
    return value


def finite_reward(reward: float) -> float:
    """Return a reward of any scale as a float.

    Raises:
        ValueError: it is not finite, or so large that its square is not.
    """
    value = float(reward)
    if not abs(value) < 1e150:  # NaN fails as well
        raise ValueError(f"a reward must be a finite number below 1e150, but got {reward}")
    return value


def checked_discount(discount: float) -> float:
    """Return a discount.

    Raises:
        ValueError: it is not in (0, 1].
    """
    if not 0.0 < discount <= 1.0:
        raise ValueError(f"a discount must lie in (0, 1], but got {discount}")
    return discount


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BetaArms:
    """Beta posteriors of the mean rewards; every array is (n_arms,)."""

    prior_alpha: Floats
    prior_beta: Floats
    alpha: Floats
    beta: Floats
    n: Floats
    """Rewards learned from, undiscounted."""

    @classmethod
    def begin(cls, prior_alpha: ArrayLike, prior_beta: ArrayLike) -> Self:
        """Return arms that know their prior alone.

        Raises:
            ValueError: a count is not positive and finite.
        """
        a, b = (np.atleast_1d(np.array(x, dtype=np.float64)) for x in (prior_alpha, prior_beta))
        a, b = (x.copy() for x in np.broadcast_arrays(a, b))
        if not np.all((a > 0) & (b > 0) & np.isfinite(a) & np.isfinite(b)):
            raise ValueError("prior counts must be positive and finite")
        return cls(prior_alpha=a, prior_beta=b, alpha=a, beta=b, n=np.zeros(a.size))

    @property
    def means(self) -> Floats:
        """Posterior means, (n_arms,)."""
        return np.asarray(self.alpha / (self.alpha + self.beta))

    @property
    def sds(self) -> Floats:
        """Posterior standard deviations, (n_arms,)."""
        total = self.alpha + self.beta
        return np.asarray(np.sqrt(self.alpha * self.beta / (total + 1.0)) / total)

    def draw(self, rng: np.random.Generator) -> Floats:
        """Draw a mean for each arm, (n_arms,)."""
        return rng.beta(self.alpha, self.beta)

    def propensities(self) -> Floats:
        """Return the probability of each arm to be drawn highest, (n_arms,)."""
        return of_beta(self.alpha, self.beta)

    def tell(self, arm: int, reward: float, *, discount: float = 1.0) -> Self:
        """Return the arms after one reward.

        Raises:
            ValueError: the reward is not in [0, 1], or the discount not in (0, 1].
        """
        value, kept = checked_reward(reward), checked_discount(discount)
        alpha, beta, n = self.alpha.copy(), self.beta.copy(), self.n.copy()
        alpha[arm] = self.prior_alpha[arm] + kept * (alpha[arm] - self.prior_alpha[arm]) + value
        beta[arm] = self.prior_beta[arm] + kept * (beta[arm] - self.prior_beta[arm]) + 1.0 - value
        n[arm] += 1.0
        return replace(self, alpha=alpha, beta=beta, n=n)

    def reopened(self, arm: int, *, successes: float = 0.0, failures: float = 0.0) -> Self:
        """Return the arms with one back at its prior plus what is known since a change."""
        alpha, beta = self.alpha.copy(), self.beta.copy()
        alpha[arm] = self.prior_alpha[arm] + successes
        beta[arm] = self.prior_beta[arm] + failures
        return replace(self, alpha=alpha, beta=beta)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GaussianArms:
    """Normal-inverse-gamma posteriors; every array is (n_arms,).

    The mean of an arm given its variance v is normal with mean ``mean`` and variance v / ``kappa``;
    v is inverse gamma with ``shape`` and ``scale``.
    """

    prior_mean: Floats
    prior_kappa: Floats
    prior_shape: Floats
    prior_scale: Floats
    kappa: Floats
    total: Floats
    """``kappa`` times mean: sum of the rewards, that of the prior included."""
    squares: Floats
    """Sum of squared rewards, discounted like the others; without the prior."""
    n: Floats
    """Rewards learned from, undiscounted."""

    @classmethod
    def begin(
        cls,
        n_arms: int,
        *,
        mean: ArrayLike = 0.5,
        kappa: ArrayLike = 1.0,
        shape: ArrayLike = 2.0,
        scale: ArrayLike = 0.25,
    ) -> Self:
        """Return arms that know their prior alone; each argument is one number or (n_arms,).

        Raises:
            ValueError: a number is out of range.
        """
        m, k, a, b = (
            np.broadcast_to(np.asarray(x, dtype=np.float64), (n_arms,)).copy()
            for x in (mean, kappa, shape, scale)
        )
        # Up to a shape of 1 the mean's posterior has no variance.
        positive = all(np.all((x > 0) & np.isfinite(x)) for x in (k, a - 1.0, b))
        if not (np.all(np.isfinite(m)) and positive):
            raise ValueError("mean must be finite, kappa and scale positive, and shape above 1")
        return cls(
            prior_mean=m,
            prior_kappa=k,
            prior_shape=a,
            prior_scale=b,
            kappa=k,
            total=k * m,
            squares=np.zeros(n_arms),
            n=np.zeros(n_arms),
        )

    @property
    def means(self) -> Floats:
        """Posterior means, (n_arms,) (eq. 86)."""
        return np.asarray(self.total / self.kappa)

    @property
    def shape(self) -> Floats:
        """Of the variance, (n_arms,) (eq. 88)."""
        return np.asarray(self.prior_shape + (self.kappa - self.prior_kappa) / 2.0)

    @property
    def scale(self) -> Floats:
        """Of the variance, (n_arms,) (eq. 89, with its sums written out)."""
        spread = self.squares + self.prior_kappa * self.prior_mean**2 - self.total**2 / self.kappa
        return np.asarray(self.prior_scale + np.maximum(spread, 0.0) / 2.0)

    @property
    def sds(self) -> Floats:
        """Standard deviation of each mean's Student t posterior, (n_arms,)."""
        return np.asarray(np.sqrt(self.scale / ((self.shape - 1.0) * self.kappa)))

    def draw(self, rng: np.random.Generator) -> Floats:
        """Draw a mean for each arm from a normal of the posterior's mean and variance, (n_arms,)."""
        return rng.normal(self.means, self.sds)

    def propensities(self) -> Floats:
        """Return the probability of each arm to be drawn highest, (n_arms,)."""
        return of_gaussian(self.means, self.sds)

    def tell(self, arm: int, reward: float, *, discount: float = 1.0) -> Self:
        """Return the arms after one reward of any finite size.

        Raises:
            ValueError: the reward is not finite, or the discount not in (0, 1].
        """
        if not np.isfinite(reward):
            raise ValueError(f"a reward must be finite, but got {reward}")
        kept = checked_discount(discount)
        kappa, total, squares, n = (
            x.copy() for x in (self.kappa, self.total, self.squares, self.n)
        )
        prior = self.prior_kappa[arm]
        total[arm] = prior * self.prior_mean[arm] + kept * (
            total[arm] - prior * self.prior_mean[arm]
        )
        kappa[arm] = prior + kept * (kappa[arm] - prior)
        kappa[arm] += 1.0
        total[arm] += reward
        squares[arm] = kept * squares[arm] + reward**2
        n[arm] += 1.0
        return replace(self, kappa=kappa, total=total, squares=squares, n=n)
