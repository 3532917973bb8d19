"""When to ask again: full-jitter exponential back-off that respects ``Retry-After``.

The waiting time of the n-th retry is drawn evenly from [0, min(cap, base * 2^n)] (M. Brooker,
"Exponential Backoff And Jitter", 2015, "full jitter"), on top of what the server asked for.
"""

import email.utils
import random
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before another try."""

    base_s: float = 0.5
    cap_s: float = 30.0
    max_retry_after_s: float = 600.0
    """A server that asks for a longer pause is not asked again in this run."""

    def delay_s(
        self, n_tries: int, retry_after_s: float | None, rng: random.Random
    ) -> float | None:
        """Return the seconds to wait after ``n_tries`` tries, or ``None`` to give up."""
        jitter = rng.uniform(0.0, min(self.cap_s, self.base_s * 2.0 ** min(n_tries, 30)))
        if retry_after_s is None:
            return jitter
        if retry_after_s > self.max_retry_after_s:
            return None
        return retry_after_s + min(jitter, self.base_s)


def parse_retry_after(text: str | None, *, now_s: float | None = None) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for, ``None`` if it says nothing.

    Args:
        text: seconds, or an HTTP date.
        now_s: seconds since the epoch that dates are compared with; ``None``: now.
    """
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(text)
        except ValueError:
            return None
        seconds = date.timestamp() - (time.time() if now_s is None else now_s)
    if seconds != seconds or seconds == float("inf"):  # noqa: PLR0124 - NaN is no number of seconds
        return None
    return max(0.0, seconds)
