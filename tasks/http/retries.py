"""Pauses before retries: servers' requested pauses, and exponential back-off.

The waiting time of the n-th retry is uniform on [0, min(cap, base * 2^n)] (M. Brooker,
"Exponential Backoff And Jitter", 2015, "full jitter"), in addition to the server's requested
pause.

Servers use many headers. ``Retry-After`` is seconds or a date (RFC 9110 §10.2.3),
``retry-after-ms`` is OpenAI's and Azure's. The rest of a limit and its reset are in
``x-ratelimit-remaining-requests`` and ``x-ratelimit-reset-requests`` (OpenAI, Azure, Groq,
Cerebras; also ``-tokens``, and windows such as ``-tokens-minute``), in
``anthropic-ratelimit-requests-remaining`` and ``-reset``, or in ``ratelimit-remaining``. A reset
is a duration (``1s``, ``6m0s``, ``20ms``, ``1h2m``), seconds, seconds since the epoch or a date.
"""

import email.utils
import math
import random
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from convergence_core.records import RateInfo

LONGEST_PAUSE_S = 600.0
"""Maximum requested pause, seconds; a server that requests more gets no retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Policy of the pauses before retries."""

    base_s: float = 0.5
    cap_s: float = 30.0

    def delay_s(
        self, n_tries: int, retry_after_s: float | None, rng: random.Random
    ) -> float | None:
        """Return the seconds to wait after ``n_tries`` tries, or ``None`` to give up."""
        jitter = rng.uniform(0.0, min(self.cap_s, self.base_s * 2.0 ** min(n_tries, 30)))
        if retry_after_s is None:
            return jitter
        if retry_after_s > LONGEST_PAUSE_S:
            return None
        return retry_after_s + min(jitter, self.base_s)


def parse_retry_after(text: str | None, *, now_s: float | None = None) -> float | None:
    """Return the seconds of a ``Retry-After`` header; ``None`` if it holds none.

    Args:
        text: Seconds or a date.
        now_s: Current time in seconds since the epoch; ``None`` reads the clock.
    """
    seconds = _number(text or "")
    if seconds is None:
        date_s = _date_s(text or "")
        if date_s is None:
            return None
        seconds = date_s - (time.time() if now_s is None else now_s)
    return max(0.0, seconds) if math.isfinite(seconds) else None


_EPOCH_S = 1e9
"""Threshold above which numbers are times, not durations."""
_EPOCH_MS = 1e12
_SHORTEST_MOMENT = len("1000000000")
_UNIT_S = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0
}  # fmt: skip
_PART = r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|m|h|d)"
_DURATION = re.compile(rf"(?:{_PART}\s*)+")


def parse_reset(text: str, *, now_s: float | None = None) -> float | None:
    """Return the seconds until a limit resets; ``None`` if the text holds none.

    Args:
        text: Duration, seconds, seconds or milliseconds since the epoch, or a date.
        now_s: Current time in seconds since the epoch; ``None`` reads the clock.
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
def _parts(name: str) -> tuple[str, str]:
    """Return a header's window, e.g.

    ``tokens-minute``, and its field; both empty for other headers.
    """
    matched = _NAME.fullmatch(name)
    if matched is None:
        return "", ""
    return matched["window"] or matched["before"] or "", matched["field"] or matched["last"]


def rate_info(headers: Mapping[str, str], *, now_s: float | None = None) -> RateInfo | None:
    """Return the limits in an answer's headers; ``None`` if there are none.

    Args:
        headers: Headers by name in lower case.
        now_s: Current time in seconds since the epoch; ``None`` means the server's ``date``
            header, else our clock.
    """
    if now_s is None and "date" in headers:
        now_s = _date_s(headers["date"])
    pauses_s: list[float | None] = []
    remaining: dict[str, int] = {}
    resets_s: dict[str, float | None] = {}
    for name, text in headers.items():
        window, field = _parts(name)
        if name in ("retry-after", "x-ratelimit-retry-after"):
            pauses_s.append(parse_retry_after(text, now_s=now_s))
        elif name == "retry-after-ms":
            pause_ms = parse_retry_after(text, now_s=now_s)
            pauses_s.append(None if pause_ms is None else pause_ms / 1000.0)
        elif field == "reset":
            resets_s[window] = parse_reset(text, now_s=now_s)
        elif field and (number := _number(text)) is not None and math.isfinite(number):
            remaining[window] = max(0, math.floor(number))
    used_up = {window for window, n in remaining.items() if n == 0} or resets_s.keys()
    info = RateInfo(
        retry_after_s=max((s for s in pauses_s if s is not None), default=None),
        remaining_requests=min(
            (n for w, n in remaining.items() if "token" not in w), default=None
        ),
        remaining_tokens=min((n for w, n in remaining.items() if "token" in w), default=None),
        reset_s=max(
            (s for w, s in resets_s.items() if w in used_up and s is not None), default=None
        ),
    )
    return None if info == RateInfo() else info


def rate_of(headers: Iterable[tuple[bytes, bytes]]) -> RateInfo | None:
    """Return the limits in an answer's raw headers; fast if there are none."""
    values: dict[str, str] = {}
    date = b""
    for name, value in headers:
        lower = name.lower()
        if b"ratelimit" in lower or b"retry-after" in lower:
            values[lower.decode("latin-1")] = value.decode("latin-1")
        elif lower == b"date":
            date = value
    if not values:
        return None
    if date and any(":" in text or len(text) >= _SHORTEST_MOMENT for text in values.values()):
        values["date"] = date.decode("latin-1")
    return rate_info(values)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _date_s(text: str) -> float | None:
    """Return the seconds since the epoch of an HTTP or ISO date; ``None`` for other texts."""
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
