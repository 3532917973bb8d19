"""Ranges of unknown numbers: least, expected and most."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Range of an unknown number; ``None`` for an unknown end."""

    low: float | None = None
    expected: float | None = None
    high: float | None = None

    @classmethod
    def fixed(cls, number: float | None) -> "Range":
        """Return the range of a known number, or ``UNKNOWN`` for ``None``."""
        return cls(low=number, expected=number, high=number)

    def __mul__(self, other: "Range") -> "Range":
        """Return the product, end by end."""
        return self._with(other, _product)

    def __add__(self, other: "Range") -> "Range":
        """Return the sum, end by end."""
        return self._with(other, _sum)

    def at_most(self, limit: float | None) -> "Range":
        """Return the range under a limit, which also bounds unknown ends."""
        if limit is None:
            return self
        low, expected = (None if n is None else min(n, limit) for n in (self.low, self.expected))
        high = limit if self.high is None else min(self.high, limit)
        return Range(low=low, expected=expected, high=high)

    def _with(
        self, other: "Range", fold: Callable[[float | None, float | None], float | None]
    ) -> "Range":
        return Range(
            low=fold(self.low, other.low),
            expected=fold(self.expected, other.expected),
            high=fold(self.high, other.high),
        )


UNKNOWN = Range()


def over(ranges: Sequence[Range]) -> Range:
    """Return least, mean and most of several ranges; an end is unknown if one of them is."""
    return Range(
        low=_known(min, [r.low for r in ranges]),
        expected=_known(statistics.fmean, [r.expected for r in ranges]),
        high=_known(max, [r.high for r in ranges]),
    )


def _known(
    fold: Callable[[Sequence[float]], float], numbers: Sequence[float | None]
) -> float | None:
    known = [number for number in numbers if number is not None]
    return fold(known) if known and len(known) == len(numbers) else None


def _product(a: float | None, b: float | None) -> float | None:
    if a == 0 or b == 0:  # no calls cost nothing at any price
        return 0.0
    return None if a is None or b is None else a * b


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b
