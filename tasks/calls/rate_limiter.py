"""Rate limiters of endpoints: admission of calls, and effects of their outcomes.

Rate limits apply per endpoint and key, so each pair has one ``EndpointLimiter`` for calls of all
purposes. A limiter has no queue: ``enter`` admits a call or returns the seconds until the next
check. A waiting call therefore holds no slot of another endpoint, the owner decides on the order,
and a stop has nothing to interrupt.

A pause that an answer requests applies to all calls: ``enter`` delays new ones, and
``wait_to_send`` those already admitted, just before they are sent.

Each request takes a send slot from the journal's database (``tasks.store.journal.rates``) and
waits for it. A request that misses its slot, on a busy machine, takes another one; late requests
would leave in a burst.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Set
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal

from convergence_core.budget.rate_limit import AddressCheck, Aimd, Breaker, Pacer
from convergence_core.errors import EndpointDownError, EvaluationFault, InfrastructureFault
from convergence_core.records import RateInfo
from tasks.http.bodies import TOO_LARGE
from tasks.http.retries import LONGEST_PAUSE_S
from tasks.store.journal.rates import Rates

_MOST_LATE_S: Final = 0.05
"""Tolerated delay after a slot in seconds, or half of the time between two slots if that is
longer.
"""
_QUEUE_S: Final = 120.0
"""Maximum seconds that slots are taken ahead, because a claim in the journal expires."""


@dataclass(frozen=True, slots=True)
class EndpointRate:
    """Send slots of one host; a ``tasks.http.clients.EndpointLimits``."""

    rates: Rates
    host: str
    per_second: float

    @property
    def max_in_flight(self) -> int:
        """Maximum calls that wait for their slots at the same time."""
        return max(1, int(self.per_second * _QUEUE_S))

    async def wait_to_send(self) -> None:
        """Wait for a slot.

        Raises:
            StoreError: the slots' database cannot be used.
        """
        loop = asyncio.get_running_loop()
        most_late_s = max(_MOST_LATE_S, 0.5 / self.per_second)
        is_late = True
        while is_late:
            entered_s = loop.time()
            wait_s = await asyncio.to_thread(self.rates.take, self.host, self.per_second)
            # The wait starts between request and reply of the database; the later time is safe.
            due_s = loop.time() + wait_s
            await asyncio.sleep(wait_s)
            is_late = loop.time() - min(due_s, entered_s + wait_s) > most_late_s

    def observe(self, rate: RateInfo) -> None:
        """Ignore the rate information of an answer."""


class SharedRates:
    """Rates of one process; closed with its session.

    Args:
        rates: send slots shared with other processes; closed with this object.
        per_second: host, with its port if the URL has one → calls per second.
    """

    def __init__(self, rates: Rates, per_second: Mapping[str, float]) -> None:
        self._rates = rates
        self._hosts = {host: EndpointRate(rates, host, rate) for host, rate in per_second.items()}

    def of(self, endpoint: str | None) -> EndpointRate | None:
        """Return the rate of an endpoint (scheme and host); ``None`` if it has no limit."""
        return self._hosts.get((endpoint or "").partition("://")[2].lower())

    def close(self) -> None:
        """Close the database; safe to call twice."""
        self._rates.close()


HELD = "held"
"""Error type of a call that was held back without being sent."""
LONGEST_HOLD_S = 60.0
"""Maximum seconds that an admitted call is held back, because a claim in the journal expires."""
LONG_PAUSES = 8
"""Consecutive answers requesting a longer pause than a run waits, after which a known endpoint is
given up. One that has never answered is given up after the first.
"""
SHORTEST_REPORTED_S = 5.0
"""Minimum seconds of a pause that is reported."""

THROTTLED = frozenset({"http_429", "http_498"})
"""Rate limits; 498 is Groq's code for a tier without capacity."""
NOT_FOUND = frozenset({"http_404", "http_405", "http_410"})
"""Errors of a wrong address, or of a resource that only this candidate misses."""
_FORBIDDEN = "http_403"
"""Error of a wrong key, or of one without permission for this model."""
_SPENT = frozenset({"http_402", "http_429"})
"""Errors that mean exhausted credit if they are not retryable."""

