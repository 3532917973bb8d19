"""Budget of a run: worst cases reserved before calls, costs settled after.

A reservation is granted only while the total of settled and reserved amounts fits the limit. A
call costs at most its reservation, so parallel calls never exceed the limit, in whatever order
they start and end. A call that does not fit *yet* waits instead of failing, so that it can use
what other calls leave over.

Money is summed in whole picodollars: the sum does not depend on the order of calls, and rounding
never pushes it over a limit.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self

from convergence_core.ports import WorstCase

if TYPE_CHECKING:
    from convergence_core.config.models import BudgetConfig
    from convergence_core.ports import CallTotals


LimitName = Literal["max_usd", "max_calls", "max_tokens", "max_minutes"]
"""Configuration key under ``budget``."""


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
    """Permission for one call; settle or release it once."""

    number: int
    worst: WorstCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Verdict that the call must wait until calls in flight settle below their worst case."""

    limit: LimitName


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhausted:
    """Verdict that the call cannot fit, even if all calls in flight are free."""

    limit: LimitName
    reason: str
    """Limit, spending, cost of this call and fix, for display."""
    is_unknown: bool = False
    """Whether the reason is an unknown price or length of the call, not the remaining budget."""


# -- display


def dollars(usd: float) -> str:
    """Return an amount for display: two to four decimals, or two digits for small amounts."""
    if usd == 0 or abs(usd) >= 0.001:
        whole, _, cents = f"{usd:,.4f}".partition(".")
        return f"${whole}.{cents.rstrip('0'):0<2}"
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


WARN_AT = (0.5, 0.8)
"""Shares of a limit that trigger a warning."""

_PICO = 1_000_000_000_000
_COUNTED: Final[tuple[LimitName, ...]] = ("max_calls", "max_tokens", "max_usd")
"""Limits on what calls use, in the order of ``_Amounts``."""
_SPENT: Final[dict[LimitName, str]] = {
    "max_calls": "{limit} is spent: {used}, retries included. {go_on}",
    "max_tokens": (
        "{limit} is spent: {used} used or reserved, and the next call may use up to {more}. {go_on}"
    ),
    "max_usd": (
        "{limit} is spent: {used} paid or reserved, and the next call may cost up to {more}. {go_on}"
    ),
    "max_minutes": "{limit} is over: {used} of work. {go_on}",
}
_UNKNOWN: Final[dict[LimitName, str]] = {
    "max_tokens": (
        "{limit} needs a bound for every call, but this call's length is unknown: set "
        "`max_tokens` of the request (a chat), or remove the limit."
    ),
    "max_usd": (
        "price unknown, but {limit} needs the price of every call. Name it under `prices:` "
        "and set `max_tokens` of the request, or write `allow_unknown_prices: true`."
    ),
}
_TOO_DEAR: Final = "{limit} is less than one call may cost: {more}. Raise it, or lower `max_tokens` of the request."
"""Why a call larger than the whole limit is rejected."""


class _Amounts(NamedTuple):
    """Amounts that count against the limits."""

    calls: int = 0
    tokens: int = 0
    pico: int = 0
    """Picodollars."""

    def plus(self, other: "_Amounts", sign: int = 1) -> "_Amounts":
        """Return the sum, or with ``sign`` -1 the difference."""
        return _Amounts(*(a + sign * b for a, b in zip(self, other, strict=True)))

    @classmethod
    def of(cls, spent: Spent) -> "_Amounts":
        """Return the counted amounts of spending."""
        return cls(spent.calls, spent.tokens, round(spent.usd * _PICO))


