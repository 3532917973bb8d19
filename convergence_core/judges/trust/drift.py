"""Drift of a judge's marks from grounded ones: a self-starting CUSUM.

The difference of a round is the judge's mean less the grounded mean. It is held against all rounds
before it (D. M. Hawkins, "Self-starting CUSUM charts for location and scale", 1987, section 2):

    T_n = sqrt((n - 1) / n) (x_n - m_{n-1}) / s_{n-1},    U_n = Phi^-1(F_{n-2}(T_n))
    S+ = max(0, S+ + U_n - k),    S- = max(0, S- - U_n - k)

F is Student's t with n - 2 degrees of freedom. While normal differences keep their mean and deviation,
whatever these are, the U_n are independent and standard normal: the uncertainty of a usual level known
from few rounds is paid for, and the rate of false alarms is that of a chart with known parameters.

An alarm is a sum above 8.5. Without drift there is one in 480 rounds or more, and in thirty rounds with
probability .03. A shift by one deviation is caught within twenty rounds with probability .54 after 16
quiet ones, .82 after 40, .90 after 80, .95 where the usual level is known; by two deviations .75 after eight. After
eight rounds no test could do much better for one deviation: the t test of eight against all twenty has a
power of .67.

Departures: |U_n| is at most 3, so that no single round raises an alarm and no tail but the normal one
matters, and while an alarm lasts the usual level stays what it was, so that a drift is never learned as
usual.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

N_FIRST: Final = 8
"""Rounds that only say what is usual."""
SLACK: Final = 0.25
"""k: half of the least shift that is worth finding, in deviations."""
LIMIT: Final = 8.5
GREATEST: Final = 3.0
"""Of one round's normal score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The two sums, and what is usual."""

    n: int = 0
    """Rounds that say what is usual."""
    mean: float = 0.0
    """Of their differences."""
    squares: float = 0.0
    """Sum of their squared deviations from the mean."""
    up: float = 0.0
    down: float = 0.0

    @property
    def is_alarming(self) -> bool:
        """Whether a sum is above the limit."""
        return max(self.up, self.down) > LIMIT

    def after(self, judge_mean: float, grounded_mean: float) -> "Drift":
        """Return the state after a round."""
        difference = judge_mean - grounded_mean
        if self.n < N_FIRST:
            return self._learned(difference)
        score = self.score(difference)
        moved = replace(
            self, up=max(0.0, self.up + score - SLACK), down=max(0.0, self.down - score - SLACK)
        )
        return moved if moved.is_alarming else moved._learned(difference)

    def score(self, difference: float) -> float:
        """Return U of one more round, in [-3, 3]."""
        from scipy.special import ndtri, stdtr  # noqa: PLC0415 - reports need not wait for it

        # Rounds that are all alike would make any change infinite.
        deviation = max(1e-9, float(np.sqrt(self.squares / (self.n - 1))))
        t = np.sqrt(self.n / (self.n + 1)) * (difference - self.mean) / deviation
        return float(np.clip(ndtri(stdtr(self.n - 1, t)), -GREATEST, GREATEST))

    def _learned(self, difference: float) -> "Drift":
        """Return the state with one more usual round (Welford 1962)."""
        n, step = self.n + 1, difference - self.mean
        mean = self.mean + step / n
        return replace(self, n=n, mean=mean, squares=self.squares + step * (difference - mean))
