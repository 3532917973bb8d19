"""Predictions of a trial's reward: ten bins, fixed before a generation's thoughts.

A thought is judged by how likely it made an outcome, so outcomes must be countable. Ten bins keep
almost all that a density would say, and every probability channel can name ten options.

Systems whose rewards lie close together would have all of them in a bin or two of ten tenths of [0, 1].
The trials seen so far say where rewards are to be expected:

    low = max(0, least - .1 s),   high = min(1, most + s),   s = max(most - least, .05)

with more room above, where the search is going. What lies outside belongs to the bins at the ends. The
bins only ever widen, and all predictions of a generation, with a thought and without, are made in the same.

Notation: p(b), the probability of bin b in 0 … 9.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

N_BINS: Final = 10
_EDGES: Final = np.linspace(0.0, 1.0, N_BINS + 1)  # (N_BINS + 1,)
_CENTERS: Final = (_EDGES[:-1] + _EDGES[1:]) / 2.0  # (N_BINS,)
_WITHIN: Final = 1.0 / (12.0 * N_BINS**2)
"""Variance of a reward within its bin, in widths of all bins squared."""
TINY: Final = 1e-6
"""Least probability of a bin: no channel can tell never from seldom."""
LEAST_TRIALS: Final = 4
"""Fewer say nothing of where rewards lie: the bins are tenths of [0, 1] then."""
LEAST_SPAN: Final = 0.05
BELOW: Final = 0.1
ABOVE: Final = 1.0


@dataclass(frozen=True, slots=True)
class RewardBins:
    """Ten equal bins, by their ends in rewards."""

    low: float = 0.0
    high: float = 1.0

    @classmethod
    def of(cls, rewards: Sequence[float]) -> "RewardBins":
        """Return the bins that the trials seen so far ask for.

        Args:
            rewards: means of trials, in [0, 1].
        """
        if len(rewards) < LEAST_TRIALS:
            return cls()
        least, most = min(rewards), max(rewards)
        span = max(most - least, LEAST_SPAN)  # s
        return cls(max(0.0, least - BELOW * span), min(1.0, most + ABOVE * span))

    @property
    def width(self) -> float:
        """Of all bins together, in rewards."""
        return self.high - self.low

    @property
    def edges(self) -> np.ndarray:
        """Of the bins, in rewards, (N_BINS + 1,)."""
        return self.low + self.width * _EDGES

    def bin_of(self, reward: float) -> int:
        """Return the bin of a reward; the first and the last hold what lies beyond."""
        share = min(1.0, max(0.0, (reward - self.low) / self.width))
        # Rewards are means of cells: .3 may come as .29999999999999998.
        return min(N_BINS - 1, int(share * N_BINS + 1e-9))

    def mean_of(self, p: np.ndarray) -> np.ndarray:
        """Return E[reward] of each row, shape p.shape[:-1]."""
        return np.asarray(self.low + self.width * (p @ _CENTERS), np.float64)

    def variance_of(self, p: np.ndarray) -> np.ndarray:
        """Return Var[reward] of each row, that within the bins included, shape p.shape[:-1]."""
        between = p @ _CENTERS**2 - (p @ _CENTERS) ** 2
        return np.asarray(self.width**2 * (between + _WITHIN), np.float64)


TENTHS: Final = RewardBins()
"""Of [0, 1]."""


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


def relative_entropy(p: Sequence[np.ndarray]) -> float:
    """Return the mean entropy of distributions over the greatest possible; 1 for none."""
    shares = [-np.sum(q * np.log(np.maximum(q, 1e-300))) / np.log(len(q)) for q in p]
    return float(np.mean(shares)) if shares else 1.0
