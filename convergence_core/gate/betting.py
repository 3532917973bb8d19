"""Testing the mean of bounded rewards by betting, valid at any look.

A fair game: before each reward ``x`` in [0, 1] is seen, part of the wealth is staked on the mean
lying above (or below) ``m``. If the mean is not above ``m`` the wealth is a supermartingale, and by
Ville's inequality it ever reaches ``1 / alpha`` with probability at most ``alpha``. So wealth is
evidence, whenever and however often one looks (I. Waudby-Smith, A. Ramdas, "Estimating means of
bounded random variables by betting", JRSS B 2024, the capital process and its hedged form).

*Bets.* Each of ``FRACTIONS`` plays for itself with the same start, and their mean is the wealth: a
mixture is again fair, and no rate needs to be learned (A. Orabona, K.-S. Jun, "Tight concentrations
and confidence sequences from the regret of universal portfolio", 2021, for the idea of portfolios).

Notation:
    c       fraction of the largest stake that cannot lead to ruin
    lambda  stake: ``c / m`` above, ``-c / (1 - m)`` below
    factor  ``1 + lambda (x - m)``, never negative

The factors need no independence: the mean of each reward, given those before, must obey the null.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]
Side = Literal["above", "below"]

FRACTIONS: Floats = np.asarray(0.9 * 2.0 ** (-0.6 * np.arange(13)), dtype=np.float64)
"""Fractions ``c`` in (0, 1), (n_bets,): from bold to timid, each 0.66 of the one before. An effect
as small as 0.006 of the largest stake still finds a bet that is at most a fifth too large."""
FRACTIONS.setflags(write=False)

EVEN = -float(np.log(FRACTIONS.size))
"""Logarithm of each bet's start: together they begin with 1."""


def log_mean_wealth(log_wealth: Floats) -> Floats:
    """Return the logarithm of the sum over the last axis, the bets: shape (...,)."""
    return np.asarray(logsumexp(log_wealth, axis=-1), dtype=np.float64)


def checked_rewards(rewards: ArrayLike) -> Floats:
    """Return rewards as an array of shape (n,).

    Raises:
        ValueError: one of them is not finite or not in [0, 1].
    """
    values = np.asarray(rewards, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"rewards must be one-dimensional, but got shape {values.shape}")
    # Written so that NaN fails.
    if not np.all((values >= 0.0) & (values <= 1.0)):
        raise ValueError("each reward must be a finite number in [0, 1]")
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Wealth:
    """Evidence against a null about one mean."""

    mean: float
    """``m`` of the null: the mean is at most this (``above``), or at least this (``below``)."""
    side: Side
    """On which side of ``m`` the money is."""
    log_wealth: tuple[float, ...] = (EVEN,) * FRACTIONS.size
    """Of each bet, nats."""
    log_highest: float = 0.0
    """Highest logarithm of the whole wealth so far, nats: what Ville's inequality speaks of."""
    n: int = 0
    """Rewards seen."""

    def __post_init__(self) -> None:
        """Refuse a null that nothing can contradict.

        Raises:
            ValueError: ``mean`` is not strictly between 0 and 1.
        """
        if not 0.0 < self.mean < 1.0:
            raise ValueError(f"the null's mean must lie strictly in (0, 1), but got {self.mean}")

    @property
    def log_e(self) -> float:
        """Logarithm of the wealth now, nats."""
        return float(log_mean_wealth(np.array(self.log_wealth)))

    @property
    def p_value(self) -> float:
        """Anytime-valid p-value: 1 / highest wealth so far."""
        return float(np.exp(-self.log_highest))

    def rejects(self, alpha: float) -> bool:
        """Return whether the null was ever rejected with error probability ``alpha``."""
        return self.log_highest >= -math.log(alpha)

    def update(self, rewards: ArrayLike) -> "Wealth":
        """Return the wealth after more rewards, looked at after each of them.

        Args:
            rewards: (n,), in [0, 1], in an order that does not depend on their values.

        Raises:
            ValueError: a reward is not in [0, 1].
        """
        values = checked_rewards(rewards)
        if not values.size:
            return self
        gains = np.cumsum(_log_factors(values, self.mean, self.side), axis=0)  # (n, n_bets)
        paths = np.array(self.log_wealth) + gains
        return Wealth(
            mean=self.mean,
            side=self.side,
            log_wealth=tuple(paths[-1].tolist()),
            log_highest=max(self.log_highest, float(log_mean_wealth(paths).max())),
            n=self.n + values.size,
        )


def _log_factors(values: Floats, mean: float | Floats, side: Side) -> Floats:
    """Return the logarithm of ``1 + lambda (x - m)``: (n, n_bets), for one ``m``."""
    if side == "below":
        return _log_factors(1.0 - values, 1.0 - mean, "above")
    return np.asarray(np.log1p(FRACTIONS * (values[:, None] / mean - 1.0)))


def log_e_value(rewards: ArrayLike, mean: float, side: Side) -> float:
    """Return the logarithm of the wealth after these rewards, nats, not its highest."""
    values = checked_rewards(rewards)
    return log_e_of_counts(*np.unique(values, return_counts=True), mean, side)


def log_e_of_counts(values: Floats, counts: NDArray[np.intp], mean: float, side: Side) -> float:
    """Return the same for distinct rewards and how often each occurred, both (n,)."""
    gains = counts @ _log_factors(values, mean, side)
    return float(log_mean_wealth(EVEN + gains))


def confidence_interval(rewards: ArrayLike, alpha: float = 0.05) -> tuple[float, float]:
    """Return the interval of means that neither side has rejected at ``alpha / 2``.

    The intervals for n = 1, 2, … are a confidence sequence: with probability ``1 - alpha`` all of
    them cover the mean. The wealth against "at most m" falls as m grows, for every bet's factor
    ``1 - c + c x / m`` does, so each end is found by bisection.

    Raises:
        ValueError: a reward is not in [0, 1].
    """
    values, counts = np.unique(checked_rewards(rewards), return_counts=True)
    if not values.size:
        return 0.0, 1.0
    threshold = float(np.log(2.0 / alpha))
    centre = float(np.clip(counts @ values / counts.sum(), 1e-9, 1.0 - 1e-9))
    ends = [0.0, 1.0]
    sides: Iterable[tuple[int, Side]] = ((0, "above"), (1, "below"))
    for place, side in sides:
        rejected, kept = ends[place], centre
        for _ in range(60):
            middle = (rejected + kept) / 2.0
            if not 0.0 < middle < 1.0:
                break
            if log_e_of_counts(values, counts, middle, side) >= threshold:
                rejected = middle
            else:
                kept = middle
        ends[place] = rejected
    return ends[0], ends[1]
