"""Generalized advantage estimation (J. Schulman et al., arXiv 1506.02438).

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t)                                                       (10)
    A_t = delta_t + gamma lambda A_{t+1}, cut where a trajectory ends                               (16)

An end has two meanings. A *terminated* episode earns nothing more: V(s_{t+1}) is 0. A *truncated* one was only
watched no longer, because of a time limit or a full buffer: V(s_{t+1}) is the value of its final observation
(F. Pardo et al., "Time limits in reinforcement learning", 2018). To take one for the other teaches that time
limits are failures.

Notation: T steps of N environments; rows are steps in time.
"""

import numpy as np

from convergence_core.policy.distribution import Bools
from convergence_core.policy.network import Floats


def following_values(
    values: Floats,
    *,
    terminated: Bools,
    truncated: Bools,
    final_values: Floats,
    last_values: Floats,
) -> Floats:
    """Return V(s_{t+1}) of each step, (T, N).

    Args:
        values: V(s_t), (T, N).
        terminated: Whether the episode ended naturally with this step, (T, N); it wins over
            ``truncated``.
        truncated: Whether a limit cut it, (T, N).
        final_values: value of the observation at which an episode was cut, (T, N); read only
            there.
        last_values: value of the observation after the last row, (N,).
    """
    following = np.vstack((values[1:], last_values[None]))
    following = np.where(truncated, final_values, following)
    return np.where(terminated, 0.0, following)


def generalized_advantages(
    rewards: Floats,
    values: Floats,
    following: Floats,
    ends: Bools,
    *,
    gamma: float,
    gae_lambda: float,
) -> Floats:
    """Return the advantages, (T, N) in double precision.

    Args:
        rewards: r_t, (T, N).
        values: V(s_t), (T, N).
        following: V(s_{t+1}), (T, N), from ``following_values``.
        ends: whether a trajectory ends with this step, however it ends, (T, N).
        gamma: discount.
        gae_lambda: weight of longer returns.
    """
    deltas = rewards + gamma * following.astype(np.float64) - values  # (eq. 10)
    carried = gamma * gae_lambda * ~ends
    advantages = np.empty_like(deltas)
    later = np.zeros(deltas.shape[1:])
    for t in reversed(range(len(deltas))):
        later = deltas[t] + carried[t] * later  # (eq. 16)
        advantages[t] = later
    return advantages
