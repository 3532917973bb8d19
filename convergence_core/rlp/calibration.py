"""Calibration of the predictor: one temperature for both arms.

T_cal minimizes the log loss of softmax(log p / T) on known outcomes over a grid from .5 to 2 by
.05, every fifty outcomes. Arms with and without a thought share it, so it cannot favour either.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import numpy as np

from convergence_core.rlp.bins import TINY

GRID: Final = np.round(np.arange(0.5, 2.0 + 1e-9, 0.05), 2)
EVERY: Final = 50
"""Outcomes between two calibrations."""


def is_due(n_before: int, n_after: int) -> bool:
    """Whether a multiple of ``EVERY`` outcomes was passed."""
    return n_after // EVERY > n_before // EVERY


def calibrated(predictions: np.ndarray, observed: Sequence[int]) -> float:
    """Return T_cal.

    Args:
        predictions: as the channel gave them, (n, n_outcomes), at least one.
        observed: index of what came, (n,).
    """
    logs = np.log(np.maximum(predictions, TINY))
    seen = logs[np.arange(len(logs)), np.asarray(observed)].mean()

    def loss(i: int) -> float:
        z = logs / GRID[i]
        most = z.max(axis=1, keepdims=True)
        return float((most[:, 0] + np.log(np.exp(z - most).sum(axis=1))).mean() - seen / GRID[i])

    # Convex in 1/T, so it falls and then rises along the grid.
    rises = bisect_left(range(len(GRID) - 1), x=True, key=lambda i: loss(i) <= loss(i + 1))
    return float(GRID[rises])
