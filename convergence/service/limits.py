"""How much may be asked: a bucket of requests for each token."""

import time
from collections.abc import Callable


class Bucket:
    """Lets so many requests through each second, and as many at once (a token bucket)."""

    __slots__ = ("_left", "_now_s", "_rate", "_seen_s")

    def __init__(self, rate: float, now_s: Callable[[], float] = time.monotonic) -> None:
        """Start full; ``rate`` is in requests a second."""
        self._rate, self._now_s = rate, now_s
        self._left, self._seen_s = max(rate, 1.0), now_s()

    def take(self) -> float:
        """Take one request; return 0, or the seconds until there is one."""
        now = self._now_s()
        most = max(self._rate, 1.0)
        self._left = min(most, self._left + self._rate * (now - self._seen_s))
        self._seen_s = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._rate
