"""Terms of a budget: limits, spending, leave to make a call."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from convergence_core.ports import WorstCase

if TYPE_CHECKING:
    from convergence_core.config.models import BudgetConfig
    from convergence_core.ports import CallTotals


LimitName = Literal["max_usd", "max_calls", "max_tokens", "max_minutes"]
"""Key under ``budget``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run may spend, over all roles; ``None``: no limit."""

    max_usd: float | None = None
    max_calls: int | None = None
    """Retries included."""
    max_tokens: int | None = None
    """Prompts and answers."""
    max_seconds: float | None = None
    """Of work; the time between a stop and its resume does not count."""
    allow_unknown_prices: bool = False
    """Whether calls of unknown price may be made under ``max_usd``; they count as nothing."""

    @property
    def max_minutes(self) -> float | None:
        """``max_seconds`` in the unit of the configuration."""
        return None if self.max_seconds is None else self.max_seconds / 60

    @classmethod
    def of(cls, config: "BudgetConfig") -> Self:
        """Return the limits that a configuration sets."""
        minutes = config.max_minutes
        return cls(
            max_usd=config.max_usd,
            max_calls=config.max_calls,
            max_tokens=config.max_tokens,
            max_seconds=None if minutes is None else 60 * minutes,
            allow_unknown_prices=config.allow_unknown_prices,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What was spent, or may have been."""

    usd: float = 0.0
    """Paid, and the worst case of what was maybe paid or had no known price in the end."""
    calls: int = 0
    tokens: int = 0
    n_unpriced: int = 0
    """Calls whose price is unknown; ``usd`` has their worst case, where that was known."""
    seconds: float = 0.0

    @classmethod
    def of(cls, totals: "CallTotals") -> Self:
        """Return what the journal knows of a run: where its budget goes on after a resume."""
        return cls(
            usd=(totals.cost_usd or 0.0) + totals.maybe_usd + totals.unpriced_usd,
            calls=totals.n_attempts,
            tokens=totals.tokens + totals.maybe_tokens + totals.unpriced_tokens,
            n_unpriced=totals.n_unpriced,
            seconds=totals.active_s,
        )

    def __add__(self, other: "Spent") -> "Spent":
        """Return what was spent of both."""
        return Spent(
            usd=self.usd + other.usd,
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            n_unpriced=self.n_unpriced + other.n_unpriced,
            seconds=self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Leave to make one call; to be settled or released once."""

    number: int
    worst: WorstCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A part of what is left, for a budget of another process; to be settled once."""

    number: int
    start: Spent
    """What that budget counts as spent when it begins, so that the grant is what is left of it."""
    is_whole: bool
    """Whether nothing is granted to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Not now: it fits as soon as calls under way turn out cheaper than they may be."""

    limit: LimitName


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhausted:
    """Never: it does not fit even when all calls under way cost nothing."""

    limit: LimitName
    reason: str
    """Limit, what is spent, what this call may cost, and what to do; for people."""
    is_unknown: bool = False
    """Whether the call is refused for its unknown price or length, whatever is left."""


# -- words


def dollars(usd: float) -> str:
    """Return an amount of money for people: four decimals, or two digits of small amounts."""
    if usd == 0 or abs(usd) >= 0.001:
        return f"${usd:,.4f}"
    decimals = 4
    while decimals < 12 and abs(usd) < 10.0 ** (1 - decimals):
        decimals += 1
    return f"${usd:.{decimals}f}"


def written(name: LimitName, limit: float) -> str:
    """Return a limit as it is written in the configuration."""
    return f"budget.{name}={limit:.12g}"


def shown(name: LimitName, used: float) -> str:
    """Return what is spent of a limit, with its unit."""
    if name == "max_usd":
        return dollars(used)
    if name == "max_minutes":
        return f"{used:.1f} minutes"
    return f"{used:,.0f} {name.removeprefix('max_')}"