_Meaning = Literal[
    "answered", "alive", "throttled", "overloaded", "failed", "refused", "not_found", "unsent"
]
_MEANINGS: dict[str, _Meaning] = {
    **dict.fromkeys(NOT_FOUND, "not_found"),
    **dict.fromkeys(THROTTLED, "throttled"),
    # Too many requests or an outage: both slow down and count for the breaker.
    **dict.fromkeys(("http_503", "http_529"), "overloaded"),
    **dict.fromkeys(("http_408", "http_409", "http_425"), "alive"),
}
"""Error type of a transient fault → its meaning; any other is a failure."""


@dataclass(eq=False, repr=False)
class EndpointLimiter:
    """Admission of calls to one endpoint with one key; an ``EndpointLimits``.

    Times are those of the event loop's clock, in seconds.

    Args:
        endpoint: scheme and host.
        max_in_flight: maximum calls in flight.
        run_label: run for `convergence resume` in messages.
        on_event: called with progress messages.
        rate: calls per second of all processes together.
        address: check of the address; the default assumes many candidates without a parameter
            ``model``.
    """

    endpoint: str
    _: KW_ONLY
    max_in_flight: int
    run_label: str | None = None
    on_event: Callable[[str], None] | None = None
    rate: EndpointRate | None = None
    address: AddressCheck = field(default_factory=AddressCheck)

    def __post_init__(self) -> None:
        """Start with no call in flight."""
        self.n_in_flight = 0
        """Admitted calls that have not left."""
        self.n_entered = 0
        """Admitted calls so far."""
        most = self.max_in_flight
        self._aimd = Aimd(most=most if self.rate is None else min(most, self.rate.max_in_flight))
        self._pacer = Pacer()
        self._breaker = Breaker(self.endpoint, commands=self.address.commands)
        self._down_reason: str | None = None
        self._last_missed = ""
        self._failing: set[str] = set()
        """Candidates with failed calls since the last answer."""
        self._reported_until_s = -math.inf
        """End of the last reported wait."""
        self._first_throttled_s = math.inf

    @property
    def limit(self) -> int:
        """Maximum calls in flight at present."""
        return self._aimd.limit

    @property
    def has_answered(self) -> bool:
        """Whether the endpoint has answered any request."""
        return self._breaker.has_answered

    @property
    def is_probing(self) -> bool:
        """Whether the admitted call is a probe."""
        return self._breaker.state == "half_open"

    @property
    def failing_candidates(self) -> Set[str]:
        """Candidates to call after others: not found so far, or failed at a failing endpoint."""
        missed = frozenset() if self.has_answered else self.address.candidates
        return missed if self._breaker.state == "closed" else missed | self._failing

    # -- calls

    def enter(self, now_s: float) -> float | None:
        """Admit a call, or return the seconds until the next check.

        Returns:
            ``None`` if the call is admitted and must ``leave``. Infinity means until another has
                left.

        Raises:
            EndpointDownError: the endpoint was given up.
        """
        if self._down_reason is not None:
            raise EndpointDownError(self._down_reason)
        wait_s = self.wait_s(now_s)
        if wait_s > 0.0:
            return wait_s
        self._breaker.started()
        self.n_in_flight += 1
        self.n_entered += 1
        return None

    def wait_s(self, now_s: float) -> float:
        """Return the seconds during which no call may enter; infinite until one has left."""
        if self.n_in_flight >= self._aimd.limit:
            return math.inf
        return max(self._pacer.wait_s(now_s), self._breaker.wait_s(now_s, self.n_in_flight))

    def leave_unused(self) -> None:
        """Leave without a call."""
        self.n_in_flight -= 1
        self.n_entered -= 1
        self._breaker.unused()

    def leave(
        self,
        fault: EvaluationFault | None,
        now_s: float,
        *,
        candidate_id: str = "",
        model: str = "",
        is_control: bool = False,
    ) -> None:
        """Leave with the outcome of a call.

        Args:
            fault: fault of the call; ``None`` if it was answered.
            now_s: time of the calls' clock.
            candidate_id: id of the call's candidate.
            model: the candidate's parameter ``model``; empty if it has none.
            is_control: whether the call was a control; see ``Breaker``.
        """
        n_in_flight = self.n_in_flight
        self.n_in_flight -= 1
        meaning, rate = _meaning_of(fault), RateInfo()
        if isinstance(fault, InfrastructureFault):
            rate = fault.rate or RateInfo(retry_after_s=fault.retry_after_s)
            # These can mean a wrong address, a wrong key, or only this candidate's parameters.
            if not self.has_answered and fault.error_type in {*NOT_FOUND, _FORBIDDEN}:
                self.address.missed(candidate_id, model)
                self._last_missed = str(fault)
                if fault.error_type == _FORBIDDEN and not self.address.has_tried_all_models:
                    meaning = "not_found"  # the key may be allowed another model
        self._pause(rate, now_s)
        if (rate.retry_after_s or 0.0) > LONGEST_PAUSE_S:
            self._aimd.ended()
            self._breaker.refused(
                f"{self.endpoint} asks to wait {rate.retry_after_s:.0f} s, and a run waits no "
                f"longer than {LONGEST_PAUSE_S:.0f} s",
                is_final=True,
                most=LONG_PAUSES if self._breaker.has_answered else 1,
            )
        else:
            if meaning == "answered":
                self._aimd.answered(n_in_flight)
                self._pacer.answered()
            elif meaning in ("throttled", "overloaded"):
                self._slow_down(n_in_flight, fault, now_s)
                if meaning == "throttled":
                    self._check_throttling(fault, now_s)
            else:
                self._aimd.ended()
            self._note_failing(meaning, candidate_id)
            self._update_breaker(meaning, fault, now_s, is_control=is_control)
        if self._breaker.verdict is not None:
            self._give_up(self._breaker.verdict)

    def give_up_address(self, *, others_wait: bool) -> bool:
        """Give up an endpoint whose address is wrong for every candidate; return whether it is.

        Args:
            others_wait: whether other candidates wait for a slot.
        """
        address = self.address
        if self.has_answered or not address.is_wrong(others_wait=others_wait):
            return False
        self._give_up(
            f"{self.endpoint} accepted none of {address.n_answers} calls for "
            f"{len(address.candidates)} different candidates. The last: {self._last_missed}. Check "
            "the address (`api.endpoint`, its path included) and the names of models; with another "
            "one, start a new run: `convergence optimize`"
        )
        return True

    def report_wait(self, delay_s: float, now_s: float, *, n_attempts: int, most: int) -> None:
        """Report a call's wait unless it is short or another wait was just reported.

        Args:
            delay_s: seconds until the retry.
            now_s: time of the calls' clock.
            n_attempts: attempts of the call so far; the pause of the first is reported with its
                answer.
            most: maximum attempts of the call.
        """
        wait_s = max(delay_s, self._pacer.wait_s(now_s))
        if wait_s < SHORTEST_REPORTED_S or n_attempts < 2 or now_s < self._reported_until_s:
            return
        self._reported_until_s = now_s + wait_s
        host = self.endpoint.partition("://")[2] or self.endpoint
        self._report(
            f"waiting {wait_s:.0f} s for {host}: rate limit, {n_attempts} of {most} attempts"
        )

    # -- at the edges of each exchange (``tasks.http.clients.EndpointLimits``)

    async def wait_to_send(self) -> None:
        """Wait for the end of a pause that began after admission, and for a send slot.

        Raises:
            InfrastructureFault: the wait is long; nothing was sent, and a retry may succeed.
            StoreError: the database of send slots cannot be used.
        """
        await self._wait_out_pause()
        if self.rate is not None:
            await self.rate.wait_to_send()
            await self._wait_out_pause()

    async def _wait_out_pause(self) -> None:
        loop = asyncio.get_running_loop()
        while (wait_s := self._pacer.wait_s(loop.time())) > 0.0:
            if wait_s > LONGEST_HOLD_S:
                raise InfrastructureFault(
                    f"{self.endpoint} asked to wait {wait_s:.0f} s just before this was sent",
                    error_type=HELD,
                    retry_after_s=wait_s,
                )
            await asyncio.sleep(wait_s)

    def observe(self, rate: RateInfo) -> None:
        """Apply the rate information in an answer's headers immediately."""
        self._pause(rate, asyncio.get_running_loop().time())

    # -- internals

    def _note_failing(self, meaning: _Meaning, candidate_id: str) -> None:
        if meaning in ("failed", "overloaded"):
            self._failing.add(candidate_id)
        elif meaning != "unsent":
            self._failing.clear()

    def _update_breaker(
        self,
        meaning: _Meaning,
        fault: EvaluationFault | None,
        now_s: float,
        *,
        is_control: bool,
    ) -> None:
        breaker = self._breaker
        if meaning == "unsent":
            breaker.unused()
        elif meaning in ("answered", "alive", "throttled", "not_found"):
            if breaker.answered(is_success=meaning == "answered", is_control=is_control):
                others = "another request, so the settings that failed are at fault"
                self._report(f"{self.endpoint} answers {others if is_control else 'again'}")
        elif meaning == "refused":
            is_final = fault is not None and fault.error_type in _SPENT
            breaker.refused(str(fault), is_final=is_final)
        elif breaker.failed(str(fault), now_s):
            after_s = breaker.wait_s(now_s, 0)
            failed = f"{breaker.n_failed} calls in a row failed"
            reason = "" if breaker.absent else f": {fault}"
            self._report(f"{breaker.absent or failed}; trying one in {after_s:.0f} s{reason}")

    def _check_throttling(self, fault: EvaluationFault | None, now_s: float) -> None:
        """Give up an endpoint whose only answers have long been rate limits."""
        self._first_throttled_s = min(self._first_throttled_s, now_s)
        lasted_s = now_s - self._first_throttled_s
        if not self.has_answered and lasted_s > LONGEST_PAUSE_S:
            self._give_up(
                f"{self.endpoint} has refused every call for {lasted_s:.0f} s by its rate limit. Check the "
                f"account's limits with the provider. The last answer: {fault}"
            )

    def _slow_down(self, n_in_flight: int, fault: EvaluationFault | None, now_s: float) -> None:
        before = self.limit
        if not self._aimd.throttled(n_in_flight):
            return
        if self._pacer.wait_s(now_s) == 0.0 and self.limit == 1:
            self._pacer.back_off(now_s)  # fewer than one in flight means pauses between calls
        if self.limit == before:
            return
        wait_s = self._pacer.wait_s(now_s)
        status = "" if fault is None else fault.error_type.replace("http_", "HTTP ")
        written = f"{wait_s:,.0f}" if wait_s >= 100.0 else f"{wait_s:.3g}"
        pause = f", {written} s" if wait_s > 0.0 else ""
        self._report(f"slowed down to {self.limit} in flight: {status}{pause}")

    def _pause(self, rate: RateInfo, now_s: float) -> None:
        if (rate.retry_after_s or 0.0) > LONGEST_PAUSE_S:
            return  # a refusal; the next requests show whether it holds for all
        if self._pacer.observe(rate, now_s) >= SHORTEST_REPORTED_S:
            wait_s = self._pacer.wait_s(now_s)
            self._report(f"paused for {wait_s:.0f} s, as {self.endpoint} asks")

    def _give_up(self, reason: str) -> None:
        if self._down_reason is None:
            self._down_reason = (
                f"{reason.rstrip('.')}. This run called it {self.n_entered} times. Paid "
                f"answers are kept; `convergence resume {self.run_label or 'LABEL'}` continues later."
            )
            self._report(reason)

    def _report(self, text: str) -> None:
        if self.on_event is not None:
            self.on_event(text)


def _meaning_of(fault: EvaluationFault | None) -> _Meaning:
    """Return the meaning of a call's outcome for its endpoint."""
    if not isinstance(fault, InfrastructureFault):
        return "answered"  # possibly with a useless answer
    if fault.error_type in (HELD, "stopped"):
        return "unsent"
    if not fault.retryable:
        return "alive" if fault.error_type == TOO_LARGE else "refused"
    return _MEANINGS.get(fault.error_type, "failed")
