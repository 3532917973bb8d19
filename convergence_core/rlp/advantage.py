"""Advantages of thoughts, within the group and over generations.

Group relative (arXiv 2510.01265, eq. 7): A_i = G/(G-1) (r_i - r-), without a division by the
group's deviation. The paper has no critic; the generalized advantage estimate (Schulman et al.
2016, eq. 16) is added with a small weight, as the-convergence 0.1 promised it.

Departure: rewards are divided by the running root mean square sigma. No running mean is ever taken
off: r = 0 means "no better than no thought", and centring would forget that.

Notation: g generation, G thoughts of a generation, r_i rewards in nats, s state, V value.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

CLIP: Final = 5.0
GAMMA: Final = 0.99
LAMBDA: Final = 0.95
ALPHA: Final = 0.25
"""Weight of the generalized advantage beside the group's."""
LEAST_ETA: Final = 0.01
LEAST_SIGMA: Final = 1e-3


def second_moment(before: float, rewards: Sequence[float], number: int) -> float:
    """Return sigma^2 <- (1 - eta) sigma^2 + eta mean r^2, with eta = max(.01, 1/g).

    Args:
        before: sigma^2 so far.
        rewards: of this generation; empty: sigma^2 stays.
        number: generations with rewards, this one included, from 1.
    """
    if not rewards:
        return before
    eta = max(LEAST_ETA, 1.0 / number)
    return (1.0 - eta) * before + eta * float(np.mean(np.square(rewards)))


def sigma_of(moment: float) -> float:
    """Return sigma, by which rewards are divided."""
    return max(math.sqrt(moment), LEAST_SIGMA)


def group_advantages(rewards: Sequence[float], sigma: float) -> np.ndarray:
    """Return A_i = clip(G/(G-1) (r_i - r-)/sigma, +-5), (G,); 0 for a group of one."""
    n = len(rewards)
    r = np.asarray(rewards, np.float64)
    a = n / max(n - 1.0, 1.0) * (r - r.mean()) / sigma  # (RLP eq. 7)
    return np.asarray(np.clip(a, -CLIP, CLIP), np.float64)


def generalized(
    rewards: np.ndarray, values: np.ndarray, *, gamma: float = GAMMA, lam: float = LAMBDA
) -> np.ndarray:
    """Return the generalized advantage estimate of each generation, (n,).

    Args:
        rewards: mean reward over sigma of each generation, (n,).
        values: V(s_g), that of the state after the last included, (n + 1,).
        gamma: discount.
        lam: lambda, how far it looks ahead.
    """
    deltas = rewards + gamma * values[1:] - values[:-1]  # (Schulman et al. eq. 10)
    total, advantages = 0.0, np.zeros(len(deltas))
    for g in range(len(deltas) - 1, -1, -1):
        total = float(deltas[g]) + gamma * lam * total  # sum_l (gamma lambda)^l delta_g+l (eq. 16)
        advantages[g] = total
    return advantages


def scaled(raw: np.ndarray, *, gamma: float = GAMMA, lam: float = LAMBDA) -> np.ndarray:
    """Return clip((1 - gamma lambda) A, +-5): on the scale of one reward, (n,)."""
    return np.asarray(np.clip((1.0 - gamma * lam) * raw, -CLIP, CLIP), np.float64)
