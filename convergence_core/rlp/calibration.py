"""How sure the predictor sounds, set right: one temperature for both arms.

T_cal minimizes the log loss of softmax(log p / T) on revealed outcomes over a grid from .5 to 2 by
.05, every fifty outcomes. Arms with and without a thought share it, so it cannot favour either.
"""

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
        predictions: as the channel gave them, (n, n_outcomes).
        observed: index of what came, (n,).

    Raises:
        ValueError: there is no prediction.
    """
    if len(predictions) == 0:
        raise ValueError("no prediction to calibrate by")
    logs = np.log(np.maximum(predictions, TINY))
    rows = np.arange(len(predictions))
    seen = logs[rows, np.asarray(observed)].mean()

    def loss(i: int) -> float:
        z = logs / GRID[i]
        most = z.max(axis=1, keepdims=True)
        return float((most[:, 0] + np.log(np.exp(z - most).sum(axis=1))).mean() - seen / GRID[i])

    # Convex in 1/T, so it falls and then rises along the grid.
    low, high = 0, len(GRID) - 1
    while low < high:
        middle = (low + high) // 2
        if loss(middle) <= loss(middle + 1):
            high = middle
        else:
            low = middle + 1
    return float(GRID[low])