class Budget:
    """Accounting of one run's limits.

    Args:
        limits: Limits of the run.
        spent: Earlier spending, for example of a resumed run.
        lock: Lock held by each method; with ``threading.Lock()``, threads may share the budget.
    """

    def __init__(
        self,
        limits: "BudgetConfig",
        spent: Spent | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self.limits = limits
        self._lock = nullcontext() if lock is None else lock
        self._next = 0
        self._outstanding: dict[int, _Amounts] = {}
        """Number of a reservation or grant → reserved amounts."""
        self._reserved = self._used = _Amounts()
        self._n_unpriced = 0
        self._set(spent or Spent(), 0.0)
        self.keep_back()
        self._warned = {
            name: [share for share in WARN_AT if _is_crossed(share, used, limit)]
            for name, (used, _, limit) in self._uses().items()
        }

    def start(self, now_s: float) -> None:
        """Start the clock now; earlier time does not count."""
        with self._lock:
            self._started_s = self._now_s = now_s

    def keep_back(self, *, share: float = 0.0, calls: int = 0) -> None:
        """Reserve a part of each limit for later; another call replaces it.

        Args:
            share: Share of money, tokens and time, in [0, 1).
            calls: Number of calls.
        """
        limits, rest = self.limits, 1.0 - share
        self.kept = (share, calls)
        """Arguments of the last ``keep_back``."""
        with self._lock:
            self._open = open_ = limits.model_copy(
                update={
                    "max_usd": limits.max_usd and limits.max_usd * rest,
                    "max_calls": limits.max_calls and max(0, limits.max_calls - calls),
                    "max_tokens": limits.max_tokens and int(limits.max_tokens * rest),
                    "max_minutes": limits.max_minutes and limits.max_minutes * rest,
                }
            )
            """Available limits, without the part that is kept back."""
            pico = None if open_.max_usd is None else round(open_.max_usd * _PICO)
            self._most = (open_.max_calls, open_.max_tokens, pico)
            """The same limits in the order of ``_Amounts``; ``None`` means no limit."""

    @property
    def spent(self) -> Spent:
        """Spending so far, without calls in flight."""
        with self._lock:
            return self._as_spent(self._used)

    def reserve(self, worst: WorstCase, now_s: float = 0.0) -> Reservation | Wait | Exhausted:
        """Request permission for one call.

        Args:
            worst: Maximum cost of the call.
            now_s: Monotonic time, from the clock of ``start``.
        """
        with self._lock:
            self._now_s = max(self._now_s, now_s)
            pico = _pico(worst.usd)
            refusal = self._refuse((1, worst.tokens, pico))
            if refusal is not None:
                return refusal
            held = _Amounts(1, worst.tokens or 0, pico or 0)
            after = self._used.plus(self._reserved).plus(held)
            for name, amount, most in zip(_COUNTED, after, self._most, strict=True):
                if most is not None and amount > most:
                    return Wait(limit=name)  # calls in flight leave no room
            return Reservation(number=self._hold(held), worst=worst)

    def settle(self, reservation: Reservation, usd: float | None, tokens: int | None) -> None:
        """Replace a call's reservation by its actual cost.

        Amounts beyond the reservation count as well, since the provider charged them.

        Args:
            reservation: Reservation of the call, not yet settled or released.
            usd: Actual cost; ``None`` means unknown, so the worst case counts. Without a worst
                case the call costs 0 and counts as unpriced.
            tokens: Tokens used; ``None`` means unknown, so the worst case counts.

        Raises:
            ValueError: The reservation is already settled or released.
        """
        with self._lock:
            if not self._give_back(reservation.number):
                raise ValueError(f"reservation {reservation.number} is not outstanding any more")
            worst = reservation.worst
            cost = _pico(usd)
            if cost is None:
                cost = _pico(worst.usd)
            n_tokens = (worst.tokens or 0) if tokens is None else tokens
            self._n_unpriced += cost is None
            self._used = self._used.plus(_Amounts(1, n_tokens, cost or 0))

    def release(self, reservation: Reservation) -> None:
        """Cancel the reservation of a call that was not made; no effect if settled or released."""
        with self._lock:
            self._give_back(reservation.number)

    def grant(self, n_parts: int, now_s: float = 0.0) -> tuple[int, Spent]:
        """Grant an equal part of each remaining limit to a budget in another process.

        Args:
            n_parts: Number of parts granted at the same time.
            now_s: Monotonic time, from the clock of ``start``.

        Returns:
            Number of the grant, to settle it once, and the initial spending of the other budget,
            which leaves it exactly the grant.
        """
        with self._lock:
            self._now_s = max(self._now_s, now_s)
            taken = self._used.plus(self._reserved)
            parts = [
                part_of(most, used, n_parts) for most, used in zip(self._most, taken, strict=True)
            ]
            start = _Amounts(
                *(
                    used if most is None or part is None else most - part
                    for most, part, used in zip(self._most, parts, self._used, strict=True)
                )
            )
            number = self._hold(_Amounts(*(part or 0 for part in parts)))
            return number, replace(self._as_spent(start), n_unpriced=0)

    def settle_grant(self, number: int, used: Spent) -> None:
        """Count the used part of a grant; the rest becomes available again."""
        with self._lock:
            self._give_back(number)
            self._used = self._used.plus(_Amounts.of(used))
            self._n_unpriced += used.n_unpriced

    def restart(self, spent: Spent, now_s: float) -> None:
        """Restart with this spending; nothing may be reserved or granted.

        Raises:
            ValueError: A reservation or grant is outstanding.
        """
        with self._lock:
            if self._outstanding:
                raise ValueError(f"{len(self._outstanding)} reservations are outstanding")
            self._set(spent, now_s)

    def warnings(self, now_s: float = 0.0) -> list[tuple[float, str]]:
        """Return share and message for each limit that crossed another share; each once.

        Shares crossed before this part of the run are not reported again. If a limit crossed
        several shares, only the largest is reported.
        """
        with self._lock:
            self._now_s = max(self._now_s, now_s)
            warnings = []
            for name, (used, _, limit) in self._uses().items():
                warned = self._warned[name]
                crossed = [s for s in WARN_AT if s not in warned and _is_crossed(s, used, limit)]
                if crossed:
                    warned.extend(crossed)
                    key, amount = written(name, limit), shown(name, used)
                    share = max(crossed)
                    warnings.append((share, f"{100 * share:.0f} % of {key} is spent: {amount}."))
            return warnings

    # -- methods that require the lock

    def _set(self, spent: Spent, now_s: float) -> None:
        self._used = _Amounts.of(spent)
        self._n_unpriced = spent.n_unpriced
        self._seconds_before = spent.seconds
        self._started_s = self._now_s = now_s

    def _as_spent(self, amounts: _Amounts) -> Spent:
        return Spent(
            usd=amounts.pico / _PICO,
            calls=amounts.calls,
            tokens=amounts.tokens,
            n_unpriced=self._n_unpriced,
            seconds=self._seconds(),
        )

    def _hold(self, amounts: _Amounts) -> int:
        """Reserve amounts under a new number."""
        self._next += 1
        self._outstanding[self._next] = amounts
        self._reserved = self._reserved.plus(amounts)
        return self._next

    def _give_back(self, number: int) -> bool:
        held = self._outstanding.pop(number, None)
        if held is None:
            return False
        self._reserved = self._reserved.plus(held, -1)
        return True

    def _seconds(self) -> float:
        return self._seconds_before + self._now_s - self._started_s

    def _uses(self) -> dict[LimitName, tuple[float, float, float]]:
        """Return limit → spending, amount available now, and configured amount."""
        used: dict[LimitName, float] = {
            "max_usd": self._used.pico / _PICO,
            "max_calls": self._used.calls,
            "max_tokens": self._used.tokens,
            "max_minutes": self._seconds() / 60,
        }
        return {
            name: (amount, getattr(self._open, name), limit)
            for name, amount in used.items()
            if (limit := getattr(self.limits, name)) is not None
        }

    def _refuse(self, worst: tuple[int | None, ...]) -> Exhausted | None:
        """Return why a call cannot fit, even if all calls in flight are free."""
        minutes = self._open.max_minutes
        if minutes is not None and self._seconds() >= 60 * minutes:
            return self._exhausted("max_minutes", _SPENT["max_minutes"])
        for name, more, used, most in zip(_COUNTED, worst, self._used, self._most, strict=True):
            if most is None or (more is not None and used + more <= most):
                continue
            if more is not None:
                shown_more = dollars(more / _PICO) if name == "max_usd" else f"{more:,}"
                is_alone = name == "max_usd" and more > most
                reason = _TOO_DEAR if is_alone else _SPENT[name]
                return self._exhausted(name, reason, more=shown_more)
            if name != "max_usd" or not self.limits.allow_unknown_prices:
                return self._exhausted(name, _UNKNOWN[name], is_unknown=True)
            if used >= most:
                return self._exhausted(name, _SPENT[name], more="an unknown amount")
        return None

    def _exhausted(
        self, name: LimitName, reason: str, *, more: str = "", is_unknown: bool = False
    ) -> Exhausted:
        """Return the rejection in words: the limit as written, and its spending."""
        used, left, limit = self._uses()[name]
        key = written(name, limit)
        if left < limit:
            key += f", {shown(name, limit - left)} of it kept for the final test,"
        go_on = f"Raise it: `convergence resume --{name.replace('_', '-')} …`."
        text = reason.format(limit=key, used=shown(name, used), more=more, go_on=go_on)
        return Exhausted(limit=name, reason=text, is_unknown=is_unknown)


def part_of(limit: int | None, used: int, n_parts: int) -> int | None:
    """Return an equal part of a limit's rest, at least 1 if possible; ``None`` without a limit."""
    if limit is None:
        return None
    left = max(0, limit - used)
    return min(left, max(1, left // n_parts))


def _is_crossed(share: float, used: float, limit: float) -> bool:
    return used >= share * limit * (1 - 1e-12)  # 0.8 * 0.1 > 0.08 in floating point


def _pico(usd: float | None) -> int | None:
    """Return picodollars; ``None`` for invalid amounts, including negative ones."""
    if usd is None or not math.isfinite(usd) or usd < 0:
        return None
    return round(usd * _PICO)
