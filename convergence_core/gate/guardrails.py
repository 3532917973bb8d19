"""Guardrails: numbers that a promotion must not worsen.

Unbounded numbers are clipped at Tukey's outer fences (J. Tukey, "Exploratory data analysis", 1977)
of earlier values z of the control, higher is worse, with quartiles q1 and q3, and scaled to [0,
1]:

    low = q1 - 3 (q3 - q1),    high = q3 + 3 (q3 - q1) + 2 margin                                  (1)
    x = (high - min(max(z, low), high)) / (high - low)                                             (2)

Verdicts compare means of clipped values, so clipping large gains or losses changes their
difference.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

REWARD: Final = "reward"
"""Name of the reward as a guardrail."""
MIN_VALUES: Final = 20
"""Minimum values of the control for fences."""
MOST_MARGINS: Final = 1_000
"""Maximum distance of a fence from the most common value, in margins, and at least 1. One value
there moves the mean of 1,000 by the margin. Beyond, the margin is too small a share of the range
to test."""
_LARGEST: Final = 1e100


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail:
    """Guardrail on a number reported with the reward."""

    name: str
    """``cost`` or a key of ``signals``."""
    margin: float
    """Maximum rise of the mean; if negative, maximum fall."""
    low: float = 0.0
    """Fences of the number, or of its negative if the margin is negative; equal if unknown."""
    high: float = 0.0
    centre: float = 0.5
    """Expected value, scaled."""
    since: int = 0
    """Policy version after which the fences apply."""

    @property
    def is_fenced(self) -> bool:
        """Whether the fences are set."""
        return self.high > self.low

    @property
    def tolerance(self) -> float:
        """Scaled margin, at most 0.5."""
        return abs(self.margin) / (self.high - self.low)

    def fenced(self, control: Sequence[float], since: int) -> "Guardrail":
        """Return the guardrail with fences from the control's values, if missing and possible."""
        if len(control) < MIN_VALUES or self.is_fenced:
            return self
        z = sorted(self._worse(value) for value in control)
        first, _, third = statistics.quantiles(z, n=4, method="inclusive")
        spread = 3.0 * (third - first)
        low, high = first - spread, third + spread  # (eq. 1)
        if not spread:  # mostly one value, such as 0 errors: use the range without the worst 1 %
            least = max(1.0, 1e-9 * abs(first))  # an error is 0 or 1
            most = max(MOST_MARGINS * abs(self.margin), least)
            low = first - min(4.0 * (first - z[0]), most)
            worst = max(z[-1 - max(1, len(z) // 100)], z[0] + (abs(z[0]) or 1.0))
            high = min(worst, first + most)
        rail = replace(self, low=low, high=high + 2.0 * abs(self.margin), since=since)
        return replace(rail, centre=statistics.fmean(map(rail.scaled, control)))

    def scaled(self, value: float) -> float:
        """Return a value scaled to [0, 1], higher is better."""
        z = min(max(self._worse(value), self.low), self.high)
        return (self.high - z) / (self.high - self.low)  # (eq. 2)

    def _worse(self, value: float) -> float:
        z = min(max(value, -_LARGEST), _LARGEST)
        return z if self.margin > 0.0 else -z
