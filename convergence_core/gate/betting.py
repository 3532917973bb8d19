"""Test of a difference by betting.

Before each reward in [0, 1] is revealed, a bet stakes part of its wealth on one arm being better
than another. If it is not, the wealth is a supermartingale. By Ville's inequality it ever reaches
``1 / alpha`` with probability at most ``alpha``. So wealth is evidence, at any time and any number
of looks (I. Waudby-Smith, A. Ramdas, "Estimating means of bounded random variables by betting",
JRSS B 2024). Each fraction c of ``FRACTIONS`` bets separately from the same start, and the mean is
the wealth. A mixture is again fair, and no rate has to be learned (A. Orabona, K.-S. Jun, "Tight
concentrations and confidence sequences from the regret of universal portfolio", 2021).

Notation: c is the share of the largest stake that cannot lead to ruin.

Requests go to arm i with probability ``p`` and to arm b with ``q = 1 - p``, given that they go to
one of the two. With a stake L >= 0 and any centre, all fixed before the reward is revealed,

    factor = 1 + [A = i] (L / p) (x - m_i) - [A = b] (L / q) (x - m_b),    m_i = m_b + effect      (1)
    E[factor] = 1 + L (mu_i - mu_b - effect)                                                       (2)

given the past: at most 1 if i is not better than b by more than ``effect``. So the product over
requests is evidence against that null, under any rule that chooses p from the past. This is the
e-variable of R. Turner, A. Ly, P. Grünwald, "Generic E-variables for exact sequential k-sample
tests that allow for optional stopping", 2021, for two groups of sizes p and q, written as a bet on
bounded rewards; for 0 and 1 it is their likelihood ratio. Only the difference is learned, so a
common mean costs nothing; evidence from counts alone would pay half a logarithm of n for it.

Stakes are fractions (``FRACTIONS``) of the largest that cannot lead to ruin, and the centre is the
expected mean of the next reward. Both affect how fast evidence grows, not its validity. Delays are
harmless if p, L and the centre were fixed when the arm was chosen and a delay does not depend on
the reward.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]
FRACTIONS: Floats = np.asarray(0.9 * 2.0 ** (-0.6 * np.arange(13)), dtype=np.float64)
"""c in (0, 1), (n_bets,): each 0.66 of the one before. Even for an effect of 0.006 of the largest
stake, some bet is at most a fifth too large."""
FRACTIONS.setflags(write=False)

LOG_START = -float(np.log(FRACTIONS.size))
"""Log start wealth of each bet; their sum is 1."""


def log_mean_wealth(log_wealth: Floats) -> Floats:
    """Return the logarithm of the sum over the last axis, the bets; shape (...,)."""
    return np.asarray(logsumexp(log_wealth, axis=-1), dtype=np.float64)


CENTRE_MARGIN = 1e-3
"""Minimum distance of centres from 0 and 1."""


def log_pair_factors(
    *,
    is_first: np.ndarray,
    rewards: Floats,
    shares: Floats,
    means: tuple[float | Floats, float | Floats],
    effect: float = 0.0,
) -> Floats:
    """Return the logarithm of each request's factor for each bet, (n, n_bets).

    Args:
        is_first: Whether the request went to i rather than b, (n,) of bool.
        rewards: Rewards in [0, 1], (n,). NaN is a pending reward, counted at its worst for the
            bet, so that the factor is a lower bound.
        shares: p of each request, (n,), in [0, 1]. At 0 and 1 the bets stake nothing.
        means: Expected rewards of i and b, per request (n,) or for all; from the past only.
        effect: Difference by which i must be better, in (-1, 1); if negative, i may be worse by
            it.
    """
    p = np.asarray(shares, dtype=np.float64)
    q = 1.0 - p
    pooled = p * means[0] + q * means[1]
    m_b = np.clip(
        pooled - p * effect,
        CENTRE_MARGIN - min(effect, 0.0),
        1.0 - CENTRE_MARGIN - max(effect, 0.0),
    )
    m_i = m_b + effect
    max_stake = np.minimum(p / m_i, q / (1.0 - m_b))  # (n,)
    propensity = np.where(is_first, p, q)
    rewards = np.where(np.isnan(rewards), np.where(is_first, 0.0, 1.0), rewards)
    signed = np.where(is_first, rewards - m_i, m_b - rewards)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(max_stake > 0.0, max_stake * signed / propensity, 0.0)
    return np.asarray(np.log1p(FRACTIONS * gain[:, None]), dtype=np.float64)  # (eq. 1)
