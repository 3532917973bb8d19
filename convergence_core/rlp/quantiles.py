"""Forecasts of a score: three quantiles, and the density that they define.

A model writes the 10, 50 and 90 % quantiles of a score in [0, 1]. The density is normal on each
side of the median (a two-piece normal with half of the mass on each side):

    f(y) = phi((y - q50) / s) / s,    s = (q50 - q10) / z  below the median,  (q90 - q50) / z
    above      (1)

with z = 1.2816, so the three quantiles are exact. A search's posterior is written in the same
form, and both are scored on the continuous score itself.

Notation: y a score, q10, q50, q90 its quantiles, s the scale of a side.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Z: Final = 1.2815515655446004
"""90 % quantile of the standard normal distribution."""
LEAST_SCALE: Final = 1e-3
"""Minimum scale of a side, in units of the score."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Forecast of a score.

    Example:
        >>> Quantiles(0.5, 0.6, 0.8).mean > 0.6
        True
    """

    low: float
    """10 % quantile."""
    median: float
    high: float
    """90 % quantile."""

    @classmethod
    def of(cls, values: Sequence[object]) -> "Quantiles":
        """Return the forecast from three numbers, in any order, each clipped to [0, 1].

        Raises:
            ValueError: there are not three finite numbers.
        """
        numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        # An integer may be finite but too large for a float.
        are_finite = all(abs(v) < math.inf for v in numbers)
        if len(numbers) != 3 or len(values) != 3 or not are_finite:
            raise ValueError("a forecast must be three numbers: the 10, 50 and 90 % quantile")
        low, median, high = sorted(float(min(1.0, max(0.0, number))) for number in numbers)
        return cls(low, median, high)

    def scales(self, least: float = LEAST_SCALE) -> tuple[float, float]:
        """Return the scales below and above the median, each at least ``least``."""
        below, above = (self.median - self.low) / Z, (self.high - self.median) / Z
        return max(below, least), max(above, least)

    def density(self, y: float, least: float = LEAST_SCALE) -> float:
        """Return f(y) (eq. 1).

        Args:
            y: Score.
            least: Minimum scale of a side.
        """
        below, above = self.scales(least)
        s = below if y < self.median else above
        return math.exp(-0.5 * ((y - self.median) / s) ** 2) / (s * math.sqrt(2.0 * math.pi))

    @property
    def mean(self) -> float:
        """E[y]."""
        below, above = self.scales()
        return self.median + (above - below) / math.sqrt(2.0 * math.pi)

    @property
    def variance(self) -> float:
        """Var[y]."""
        below, above = self.scales()
        return (below**2 + above**2) / 2.0 - (self.mean - self.median) ** 2

    def to_json(self) -> list[float]:
        """Return the three numbers."""
        return [self.low, self.median, self.high]
