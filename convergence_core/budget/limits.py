"""Budget of a run: worst cases reserved before calls, costs settled after.

A reservation is granted only while everything settled and everything reserved fits the limit
together. A call costs at most what it reserved, so no order in which parallel calls begin and end
takes the sum beyond the limit; and a call that would not fit *yet* waits instead of being
refused, so that what other calls leave over is still used.

Money is summed in whole picodollars: the sum does not depend on the order of the calls, and does
not creep over a limit by rounding.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from convergence_core.ports import WorstCase

if TYPE_CHECKING:
    from convergence_core.config.models import BudgetConfig
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
    """Return an amount for display: two to four decimals, or two digits of small amounts."""
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
"""Shares of a limit that are reported when they are crossed."""

_PICO = 1_000_000_000_000


class Budget:
    """The arithmetic of one run's limits.

    Args:
        limits: what may be spent.
        spent: what was spent before, e.g. by the run that is resumed.
        lock: held by each method; with ``threading.Lock()`` many threads may share the budget.
    """

    def __init__(
        self,
        limits: "BudgetConfig",
        spent: Spent | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        before = spent or Spent()
        self.limits = limits
        self.kept = (0.0, 0)
        """What is kept back for later: the arguments of ``keep_back``."""
        self._lock = nullcontext() if lock is None else lock
        self._pico = round(before.usd * _PICO)
        self._calls = before.calls
        self._tokens = before.tokens
        self._n_unpriced = before.n_unpriced
        self._seconds_before = before.seconds
        self._started_s = self._now_s = 0.0
        self._next = 0
        self._outstanding: dict[int, tuple[int, int, int]] = {}
        """Number of a reservation or grant → picodollars, tokens and calls that it holds."""
        self._reserved_calls = 0
        self._reserved_pico = 0
        self._reserved_tokens = 0
        self._max_pico = None if limits.max_usd is None else round(limits.max_usd * _PICO)
        self._open = limits
        """What may be spent now: the limits, less what is kept back."""
        self._warned = {
            name: [share for share in WARN_AT if _is_crossed(share, used, limit)]
            for name, (used, _, limit) in self._uses().items()
        }

    def start(self, now_s: float) -> None:
        """Begin to count time only now: what came before was no work of the run."""
        with self._lock:
            self._started_s = self._now_s = now_s

    def keep_back(self, *, share: float = 0.0, calls: int = 0) -> None:
        """Keep a part of each limit back for later; called again, it replaces what was kept.

        Args:
            share: of money, tokens and time, in [0, 1).
            calls: number of calls.
        """
        if not 0.0 <= share < 1.0:
            raise ValueError(f"share must lie in [0, 1), but got {share}")
        limits = self.limits
        rest = 1.0 - share
        self.kept = (share, calls)
        with self._lock:
            self._open = limits.model_copy(
                update={
                    "max_usd": limits.max_usd and limits.max_usd * rest,
                    "max_calls": limits.max_calls and max(0, limits.max_calls - calls),
                    "max_tokens": limits.max_tokens and int(limits.max_tokens * rest),
                    "max_minutes": limits.max_minutes and limits.max_minutes * rest,
                }
            )
            usd = self._open.max_usd
            self._max_pico = None if usd is None else round(usd * _PICO)

    @property
    def spent(self) -> Spent:
        """What was spent so far; calls in flight are not in it."""
        with self._lock:
            return Spent(
                usd=self._pico / _PICO,
                calls=self._calls,
                tokens=self._tokens,
                n_unpriced=self._n_unpriced,
                seconds=self._seconds(),
            )

    @property
    def reserved(self) -> Spent:
        """The worst case of the calls in flight."""
        with self._lock:
            return Spent(
                usd=self._reserved_pico / _PICO,
                calls=self._reserved_calls,
                tokens=self._reserved_tokens,
            )

    def reserve(self, worst: WorstCase, now_s: float = 0.0) -> Reservation | Wait | Exhausted:
        """Ask for leave to make one call.

        Args:
            worst: the most that it can cost.
            now_s: a monotonic clock, the one of ``start``.
        """
        with self._lock:
            self._now_s = max(self._now_s, now_s)
            pico = _pico(worst.usd)
            refusal = (
                self._refuse_time()
                or self._refuse_call()
                or self._refuse_tokens(worst.tokens)
                or self._refuse_money(pico)
            )
            if refusal is not None:
                return refusal
            waits_for = self._waits_for(pico or 0, worst.tokens or 0)
            if waits_for is not None:
                return Wait(limit=waits_for)
            self._next += 1
            self._hold(self._next, pico or 0, worst.tokens or 0, 1)
            return Reservation(number=self._next, worst=worst)

    def settle(self, reservation: Reservation, usd: float | None, tokens: int | None) -> None:
        """Count what a call cost instead of what it might have cost.

        Also what exceeds the reservation is counted: the provider charged it.

        Args:
            reservation: of the call; not yet settled or released.
            usd: what it cost; ``None``: unknown, then its worst case counts, and a call without
                one counts as nothing and as unpriced.
            tokens: what it used; ``None``: unknown, then its worst case counts.

        Raises:
            ValueError: it was settled or released before.
        """
        with self._lock:
            if not self._give_back(reservation.number):
                raise ValueError(f"reservation {reservation.number} is not outstanding any more")
            worst = reservation.worst
            cost = _pico(usd)
            if cost is None:
                cost = _pico(worst.usd)
            self._calls += 1
            self._tokens += (worst.tokens or 0) if tokens is None else tokens
            if cost is None:
                self._n_unpriced += 1
            else:
                self._pico += cost

    def release(self, reservation: Reservation) -> None:
        """Forget a call that was not made; harmless once it is settled or released."""
        with self._lock:
            self._give_back(reservation.number)

    def grant(self, n_parts: int, now_s: float = 0.0) -> Grant:
        """Give an equal part of what is left of each limit to a budget of another process.

        Args:
            n_parts: how many such parts are wanted at the same time.
            now_s: a monotonic clock, the one of ``start``.
        """
        with self._lock:
            self._now_s = max(self._now_s, now_s)
            open_ = self._open
            held = (
                part_of(self._max_pico, self._pico + self._reserved_pico, n_parts),
                part_of(open_.max_tokens, self._tokens + self._reserved_tokens, n_parts),
                part_of(open_.max_calls, self._calls + self._reserved_calls, n_parts),
            )
            is_whole = not self._outstanding
            self._next += 1
            self._hold(self._next, *(part or 0 for part in held))
            most = (self._max_pico, open_.max_tokens, open_.max_calls)
            used = (self._pico, self._tokens, self._calls)
            pico, tokens, calls = (
                spent if limit is None or part is None else limit - part
                for limit, part, spent in zip(most, held, used, strict=True)
            )
            start = Spent(usd=pico / _PICO, tokens=tokens, calls=calls, seconds=self._seconds())
            return Grant(number=self._next, start=start, is_whole=is_whole)

    def settle_grant(self, grant: Grant, used: Spent) -> None:
        """Count what was used of a grant; what of it was not is there again."""
        with self._lock:
            self._give_back(grant.number)
            self._pico += round(used.usd * _PICO)
            self._calls += used.calls
            self._tokens += used.tokens
            self._n_unpriced += used.n_unpriced

    def restart(self, spent: Spent, now_s: float) -> None:
        """Begin again with this much spent; nothing may be reserved or granted.

        Raises:
            ValueError: something is.
        """
        with self._lock:
            if self._outstanding:
                raise ValueError(f"{len(self._outstanding)} reservations are outstanding")
            self._pico = round(spent.usd * _PICO)
            self._calls, self._tokens = spent.calls, spent.tokens
            self._n_unpriced = spent.n_unpriced
            self._seconds_before = spent.seconds
            self._started_s = self._now_s = now_s

    def warnings(self, now_s: float = 0.0) -> list[tuple[float, str]]:
        """Return share and line for each limit of which another share was crossed; each once.

        Shares that were crossed before this part of the run began are not reported again; of several
        crossed at once only the largest is.
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

    # -- under the lock

    def _hold(self, number: int, pico: int, tokens: int, calls: int) -> None:
        self._outstanding[number] = (pico, tokens, calls)
        self._reserved_pico += pico
        self._reserved_tokens += tokens
        self._reserved_calls += calls

    def _give_back(self, number: int) -> bool:
        held = self._outstanding.pop(number, None)
        if held is None:
            return False
        self._reserved_pico -= held[0]
        self._reserved_tokens -= held[1]
        self._reserved_calls -= held[2]
        return True

    def _seconds(self) -> float:
        return self._seconds_before + self._now_s - self._started_s

    def _uses(self) -> dict[LimitName, tuple[float, float, float]]:
        """Return for each limit that is set: what is spent, what may be now, and what in all."""
        now, all_ = self._open, self.limits
        uses: dict[LimitName, tuple[float, float | None, float | None]] = {
            "max_usd": (self._pico / _PICO, now.max_usd, all_.max_usd),
            "max_calls": (self._calls, now.max_calls, all_.max_calls),
            "max_tokens": (self._tokens, now.max_tokens, all_.max_tokens),
            "max_minutes": (self._seconds() / 60, now.max_minutes, all_.max_minutes),
        }
        return {
            name: (used, left, limit)
            for name, (used, left, limit) in uses.items()
            if left is not None and limit is not None
        }

    def _refuse_time(self) -> Exhausted | None:
        limit = self._open.max_minutes
        if limit is None or self._seconds() < 60 * limit:
            return None
        return self._exhausted("max_minutes", "{limit} is over: {used} of work. {go_on}")

    def _refuse_call(self) -> Exhausted | None:
        limit = self._open.max_calls
        if limit is None or self._calls < limit:
            return None
        return self._exhausted("max_calls", "{limit} is spent: {used}, retries included. {go_on}")

    def _refuse_tokens(self, worst: int | None) -> Exhausted | None:
        limit = self._open.max_tokens
        if limit is None or (worst is not None and self._tokens + worst <= limit):
            return None
        if worst is None:
            reason = (
                "{limit} needs a bound of every call, but this one's length is unknown: set "
                "`max_tokens` of the request (a chat), or remove the limit."
            )
            return self._exhausted("max_tokens", reason, is_unknown=True)
        reason = "{limit} is spent: {used} used or reserved, and the next call may use up to {more}. {go_on}"
        return self._exhausted("max_tokens", reason, more=f"{worst:,}")

    def _refuse_money(self, worst: int | None) -> Exhausted | None:
        most = self._max_pico
        if most is None or (worst is not None and self._pico + worst <= most):
            return None
        if worst is None:
            if self.limits.allow_unknown_prices:
                return None
            reason = (
                "price unknown, but {limit} needs the price of every call. Name it under `prices:` "
                "and set `max_tokens` of the request, or write `allow_unknown_prices: true`."
            )
            return self._exhausted("max_usd", reason, is_unknown=True)
        reason = (
            "{limit} is spent: {used} paid or reserved, and the next call may cost up to {more}. "
            "{go_on}"
        )
        if worst > most:
            reason = (
                "{limit} is less than one call may cost: {more}. Raise it, or lower `max_tokens` of "
                "the request."
            )
        return self._exhausted("max_usd", reason, more=dollars(worst / _PICO))

    def _exhausted(
        self, name: LimitName, reason: str, *, more: str = "", is_unknown: bool = False
    ) -> Exhausted:
        """Return a refusal in words: the limit as it is written, and what is spent of it."""
        used, left, limit = self._uses()[name]
        key = written(name, limit)
        if left < limit:
            key += f", {shown(name, limit - left)} of it kept for the final test,"
        go_on = f"Raise it: `convergence resume --{name.replace('_', '-')} …`."
        text = reason.format(limit=key, used=shown(name, used), more=more, go_on=go_on)
        return Exhausted(limit=name, reason=text, is_unknown=is_unknown)

    def _waits_for(self, pico: int, tokens: int) -> LimitName | None:
        """Return the limit that the calls in flight leave no room in."""
        limits = self._open
        n_calls = self._calls + self._reserved_calls
        if limits.max_calls is not None and n_calls >= limits.max_calls:
            return "max_calls"
        n_tokens = self._tokens + self._reserved_tokens + tokens
        if limits.max_tokens is not None and n_tokens > limits.max_tokens:
            return "max_tokens"
        if self._max_pico is not None and self._pico + self._reserved_pico + pico > self._max_pico:
            return "max_usd"
        return None


def part_of(limit: int | None, used: int, n_parts: int) -> int | None:
    """Return an equal part of what is left of a limit, at least 1 of it; ``None``: no limit."""
    if limit is None:
        return None
    left = max(0, limit - used)
    return min(left, max(1, left // n_parts))


def _is_crossed(share: float, used: float, limit: float) -> bool:
    return used >= share * limit * (1 - 1e-12)  # 0.8 * 0.1 > 0.08 in floating point


def _pico(usd: float | None) -> int | None:
    """Return picodollars; ``None`` for what is no amount: nothing is ever paid back."""
    if usd is None or not math.isfinite(usd) or usd < 0:
        return None
    return round(usd * _PICO)
