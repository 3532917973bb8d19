"""Wall clock of records, in microseconds since the epoch."""

import time


def wall_clock_us() -> int:
    """Return the wall clock in microseconds since the epoch."""
    return time.time_ns() // 1_000
