"""Terms of a budget: limits, spending and permission to make a call."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from convergence_core.ports import WorstCase

if TYPE_CHECKING:
    from convergence_core.ports import CallTotals


LimitName = Literal["max_usd", "max_calls", "max_tokens", "max_minutes"]
"""Key under ``budget``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Certain and possible spending."""

    usd: float = 0.0
    """US dollars paid, plus the worst case of possibly billed and unpriced calls."""
    calls: int = 0
    tokens: int = 0
    n_unpriced: int = 0
    """Calls of unknown price; ``usd`` includes their worst case if known."""
    seconds: float = 0.0

    @classmethod
    def of(cls, totals: "CallTotals") -> Self:
        """Return a run's spending in the journal, where its budget continues after a resume."""
        return cls(
            usd=(totals.cost_usd or 0.0) + totals.maybe_usd + totals.unpriced_usd,
            calls=totals.n_attempts,
            tokens=totals.tokens + totals.maybe_tokens + totals.unpriced_tokens,
            n_unpriced=totals.n_unpriced,
            seconds=totals.active_s,
        )

    def __add__(self, other: "Spent") -> "Spent":
        """Return the sum of both."""
        return Spent(
            usd=self.usd + other.usd,
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            n_unpriced=self.n_unpriced + other.n_unpriced,
            seconds=self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Permission to make one call; settle or release it once."""

    number: int
    worst: WorstCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Part of the remaining budget for another process; settle it once."""

    number: int
    start: Spent
    """Spending that the other budget starts with, so that the grant is all that remains there."""
    is_whole: bool
    """Whether no other process has a grant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The call must wait until calls in flight cost less than their worst case."""

    limit: LimitName


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhausted:
    """The call cannot fit, even if all calls in flight are free."""

    limit: LimitName
    reason: str
    """Limit, spending, cost of this call and fix, for display."""
    is_unknown: bool = False
    """Whether the unknown price or length of the call is the reason, whatever remains."""


# -- words


def dollars(usd: float) -> str:
    """Return an amount for display: four decimals, or two digits of small amounts."""
    if usd == 0 or abs(usd) >= 0.001:
        return f"${usd:,.4f}"
    decimals = 4
    while decimals < 12 and abs(usd) < 10.0 ** (1 - decimals):
        decimals += 1
    return f"${usd:.{decimals}f}"


def written(name: LimitName, limit: float) -> str:
    """Return a limit as written in the configuration."""
    return f"budget.{name}={limit:.12g}"


def shown(name: LimitName, used: float) -> str:
    """Return the spending against a limit, with its unit."""
    if name == "max_usd":
        return dollars(used)
    if name == "max_minutes":
        return f"{used:.1f} minutes"
    return f"{used:,.0f} {name.removeprefix('max_')}"
