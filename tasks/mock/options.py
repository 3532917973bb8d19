"""How a mock server behaves: faults, limits, strictness, the log."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from convergence_core.errors import ConfigurationError, Problem
from tasks.mock.fault_modes import FAULT_MODES, FaultMode

RetryAfterForm = Literal["seconds", "ms", "date"]
RETRY_AFTER_FORMS: tuple[RetryAfterForm, ...] = get_args(RetryAfterForm)


@dataclass(frozen=True, slots=True, kw_only=True)
class MockOptions:
    """Settings of one server; without any it answers everything, at once.

    Raises:
        ConfigurationError: a setting is out of range.
    """

    seed: int = 0
    """Of the faults: with the same seed the k-th attempt at a request meets the same fate."""
    strict: bool = False
    """Whether chats with words outside the tiny model's vocabulary are answered 400."""
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
    """Requests per minute above which 429 is answered; ``None``: no limit. One second's worth may
    come at once."""
    limit_concurrency: int | None = None
    """Requests in flight above which 429 is answered; ``None``: no limit."""
    fault_modes: tuple[FaultMode, ...] = ()
    """Ways in which probabilities are wrong; see ``tasks.mock.fault_modes``."""
    key_env: str | None = None
    """Environment variable of the key that requests must carry; ``None``: none is asked for."""
    log: Path | None = None
    """File that gets one JSON line per request, on disk before the answer is sent."""

    def __post_init__(self) -> None:
        rates = {
            "rate_429": self.rate_429,
            "rate_500": self.rate_500,
            "rate_hang": self.rate_hang,
            "rate_cut": self.rate_cut,
            "rate_invalid": self.rate_invalid,
        }
        problems = [
            _problem(name, "must lie between 0 and 1", rate, "Give a share such as 0.2.")
            for name, rate in rates.items()
            if not 0.0 <= rate <= 1.0
        ]
        if not problems and sum(rates.values()) > 1.0 + 1e-9:
            fix = "Lower some: an attempt meets one fate."
            total = round(sum(rates.values()), 6)
            problems.append(_problem("rate_*", "must not add up to more than 1", total, fix))
        times = {
            "retry_after": self.retry_after_s,
            "hang_seconds": self.hang_s,
            "latency_ms": self.latency_ms,
        }
        problems += [
            _problem(name, "must be 0 or more, and finite", value, "Give a time such as 0.5.")
            for name, value in times.items()
            if not 0.0 <= value < float("inf")
        ]
        limits = {"limit_rpm": self.limit_rpm, "limit_concurrency": self.limit_concurrency}
        problems += [
            _problem(name, "must be more than 0", limit, "Leave it out for no limit.")
            for name, limit in limits.items()
            if limit is not None and not 0 < limit < float("inf")
        ]
        if self.retry_after_form not in RETRY_AFTER_FORMS:
            fix = f"Choose among {', '.join(RETRY_AFTER_FORMS)}."
            problems.append(
                _problem("retry_after_form", "must be known", self.retry_after_form, fix)
            )
        problems += [
            _problem(
                "fault_mode", "must be known", mode, f"Choose among {', '.join(FAULT_MODES)}."
            )
            for mode in self.fault_modes
            if mode not in FAULT_MODES
        ]
        if problems:
            raise ConfigurationError(problems)


def _problem(name: str, rule: str, value: object, fix: str) -> Problem:
    return Problem(key=name, rule=rule, value=str(value), fix=fix)
