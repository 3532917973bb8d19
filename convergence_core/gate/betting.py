"""Tests of the mean of bounded rewards by betting, valid at any look.

Before each reward ``x`` in [0, 1] is seen, part of the wealth is staked on the mean lying above (or
below) ``m``. If the mean is not above ``m`` the wealth is a supermartingale, and by Ville's
inequality it ever reaches ``1 / alpha`` with probability at most ``alpha``. So wealth is evidence,
whenever and however often one looks (I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random
variables by betting", JRSS B 2024, the capital process and its hedged form):

    wealth_n(m) = mean over c of prod_(i <= n) (1 + lambda_c (x_i - m))                            (1)
    lambda_c = c / m  (above)     lambda_c = -c / (1 - m)  (below)                                 (2)

Each fraction c of ``FRACTIONS`` plays for itself with the same start, and the mean is the wealth: a
mixture is again fair, and no rate needs to be learned (A. Orabona, K.-S. Jun, "Tight concentrations
and confidence sequences from the regret of universal portfolio", 2021). The factors need no
independence: the mean of each reward, given those before, must obey the null.

Notation: c is the share of the largest stake that cannot lead to ruin; lambda the stake.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]
Side = Literal["above", "below"]
"""On which side of ``m`` the money is. ``above`` tests "the mean is at most m"."""

FRACTIONS: Floats = np.asarray(0.9 * 2.0 ** (-0.6 * np.arange(13)), dtype=np.float64)
"""c in (0, 1), (n_bets,): each 0.66 of the one before. An effect as small as 0.006 of the largest
stake still finds a bet that is at most a fifth too large."""
FRACTIONS.setflags(write=False)

LOG_START = -float(np.log(FRACTIONS.size))
"""Logarithm of each bet's start: together they begin with 1."""


def log_mean_wealth(log_wealth: Floats) -> Floats:
    """Return the logarithm of the sum over the last axis, the bets; shape (...,)."""
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


def log_factors(rewards: Floats, mean: float, side: Side) -> Floats:
    """Return the logarithm of ``1 + lambda (x - m)`` of n rewards for each bet, (n, n_bets)."""
    if side == "below":
        return log_factors(1.0 - rewards, 1.0 - mean, "above")
    return np.asarray(np.log1p(FRACTIONS * (rewards[:, None] / mean - 1.0)))  # (eq. 2)


def log_highest_wealth(rewards: Floats, mean: float, side: Side) -> float:
    """Return the logarithm of the highest wealth over looks after each reward, nats; at least 0.

    Args:
        rewards: (n,), in [0, 1], in an order that does not depend on their values.
        mean: ``m``, strictly between 0 and 1.
        side: on which side of it the money is.
    """
    log_wealth = LOG_START + np.cumsum(log_factors(rewards, mean, side), axis=0)  # (eq. 1)
    return max(0.0, float(log_mean_wealth(log_wealth).max(initial=0.0)))


def log_wealth_of_counts(
    values: Floats, counts: NDArray[np.intp], mean: float, side: Side
) -> float:
    """Return the logarithm of the wealth now, nats.

    Args:
        values: distinct rewards, (n_values,).
        counts: how often each occurred, (n_values,).
        mean: ``m``.
        side: on which side of it the money is.
    """
    return float(log_mean_wealth(LOG_START + counts @ log_factors(values, mean, side)))
