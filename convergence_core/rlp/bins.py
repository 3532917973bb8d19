"""Predictions of a trial's reward: ten bins on [0, 1], whose edges never move.

A thought is judged by how likely it made an outcome, so outcomes must be countable. Ten bins keep
almost all that a density would tell, and every probability channel can name ten options.

Notation: p(b), the probability of bin b in 0 … 9.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.special import ndtr

N_BINS: Final = 10
EDGES: Final = np.linspace(0.0, 1.0, N_BINS + 1)
"""(N_BINS + 1,)"""
CENTERS: Final = (EDGES[:-1] + EDGES[1:]) / 2.0
"""(N_BINS,)"""
WITHIN: Final = 1.0 / (12.0 * N_BINS**2)
"""Variance of a reward within its bin."""
TINY: Final = 1e-6
"""Least probability of a bin: no channel can tell never from seldom."""


def bin_of(reward: float) -> int:
    """Return the bin of a reward in [0, 1]; 1 belongs to the last.

    Raises:
        ValueError: the reward lies outside.
    """
    if not 0.0 <= reward <= 1.0:
        raise ValueError(f"a reward must lie in [0, 1], but got {reward}")
    # Rewards are means of cells: .3 may come as .29999999999999998.
    return min(N_BINS - 1, int(reward * N_BINS + 1e-9))


def normalized(weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return weights as probabilities, none below ``TINY`` before the last division.

    Raises:
        ValueError: a weight is negative or not finite, or all are 0.
    """
    p = np.asarray(weights, np.float64)
    if p.ndim != 1 or not np.isfinite(p).all() or (p < 0).any() or not p.sum() > 0:
        raise ValueError("weights must be finite, 0 or more, and not all 0")
    p = np.maximum(p / p.sum(), TINY)
    return np.asarray(p / p.sum(), np.float64)


def tempered(p: np.ndarray, t_cal: float) -> np.ndarray:
    """Return softmax(log p / T_cal), rows over the last axis; same shape."""
    if t_cal == 1.0:
        return p
    logs = np.log(np.maximum(p, TINY)) / t_cal
    powers = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float64)


def mean_of(p: np.ndarray) -> np.ndarray:
    """Return E[y] of each row, shape p.shape[:-1]."""
    return np.asarray(p @ CENTERS, np.float64)


def variance_of(p: np.ndarray) -> np.ndarray:
    """Return Var[y] of each row, that within the bins included, shape p.shape[:-1]."""
    return np.asarray(p @ CENTERS**2 - (p @ CENTERS) ** 2 + WITHIN, np.float64)


def entropy_of(p: np.ndarray) -> np.ndarray:
    """Return the entropy of each row in nats, shape p.shape[:-1]."""
    return np.asarray(-np.sum(p * np.log(np.maximum(p, 1e-300)), axis=-1), np.float64)


def binned_normal(mean: float, sd: float) -> np.ndarray:
    """Return the bins of a normal prediction, (N_BINS,); what lies outside goes to the ends.

    Raises:
        ValueError: mean or sd is not finite, or sd is not above 0.
    """
    if not (np.isfinite(mean) and np.isfinite(sd) and sd > 0):
        raise ValueError(f"needs a finite mean and sd > 0, but got {mean} and {sd}")
    below = ndtr((EDGES[1:-1] - mean) / sd)
    return normalized(np.diff(np.concatenate([[0.0], below, [1.0]])))


def crps(p: np.ndarray, observed: int) -> float:
    """Return the continuous ranked probability score of a prediction, lower is better.

    Reported beside the information gain, and never called so.
    """
    steps = (np.arange(N_BINS) >= observed).astype(np.float64)
    return float(np.sum((np.cumsum(p) - steps) ** 2) / N_BINS)
