"""From rewards to advantages: scaled and never centred, within the group and over generations.

Group relative (arXiv 2510.01265, eq. 7): A_i = G/(G-1) (r_i - r-), without a division by the
group's deviation. The paper has no critic; the generalized advantage estimate (Schulman et al.
2016, eq. 16) is added with a small weight, for the original promised it.

Departure: rewards are divided by the running root mean square sigma. No running mean is ever taken
off: r = 0 means "no better than silence", and centring would forget that.

Notation: g generation, G thoughts of a generation, r_i rewards in nats, s state, V value.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

GAMMA: Final = 0.99
LAMBDA: Final = 0.95
CLIP: Final = 5.0
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


def sigma_of(moment: float, *, normalizes: bool = True) -> float:
    """Return sigma; 1 where rewards are not to be normalized."""
    return max(math.sqrt(moment), LEAST_SIGMA) if normalizes else 1.0


def group_advantages(rewards: Sequence[float], sigma: float) -> list[float]:
    """Return A_i = clip(G/(G-1) (r_i - r-)/sigma, +-5) (eq. 7); 0 for a group of one."""
    n = len(rewards)
    if n < 2:
        return [0.0] * n
    r = np.asarray(rewards, np.float64)
    scaled = n / (n - 1.0) * (r - r.mean()) / sigma
    return [float(a) for a in np.clip(scaled, -CLIP, CLIP)]


def deltas(
    rewards: Sequence[float],
    values: Sequence[float],
    next_value: float,
    *,
    gamma: float = GAMMA,
) -> np.ndarray:
    """Return delta_g = r-_g/sigma + gamma V(s_g+1) - V(s_g), (n,).

    Args:
        rewards: mean reward over sigma of each generation, (n,).
        values: V(s_g), (n,).
        next_value: V of the state after the last.
        gamma: discount.
    """
    v = np.asarray(values, np.float64)
    following = np.append(v[1:], next_value)
    return np.asarray(np.asarray(rewards, np.float64) + gamma * following - v, np.float64)


def generalized(found: np.ndarray, *, gamma: float = GAMMA, lam: float = LAMBDA) -> np.ndarray:
    """Return sum_l (gamma lambda)^l delta_g+l of each generation, (n,) (Schulman et al., eq. 16)."""
    total = 0.0
    out = np.zeros(len(found))
    for g in range(len(found) - 1, -1, -1):
        total = float(found[g]) + gamma * lam * total
        out[g] = total
    return out


def scaled_advantages(raw: np.ndarray, *, gamma: float = GAMMA, lam: float = LAMBDA) -> np.ndarray:
    """Return clip((1 - gamma lambda) A, +-5): on the scale of one reward, (n,)."""
    return np.asarray(np.clip((1.0 - gamma * lam) * raw, -CLIP, CLIP), np.float64)
