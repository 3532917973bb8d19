"""Two-sample bets that one arm is better, in traffic of known propensities.

Requests go to arm i with probability ``p`` and to arm b with ``q = 1 - p``, given that they go to
one of the two. With a stake L >= 0 and any centre, all fixed before the reward is seen,

    factor = 1 + [A = i] (L / p) (x - m_i) - [A = b] (L / q) (x - m_b),    m_i = m_b + effect      (1)
    E[factor] = 1 + L (mu_i - mu_b - effect)                                                       (2)

given the past: at most 1 if i is not better than b by more than ``effect``. So the product over
requests is evidence against that null, whatever rule chose p from the past. This is the e-variable
of R. Turner, A. Ly, P. Grünwald, "Generic E-variables for exact sequential k-sample tests that allow
for optional stopping", 2021, for two groups of sizes p and q, written as a bet on bounded rewards;
for 0 and 1 it is their likelihood ratio. Only the difference is learned, so a common mean costs
nothing; evidence from counts alone would pay half a logarithm of n for it.

Stakes are fractions (``betting.FRACTIONS``) of the largest that cannot lead to ruin, and the centre
is the mean expected of the next reward: both shape how fast evidence grows, never whether it is
valid. Delays do no harm as long as p, L and the centre were fixed when the arm was chosen and a
delay does not depend on the reward.
"""

import numpy as np

from convergence_core.gate.betting import FRACTIONS, Floats

CENTRE_MARGIN = 1e-3
"""Least distance of centres from 0 and 1."""


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
        is_first: whether the request went to i, else to b, (n,) of bool.
        rewards: (n,), in [0, 1].
        shares: p of each request, (n,), in [0, 1]. Where one arm could not be chosen nothing is
            staked.
        means: what is expected of i and of b, of each request (n,) or of all; from the past only.
        effect: by how much i must be better, in (-1, 1); below 0: how much worse it may be.
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
    own = np.where(is_first, p, q)
    signed = np.where(is_first, rewards - m_i, m_b - rewards)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(max_stake > 0.0, max_stake * signed / own, 0.0)
    return np.asarray(np.log1p(FRACTIONS * gain[:, None]), dtype=np.float64)  # (eq. 1)
