"""Wall clock of records, in microseconds since the epoch."""

import time
from datetime import UTC, datetime


def wall_clock_us() -> int:
    """Return the wall clock in microseconds since the epoch."""
    return time.time_ns() // 1_000


def end_us(started_us: int) -> int:
    """Return the wall clock, but not before the start, even if the clock was set back."""
    return max(wall_clock_us(), started_us)


def utc(time_us: int) -> datetime:
    """Return a time in UTC."""
    return datetime.fromtimestamp(time_us / 1e6, UTC)


def moment(time_us: int) -> str:
    """Return a time in UTC to the second."""
    return f"{utc(time_us):%Y-%m-%d %H:%M:%S} UTC"
