"""When to ask again: what servers say about it, and full-jitter exponential back-off.

The waiting time of the n-th retry is drawn evenly from [0, min(cap, base * 2^n)] (M. Brooker,
"Exponential Backoff And Jitter", 2015, "full jitter"), on top of what the server asked for.

Servers say it in many forms. ``Retry-After`` is seconds or a date (RFC 9110 §10.2.3),
``retry-after-ms`` is OpenAI's and Azure's. What is left of a limit, and when it is whole again,
stands in ``x-ratelimit-remaining-requests`` and ``x-ratelimit-reset-requests`` (OpenAI, Azure,
Groq, Cerebras; also ``-tokens``, and windows such as ``-tokens-minute``), in
``anthropic-ratelimit-requests-remaining`` and ``-reset``, or in ``ratelimit-remaining``. A reset
is a duration (``1s``, ``6m0s``, ``20ms``, ``1h2m``), seconds, seconds since the epoch or a date.
"""

import email.utils
import math
import random
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from convergence_core.records import RateInfo

LONGEST_PAUSE_S = 600.0
"""A server that asks for a longer pause is not asked again in this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before another try."""

    base_s: float = 0.5
    cap_s: float = 30.0
    max_retry_after_s: float = LONGEST_PAUSE_S
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
        text: seconds, or a date.
        now_s: seconds since the epoch that dates are compared with; ``None``: now.
    """
    if not text:
        return None
    seconds = _number(text)
    if seconds is None:
        date_s = _date_s(text)
        if date_s is None:
            return None
        seconds = date_s - (time.time() if now_s is None else now_s)
    return max(0.0, seconds) if math.isfinite(seconds) else None


_EPOCH_S = 1e9
"""Larger numbers are moments, not durations."""
_EPOCH_MS = 1e12
_SHORTEST_MOMENT = len("1000000000")
_UNIT_S = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0
}  # fmt: skip
_PART = r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|m|h|d)"
_DURATION = re.compile(rf"(?:{_PART}\s*)+")


def parse_reset(text: str, *, now_s: float | None = None) -> float | None:
    """Return the seconds until a limit is whole again, ``None`` if the text does not say.

    Args:
        text: a duration, seconds, seconds or milliseconds since the epoch, or a date.
        now_s: seconds since the epoch that moments are compared with; ``None``: now.
    """
    text = text.strip()
    if _DURATION.fullmatch(text):
        return sum(float(number) * _UNIT_S[unit] for number, unit in re.findall(_PART, text))
    number = _number(text)
    if number is not None and number > _EPOCH_S:
        now_s = time.time() if now_s is None else now_s
        number = number / 1000.0 - now_s if number > _EPOCH_MS else number - now_s
        return max(0.0, number) if math.isfinite(number) else None
    return parse_retry_after(text, now_s=now_s)


_NAME = re.compile(
    r"(?:x-)?(?:anthropic-)?ratelimit-"
    r"(?:(?P<field>remaining|reset)(?:-(?P<window>.+))?|(?P<before>.+)-(?P<last>remaining|reset))"
)


@lru_cache(maxsize=256)
def _parts(name: str) -> tuple[str, str] | None:
    """Return what a header counts, e.g. ``tokens-minute``, and what it says of it."""
    matched = _NAME.fullmatch(name)
    if matched is None:
        return None
    return matched["window"] or matched["before"] or "", matched["field"] or matched["last"]


@dataclass(slots=True)
class _Window:
    remaining: int | None = None
    reset_s: float | None = None


@dataclass(slots=True)
class _Windows:
    """Limits by what they count and over which time, e.g. ``tokens`` or ``requests-day``."""

    by_name: dict[str, _Window] = field(default_factory=dict)

    def take(self, name: str, text: str, now_s: float | None) -> None:
        parts = _parts(name)
        if parts is None:
            return
        window = self.by_name.setdefault(parts[0], _Window())
        if parts[1] == "reset":
            window.reset_s = parse_reset(text, now_s=now_s)
        elif (number := _number(text)) is not None and math.isfinite(number):
            window.remaining = max(0, math.floor(number))

    def least(self, *, of_tokens: bool) -> int | None:
        return min(
            (
                window.remaining
                for name, window in self.by_name.items()
                if window.remaining is not None and ("token" in name) == of_tokens
            ),
            default=None,
        )

    def reset_s(self) -> float | None:
        windows = self.by_name.values()
        used_up = [window for window in windows if window.remaining == 0]
        resets = [window.reset_s for window in used_up or windows if window.reset_s is not None]
        return max(resets, default=None)


def rate_info(headers: Mapping[str, str], *, now_s: float | None = None) -> RateInfo | None:
    """Return what an answer's headers say about limits, ``None`` if they say nothing.

    Args:
        headers: by name in lower case.
        now_s: seconds since the epoch that moments are compared with; ``None``: the server's own
            clock as its header ``date`` gives it, else ours.
    """
    if now_s is None and "date" in headers:
        now_s = _date_s(headers["date"])
    windows = _Windows()
    retry_after_s: float | None = None
    for name, text in headers.items():
        pause_s = None
        if name == "retry-after-ms":
            pause_s = parse_retry_after(text, now_s=now_s)
            pause_s = None if pause_s is None else pause_s / 1000.0
        elif name in ("retry-after", "x-ratelimit-retry-after"):
            pause_s = parse_retry_after(text, now_s=now_s)
        else:
            windows.take(name, text, now_s)
        if pause_s is not None:
            retry_after_s = max(pause_s, retry_after_s or 0.0)
    found = RateInfo(
        retry_after_s=retry_after_s,
        remaining_requests=windows.least(of_tokens=False),
        remaining_tokens=windows.least(of_tokens=True),
        reset_s=windows.reset_s(),
    )
    return None if found == _NOTHING else found


_NOTHING = RateInfo()


def rate_of(headers: Iterable[tuple[bytes, bytes]]) -> RateInfo | None:
    """Return what an answer's raw headers say about limits; quick where they say nothing."""
    told: dict[str, str] = {}
    date = b""
    for name, value in headers:
        lower = name.lower()
        if b"ratelimit" in lower or b"retry-after" in lower:
            told[lower.decode("latin-1")] = value.decode("latin-1")
        elif lower == b"date":
            date = value
    if not told:
        return None
    if date and any(":" in text or len(text) >= _SHORTEST_MOMENT for text in told.values()):
        told["date"] = date.decode("latin-1")
    return rate_info(told)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _date_s(text: str) -> float | None:
    """Return the seconds since the epoch of an HTTP or ISO date, ``None`` for other texts."""
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError):
            return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return date.timestamp()
