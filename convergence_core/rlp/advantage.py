"""Generalized advantages of thoughts (Schulman et al. 2016, eq. 16).

Departures: the paper of RLP (arXiv 2510.01265, eq. 7) compares a group of thoughts; here each generation has
one. Rewards are divided by the running root mean square sigma. No running mean is ever taken
off: r = 0 means "no better than no thought", and centring would forget that.

Notation: g generation, r reward in nats, s state, V value.
"""

import math
from typing import Final

import numpy as np

from convergence_core.policy.advantage import generalized_advantages

CLIP: Final = 5.0
GAMMA: Final = 0.99
LAMBDA: Final = 0.95
LEAST_ETA: Final = 0.01
LEAST_SIGMA: Final = 1e-3


def second_moment(before: float, reward: float, number: int) -> float:
    """Return sigma^2 <- (1 - eta) sigma^2 + eta r^2, with eta = max(.01, 1/g).

    Args:
        before: sigma^2 so far.
        reward: Reward of this generation.
        number: Number of generations with a reward, including this one.
    """
    eta = max(LEAST_ETA, 1.0 / number)
    return (1.0 - eta) * before + eta * reward**2


def sigma_of(moment: float) -> float:
    """Return sigma, by which rewards are divided."""
    return max(math.sqrt(moment), LEAST_SIGMA)


def generalized(rewards: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the generalized advantage estimate of each generation, (n,).

    Args:
        rewards: reward over sigma of each generation, (n,).
        values: V(s_g), that of the state after the last included, (n + 1,).
    """
    ends = np.zeros(len(rewards), dtype=bool)
    advantages = generalized_advantages(
        rewards, values[:-1], values[1:], ends, gamma=GAMMA, gae_lambda=LAMBDA
    )
    return np.asarray(advantages, np.float64)


def scaled(raw: np.ndarray) -> np.ndarray:
    """Return clip((1 - gamma lambda) A, +-5): on the scale of one reward, (n,)."""
    return np.asarray(np.clip((1.0 - GAMMA * LAMBDA) * raw, -CLIP, CLIP), np.float64)
