"""Wall clock of records, in microseconds since the epoch."""

import time


def wall_clock_us() -> int:
    """Return the wall clock in microseconds since the epoch."""
    return time.time_ns() // 1_000


def end_us(started_us: int) -> int:
    """Return the wall clock, but not before the start, even if the clock was set back."""
    return max(wall_clock_us(), started_us)
