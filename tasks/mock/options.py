"""Options of a mock server: faults and delays."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from convergence_core.errors import ConfigurationError
from tasks.mock.prompt_text import uniform

FaultKind = Literal["429", "500", "hang", "cut", "invalid", "answer"]
"""Kind of fault; ``answer`` means none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MockOptions:
    """Settings of a mock server; the defaults answer everything immediately.

    Raises:
        ConfigurationError: the shares add up to more than 1.
    """

    seed: int = 0
    """Seed of the faults: with the same seed, the k-th attempt at a request has the same fault."""
    varies: bool = False
    """Whether repeated chats above temperature 0 without a seed get different answers, as from
    real models; otherwise equal requests get equal answers.
    """
    rate_429: float = 0.0
    retry_after_s: float = 1.0
    """Seconds of ``retry-after`` in a 429."""
    rate_500: float = 0.0
    rate_hang: float = 0.0
    """Share of attempts answered ``hang_s`` late."""
    hang_s: float = 60.0
    rate_cut: float = 0.0
    """Share of attempts whose answer is cut midway by closing the connection."""
    rate_invalid: float = 0.0
    """Share of attempts answered 200 with a body that is not JSON."""
    latency_ms: float = 0.0
    log: Path | None = None
    """File for one JSON line per request, written to disk before the answer is sent."""

    def __post_init__(self) -> None:
        total = round(sum(self.rates.values()), 6)
        if total > 1.0 or min(self.rates.values()) < 0.0:
            rule, fix = "must not add up to more than 1", "Lower some: an attempt meets one fault."
            raise ConfigurationError.of("rate_*", rule, fix, value=str(total))

    @property
    def rates(self) -> dict[FaultKind, float]:
        """Fault → share of the attempts with it."""
        return {kind: getattr(self, f"rate_{kind}") for kind in get_args(FaultKind)[:-1]}

    def fault_of(self, digest: str, attempt: int) -> FaultKind:
        """Return the fault of the ``attempt``-th attempt at a request, whenever it arrives."""
        u = uniform("fate", self.seed, digest, attempt)
        for kind, rate in self.rates.items():
            if u < rate:
                return kind
            u -= rate
        return "answer"
