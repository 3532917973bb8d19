"""Replay of predictions and outcomes: the last 10,000 rows, oldest out first.

The rows are a projection of the committed thoughts and predictions that the store keeps, so a
resumed run reads them back and nothing is written twice.

The predictor is calibrated by them, with one temperature for both arms: T_cal minimizes the log loss of
softmax(log p / T) on known outcomes over a grid from .5 to 2 by .05, every fifty outcomes. Arms with and without
a thought share it, so it cannot favour either.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from convergence_core.rlp.bins import TINY
from convergence_core.rlp.commitments import Estimator, Thought

CAPACITY: Final = 10_000
GRID: Final = np.round(np.arange(0.5, 2.0 + 1e-9, 0.05), 2)
EVERY: Final = 50
"""Outcomes between two calibrations."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ReplayRow:
    """One thought and one outcome."""

    generation: int
    """Of the outcome."""
    thought_id: str
    subject: str
    """Candidate."""
    observed: int
    """Index of the outcome."""
    forecast: tuple[float, ...]
    """As the channel gave it, with the thought."""
    no_thought: tuple[float, ...]
    """As the channel gave it, without."""
    statistical: tuple[float, ...]
    p: float
    """p(b) with the thought, calibrated, before mixing."""
    baseline: float
    """p-(b)."""
    gain: float
    """IG, in nats."""
    resolution: float | None
    """Gain over the thought's own average forecast of the generation, in nats; ``None``: written
    before it was measured."""
    estimator: Estimator
    is_rescored: bool = False
    """Whether the thought is older than the generation: no reward comes of such a row."""
    is_censored: bool = False
    """Whether the outcome lay outside of what the server told, in one arm at least: its probability
    is a bound, from which no calibration is learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Rows, oldest first, and the thoughts they are of."""

    rows: tuple[ReplayRow, ...] = ()
    thoughts: Mapping[str, Thought] = field(default_factory=dict)
    capacity: int = CAPACITY

    def __len__(self) -> int:
        """Rows."""
        return len(self.rows)

    def after(self, rows: Sequence[ReplayRow], thoughts: Iterable[Thought]) -> "Replay":
        """Return the replay with these; what does not fit leaves first in, first out."""
        kept = (*self.rows, *rows)[-self.capacity :] if self.capacity else ()
        known = {**self.thoughts, **{t.thought_id: t for t in thoughts}}
        wanted = {row.thought_id for row in kept}
        return Replay(
            rows=kept,
            thoughts={name: t for name, t in known.items() if name in wanted},
            capacity=self.capacity,
        )

    def forecasts(self) -> tuple[np.ndarray, list[int]]:
        """Return predictions of ten bins in both arms and what came, for the calibration.

        Outcomes whose probability is a bound are left out.
        """
        rows = [row for row in self.rows if not row.is_censored]
        both = [row.forecast for row in rows] + [row.no_thought for row in rows]
        return np.array(both), [row.observed for row in rows] * 2

    def gains_of(self) -> dict[str, list[float]]:
        """Return thought → all its gains, oldest first."""
        gains = defaultdict(list)
        for row in self.rows:
            gains[row.thought_id].append(row.gain)
        return dict(gains)


def calibration_is_due(n_before: int, n_after: int) -> bool:
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
