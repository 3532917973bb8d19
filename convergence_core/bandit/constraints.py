"""Least cost under a quality constraint that is held with a stated confidence.

"Quality at least q at least cost, 95 %": an arm **holds** when the confidence sequence of its
quality lies above q, and **fails** when it lies below. The arm that came j-th, from 1, may err with
probability ``(1 - confidence) / (j (j + 1))`` (1), which sums to ``1 - confidence`` however many
come: so with probability ``confidence`` no arm is ever called holding that does not hold, at any
look. Requests go to the cheapest arm that holds; while a cheaper one is undecided, a share of them
goes there, so that it gets its chance. Where none holds, the arm of the highest quality serves.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from convergence_core.gate import betting

Standing = Literal["holds", "fails", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstrainedPlan:
    """Shares of the next requests."""

    shares: tuple[float, ...]
    """Probability of each arm, summing to 1."""
    standing: tuple[Standing, ...]
    """Of each arm."""
    serving: int
    """The arm that gets most requests."""
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    """Confidence sequence of each arm's quality."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityConstraint:
    """``quality >= least at least cost``."""

    least: float
    """Quality to be held, in (0, 1)."""
    confidence: float = 0.95
    explore: float = 0.1
    """Share of the requests for cheaper arms that are undecided, in [0, 1]."""

    def __post_init__(self) -> None:
        """Refuse settings without meaning.

        Raises:
            ValueError: a setting is out of range.
        """
        if not 0.0 < self.least < 1.0 or not 0.0 < self.confidence < 1.0:
            raise ValueError(
                f"least and confidence must lie in (0, 1), but got {self.least} and "
                f"{self.confidence}"
            )
        if not 0.0 <= self.explore <= 1.0:
            raise ValueError(f"explore must lie in [0, 1], but got {self.explore}")

    def plan(
        self,
        quality_sums: ArrayLike,
        numbers: ArrayLike,
        costs: ArrayLike,
        on_offer: ArrayLike | None = None,
    ) -> ConstrainedPlan:
        """Return the shares of the arms.

        Args:
            quality_sums: sum of quality in [0, 1] by arm, (n_arms,), in the order they came.
            numbers: measured requests by arm, (n_arms,).
            costs: mean cost by arm, (n_arms,), in any one unit.
            on_offer: whether an arm may serve, (n_arms,); ``None`` means all may.

        Raises:
            ValueError: the arrays do not fit together or hold impossible numbers.
        """
        s, n, cost = (np.asarray(x, dtype=np.float64) for x in (quality_sums, numbers, costs))
        if s.ndim != 1 or not s.size or s.shape != n.shape or s.shape != cost.shape:
            raise ValueError("sums, numbers and costs must each have one entry for each arm")
        if not np.all((s >= 0) & (s <= n) & np.isfinite(n)) or not np.all(np.isfinite(cost)):
            raise ValueError("sums must lie between 0 and their numbers, and costs be finite")
        offered = np.ones(s.size, bool) if on_offer is None else np.asarray(on_offer, bool)
        if offered.shape != s.shape or not offered.any():
            raise ValueError("sums must be of arms of which at least one is active")
        j = np.arange(1.0, s.size + 1.0)
        error = (1.0 - self.confidence) / (j * (j + 1.0))  # (eq. 1)
        lows, highs = betting.confidence_interval(s, n - s, error)
        standing: tuple[Standing, ...] = tuple(
            "holds" if low >= self.least else "fails" if high < self.least else "undecided"
            for low, high in zip(lows, highs, strict=True)
        )
        quality = np.where(offered, (s + 0.5) / (n + 1.0), -np.inf)
        holding = [arm for arm in np.flatnonzero(offered) if standing[arm] == "holds"]
        serving = int(quality.argmax())
        if holding:
            serving = int(min(holding, key=lambda arm: (cost[arm], -quality[arm])))
        cheaper = [
            arm
            for arm, stands in enumerate(standing)
            if arm != serving
            and stands == "undecided"
            and offered[arm]
            and (cost[arm] < cost[serving] or standing[serving] != "holds")
        ]
        shares = np.zeros(s.size)
        shares[serving] = 1.0
        if cheaper:
            shares[serving] = 1.0 - self.explore
            shares[cheaper] = self.explore / len(cheaper)
        return ConstrainedPlan(
            shares=tuple(shares.tolist()),
            standing=standing,
            serving=serving,
            lows=tuple(lows.tolist()),
            highs=tuple(highs.tolist()),
        )
