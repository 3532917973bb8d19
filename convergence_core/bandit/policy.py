"""Policy that chooses the arm of a request with an exact propensity.

A *policy* is one version of the propensities of all arms; an arm is drawn from them. Drawing from
the probability of being best is Thompson sampling, whether the means or the arm are drawn, so
nothing is lost by integrating once per version and every logged propensity is exact. A version
lasts until the evidence has grown by ``GROWTH`` or a second reason to look again comes (an alarm, an
arm added or retired), so a decision costs a look into a table. Of several processes one makes the versions,
and the others have more patience.

Exploration may be raised: a share of all requests is then spread evenly over the arms.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike

GROWTH = 0.02
"""Share by which the number of rewards grows before propensities are taken anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmChoice:
    """A chosen arm."""

    arm: int
    propensity: float
    """Probability of this arm when it was chosen, in (0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One version of all propensities."""

    propensities: tuple[float, ...]
    """Of each arm, summing to 1."""
    edges: tuple[float, ...]
    """Running sums of the propensities."""
    n: float
    """Rewards behind it."""

    @classmethod
    def of(cls, propensities: ArrayLike, *, n: float = 0.0, explore: float = 0.0) -> "Policy":
        """Return the policy of these propensities.

        Args:
            propensities: (n_arms,), not negative; they are made to sum to 1.
            n: rewards behind them.
            explore: share of the requests that is spread evenly, in [0, 1].

        Raises:
            ValueError: an argument is out of range.
        """
        p = np.asarray(propensities, dtype=np.float64)
        if p.ndim != 1 or not p.size or not np.all(p >= 0.0) or not 0.0 < p.sum() < np.inf:
            raise ValueError("propensities must be numbers of 0 or more, not all 0")
        if not 0.0 <= explore <= 1.0:
            raise ValueError(f"explore must lie in [0, 1], but got {explore}")
        mixed = (1.0 - explore) * p / p.sum() + explore / p.size
        chances = (mixed / mixed.sum()).tolist()
        return cls(propensities=tuple(chances), edges=tuple(accumulate(chances)), n=n)

    def choose(self, uniform: float) -> ArmChoice:
        """Return the arm at a uniform number in [0, 1)."""
        arm = bisect_right(self.edges, uniform * self.edges[-1])
        while arm >= len(self.edges) or self.propensities[arm] == 0.0:
            arm -= 1  # a rounded last edge
        return ArmChoice(arm=arm, propensity=self.propensities[arm])

    def is_stale(self, n: float, *, patience: float = 1.0) -> bool:
        """Return whether so many rewards call for a new version; see ``stale_at``."""
        return n >= self.stale_at(patience)

    def stale_at(self, patience: float = 1.0) -> float:
        """Return the number of rewards that calls for a new version.

        Args:
            patience: how many times ``GROWTH`` is waited for; more than 1 where another process is
                about to make the version.
        """
        return self.n + patience * max(1.0, GROWTH * self.n)
