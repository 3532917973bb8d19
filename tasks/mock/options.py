"""Options of a mock server: faults and delays."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from convergence_core.errors import ConfigurationError
from tasks.mock.prompt_text import uniform

FaultKind = Literal["429", "500", "hang", "cut", "invalid", "answer"]
"""``answer``: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MockOptions:
    """Settings of one server; without any it answers everything, at once.

    Raises:
        ConfigurationError: the shares add up to more than 1.
    """

    seed: int = 0
    """Of the faults: with the same seed the k-th attempt at a request meets the same fault."""
    varies: bool = False
    """Whether a chat above temperature 0 and without a seed is answered anew each time that it is asked, as
    real models do; else the same request gets the same answer."""
    rate_429: float = 0.0
    retry_after_s: float = 1.0
    """Seconds that a 429 asks the client to wait."""
    rate_500: float = 0.0
    rate_hang: float = 0.0
    """Share of attempts answered ``hang_s`` late."""
    hang_s: float = 60.0
    rate_cut: float = 0.0
    """Share of attempts whose answer ends midway, with the connection closed."""
    rate_invalid: float = 0.0
    """Share of attempts answered 200 with a body that is no JSON."""
    latency_ms: float = 0.0
    log: Path | None = None
    """File that gets one JSON line per request, on disk before the answer is sent."""

    def __post_init__(self) -> None:
        total = round(sum(self.rates.values()), 6)
        if total > 1.0 or min(self.rates.values()) < 0.0:
            rule, fix = "must not add up to more than 1", "Lower some: an attempt meets one fault."
            raise ConfigurationError.of("rate_*", rule, fix, value=str(total))

    @property
    def rates(self) -> dict[FaultKind, float]:
        """Fault → share of the attempts that meet it."""
        return {kind: getattr(self, f"rate_{kind}") for kind in get_args(FaultKind)[:-1]}

    def fault_of(self, digest: str, attempt: int) -> FaultKind:
        """Return the fault of the ``attempt``-th attempt at a request, whenever it arrives."""
        u = uniform("fate", self.seed, digest, attempt)
        for kind, rate in self.rates.items():
            if u < rate:
                return kind
            u -= rate
        return "answer"
