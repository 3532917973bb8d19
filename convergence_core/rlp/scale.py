"""Where the ten bins of a generation lie: a part of [0, 1], fixed before anybody thinks.

Systems whose rewards lie close together would have all of them in a bin or two of ten tenths, and no
thought could say anything of them. The trials seen so far say where rewards are to be expected:

    low = max(0, least - .1 s),   high = min(1, most + s),   s = max(most - least, .05)

with more room above, where the search is going. What lies outside belongs to the bins at the ends. The
bins only ever widen, and all predictions of a generation, with a thought and without, are made in the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.rlp.bins import EDGES, bin_of, mean_of, variance_of

LEAST_TRIALS: Final = 4
"""Fewer say nothing of where rewards lie: the bins are tenths of [0, 1] then."""
LEAST_SPAN: Final = 0.05
BELOW: Final = 0.1
ABOVE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Scale:
    """The ends of the bins, in rewards."""

    low: float = 0.0
    high: float = 1.0

    @classmethod
    def of(cls, rewards: Sequence[float]) -> "Scale":
        """Return the scale that the trials seen so far ask for.

        Args:
            rewards: means of trials, in [0, 1].
        """
        if len(rewards) < LEAST_TRIALS:
            return cls()
        least, most = min(rewards), max(rewards)
        span = max(most - least, LEAST_SPAN)
        return cls(max(0.0, least - BELOW * span), min(1.0, most + ABOVE * span))

    @property
    def width(self) -> float:
        """Of all bins together, in rewards."""
        return self.high - self.low

    @property
    def edges(self) -> np.ndarray:
        """Of the bins, in rewards, (N_BINS + 1,)."""
        return self.low + self.width * EDGES

    def bin_of(self, reward: float) -> int:
        """Return the bin of a reward; the first and the last hold what lies beyond."""
        return bin_of(min(1.0, max(0.0, (reward - self.low) / self.width)))

    def mean_of(self, p: np.ndarray) -> np.ndarray:
        """Return E[reward] of each row, shape p.shape[:-1]."""
        return np.asarray(self.low + self.width * mean_of(p), np.float64)

    def variance_of(self, p: np.ndarray) -> np.ndarray:
        """Return Var[reward] of each row, that within the bins included, shape p.shape[:-1]."""
        return np.asarray(self.width**2 * variance_of(p), np.float64)


UNIT: Final = Scale()
"""Tenths of [0, 1]."""
