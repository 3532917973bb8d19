"""Posteriors of arms, and receipts of their rewards.

``BetaArms`` hold two counts per arm. A reward r in [0, 1] adds r to one and 1 - r to the other,
which for rewards between 0 and 1 is the update of E. Kaufmann, N. Korda, R. Munos, 2012, without the
coin toss. ``GaussianArms`` are normal with unknown mean and variance, with the Student posterior's
variance (K. P. Murphy, "Conjugate Bayesian analysis of the Gaussian distribution", 2007, eqs. 85 to
89), for rewards of any scale.

*Discounting* (option): before an arm learns, its evidence beyond the prior is multiplied by
``discount``, so that old rewards fade: at .99 an arm remembers its last hundred rewards or so.

Both are values: ``tell`` returns new ones, and everything learned is the prior plus a sum over
rewards, in any order, as long as nothing is discounted.

==========================================  ===========  ===========  =====================
case                                        returned     stored       posterior
==========================================  ===========  ===========  =====================
first reward in time                        ``ok``       ``ok``       learns
first reward after the decision expired     ``late``     ``late``     untouched
again, same value                           ``duplicate``  nothing    untouched
again, other value                          ``conflict`` ``conflict`` untouched: first wins
unknown decision                            ``unknown``  ``orphan``   untouched
==========================================  ===========  ===========  =====================

So at every moment a posterior is its prior plus the fold of the ``ok`` rewards.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

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


def _checked_discount(discount: float) -> float:
    if not 0.0 < discount <= 1.0:
        raise ValueError(f"a discount must lie in (0, 1], but got {discount}")
    return discount


def _with_item(values: Floats, index: int, value: float) -> Floats:
    """Return a copy with one value changed."""
    changed = values.copy()
    changed[index] = value
    return changed


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
        value, kept = checked_reward(reward), _checked_discount(discount)
        a, b = self.prior_alpha[arm], self.prior_beta[arm]
        return replace(
            self,
            alpha=_with_item(self.alpha, arm, a + kept * (self.alpha[arm] - a) + value),
            beta=_with_item(self.beta, arm, b + kept * (self.beta[arm] - b) + 1.0 - value),
            n=_with_item(self.n, arm, self.n[arm] + 1.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GaussianArms:
    """Normal-inverse-gamma posteriors; every array is (n_arms,).

    The mean of an arm given its variance v is normal with mean ``means`` and variance v / ``kappa``;
    v is inverse gamma with ``shape``, above 1, and ``scale``.
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

    @property
    def means(self) -> Floats:
        """Posterior means, (n_arms,)."""
        return np.asarray(self.total / self.kappa)  # (eq. 86)

    @property
    def shape(self) -> Floats:
        """Of the variance, (n_arms,)."""
        return np.asarray(self.prior_shape + (self.kappa - self.prior_kappa) / 2.0)  # (eq. 88)

    @property
    def scale(self) -> Floats:
        """Of the variance, (n_arms,)."""
        spread = self.squares + self.prior_kappa * self.prior_mean**2 - self.total**2 / self.kappa
        return np.asarray(
            self.prior_scale + np.maximum(spread, 0.0) / 2.0
        )  # (eq. 89, sums expanded)

    @property
    def sds(self) -> Floats:
        """Standard deviation of each mean's Student t posterior, (n_arms,)."""
        return np.asarray(np.sqrt(self.scale / ((self.shape - 1.0) * self.kappa)))

    def propensities(self) -> Floats:
        """Return the probability of each arm to be drawn highest, (n_arms,)."""
        return of_gaussian(self.means, self.sds)

    def tell(self, arm: int, reward: float, *, discount: float = 1.0) -> Self:
        """Return the arms after one reward of any finite size.

        Raises:
            ValueError: the reward is not finite, or the discount not in (0, 1].
        """
        value, kept = finite_reward(reward), _checked_discount(discount)
        kappa = self.prior_kappa[arm]
        total = kappa * self.prior_mean[arm]
        return replace(
            self,
            kappa=_with_item(self.kappa, arm, kappa + kept * (self.kappa[arm] - kappa) + 1.0),
            total=_with_item(self.total, arm, total + kept * (self.total[arm] - total) + value),
            squares=_with_item(self.squares, arm, kept * self.squares[arm] + value**2),
            n=_with_item(self.n, arm, self.n[arm] + 1.0),
        )


ReceiptStatus = Literal["ok", "late", "duplicate", "conflict", "unknown"]
StoredStatus = Literal["ok", "late", "conflict", "orphan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The answer to one reward."""

    status: ReceiptStatus
    stored: StoredStatus | None
    """Status of the stored row; ``None`` if it is not stored, since it is there already."""
    learns: bool
    """Whether the posterior learns from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDecision:
    """State of a decision when a reward for it arrives."""

    expires_us: int | None
    """First moment that is too late, microseconds since the epoch; ``None`` means never."""
    reward: float | None = None
    """The first reward it got, in time or late; ``None`` means none yet."""


def receive(
    reward: float,
    decision: OpenDecision | None,
    now_us: int,
    *,
    is_bounded: bool = True,
) -> Receipt:
    """Return the receipt of a reward.

    Args:
        reward: in [0, 1], or any finite number.
        decision: the one it is for; ``None`` if it is unknown.
        now_us: when it arrived.
        is_bounded: whether rewards lie in [0, 1]; those of Gaussian arms need not.

    Raises:
        ValueError: the reward is not finite, or not in [0, 1] where it is bounded.
    """
    value = checked_reward(reward) if is_bounded else finite_reward(reward)
    if decision is None:
        return Receipt(status="unknown", stored="orphan", learns=False)
    if decision.reward is not None:
        if decision.reward == value:
            return Receipt(status="duplicate", stored=None, learns=False)
        return Receipt(status="conflict", stored="conflict", learns=False)
    if decision.expires_us is not None and now_us >= decision.expires_us:
        return Receipt(status="late", stored="late", learns=False)
    return Receipt(status="ok", stored="ok", learns=True)
