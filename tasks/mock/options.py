"""Options of a mock server: faults, limits, the log."""

import email.utils
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from convergence_core.errors import ConfigurationError, Problem
from tasks.mock.prompt_text import uniform

FaultKind = Literal["429", "500", "hang", "cut", "invalid", "answer"]
"""``answer``: none."""

RetryAfterForm = Literal["seconds", "ms", "date"]
RETRY_AFTER_FORMS: tuple[RetryAfterForm, ...] = get_args(RetryAfterForm)


@dataclass(frozen=True, slots=True, kw_only=True)
class MockOptions:
    """Settings of one server; without any it answers everything, at once.

    Raises:
        ConfigurationError: a setting is out of range.
    """

    seed: int = 0
    """Of the faults: with the same seed the k-th attempt at a request meets the same fault."""
    varies: bool = False
    """Whether a chat above temperature 0 and without a seed is answered anew each time that it is asked, as
    real models do; else the same request gets the same answer."""
    rate_429: float = 0.0
    """Share of attempts answered 429."""
    retry_after_s: float = 1.0
    """Seconds that a 429 asks the client to wait."""
    retry_after_form: RetryAfterForm = "seconds"
    """``Retry-After`` in seconds or as a date (rounded up to whole seconds), or
    ``retry-after-ms``."""
    rate_500: float = 0.0
    """Share of attempts answered 500."""
    rate_hang: float = 0.0
    """Share of attempts answered ``hang_s`` late."""
    hang_s: float = 60.0
    rate_cut: float = 0.0
    """Share of attempts whose answer ends midway, with the connection closed."""
    rate_invalid: float = 0.0
    """Share of attempts answered 200 with a body that is no JSON."""
    latency_ms: float = 0.0
    """Time before each answer."""
    limit_rpm: float | None = None
    """Requests per minute above which 429 is answered; ``None`` means no limit. One second's worth
    may come at once."""
    limit_concurrency: int | None = None
    """Requests in flight above which 429 is answered; ``None`` means no limit."""
    key_env: str | None = None
    """Environment variable of the key that requests must carry; ``None`` if none is asked for."""
    log: Path | None = None
    """File that gets one JSON line per request, on disk before the answer is sent."""

    def __post_init__(self) -> None:
        problems: list[Problem] = []

        def check(name: str, value: object, rule: str, fix: str, *, is_met: bool) -> None:
            if not is_met:
                problems.append(Problem(key=name, rule=rule, value=str(value), fix=fix))

        for kind, rate in self.rates.items():
            rule, fix = "must lie between 0 and 1", "Give a share such as 0.2."
            check(f"rate_{kind}", rate, rule, fix, is_met=0.0 <= rate <= 1.0)
        total = round(sum(self.rates.values()), 6)
        if not problems:
            rule, fix = "must not add up to more than 1", "Lower some: an attempt meets one fault."
            check("rate_*", total, rule, fix, is_met=total <= 1.0)
        times = {
            "retry_after": self.retry_after_s,
            "hang_seconds": self.hang_s,
            "latency_ms": self.latency_ms,
        }
        for name, value in times.items():
            rule, fix = "must be 0 or more, and finite", "Give a time such as 0.5."
            check(name, value, rule, fix, is_met=0.0 <= value < float("inf"))
        for name in ("limit_rpm", "limit_concurrency"):
            limit = getattr(self, name)
            rule, fix = "must be more than 0", "Leave it out for no limit."
            check(name, limit, rule, fix, is_met=limit is None or 0 < limit < float("inf"))
        form, rule = self.retry_after_form, "must be known"
        fix = f"Choose among {', '.join(RETRY_AFTER_FORMS)}."
        check("retry_after_form", form, rule, fix, is_met=form in RETRY_AFTER_FORMS)
        if problems:
            raise ConfigurationError(problems)

    @property
    def rates(self) -> dict[FaultKind, float]:
        """Fault → share of the attempts that meet it."""
        return {
            "429": self.rate_429,
            "500": self.rate_500,
            "hang": self.rate_hang,
            "cut": self.rate_cut,
            "invalid": self.rate_invalid,
        }

    def fault_of(self, digest: str, attempt: int) -> FaultKind:
        """Return the fault of the ``attempt``-th attempt at a request, whenever it arrives."""
        u = uniform("fate", self.seed, digest, attempt)
        for kind, rate in self.rates.items():
            if u < rate:
                return kind
            u -= rate
        return "answer"

    def retry_after(self, seconds: float, now_s: float) -> tuple[dict[str, str], float]:
        """Return the headers that ask for a pause, and the seconds that they ask for.

        Args:
            seconds: the pause.
            now_s: seconds since the epoch, for dates.
        """
        match self.retry_after_form:
            case "seconds":
                return {"retry-after": f"{seconds:.6g}"}, float(f"{seconds:.6g}")
            case "ms":
                milliseconds = math.ceil(seconds * 1000.0)
                return {"retry-after-ms": str(milliseconds)}, milliseconds / 1000.0
            case "date":
                until = math.ceil(now_s + seconds)
                return {"retry-after": email.utils.formatdate(until, usegmt=True)}, until - now_s
