"""Rate limiters of endpoints: admission of calls, and the effects of their ends.

Rate limits are counted per endpoint and key, so there is one ``EndpointLimiter`` for each pair,
whatever the purpose of its calls. A limiter has no queue, and no call waits in it: ``enter`` lets a
call pass or says when to look again, so that a call which has to wait holds no slot of another
endpoint, the order of the queue is its owner's, and a stop has nothing to interrupt.

A pause that an answer asks for holds for all calls: for those that have not entered by ``enter``,
and for those that have by ``wait_to_send``, at the moment they would leave.

Each request takes a send slot from the journal's database (``tasks.store.journal.rates``) and waits
for it. One that comes to it late, since the machine was busy, takes another: late ones would leave
in a bunch.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, Literal

from convergence_core.budget.rate_limit import AddressCheck, Aimd, Breaker, Pacer
from convergence_core.errors import EndpointDownError, EvaluationFault, InfrastructureFault
from convergence_core.records import RateInfo
from tasks.http.bodies import TOO_LARGE
from tasks.http.retries import LONGEST_PAUSE_S
from tasks.store.journal.rates import Rates

_MOST_LATE_S: Final = 0.05
"""And half of the time between two slots, where that is longer."""
_QUEUE_S: Final = 120.0
"""How far ahead slots are taken at most: a claim in the journal does not last for ever."""


@dataclass(frozen=True, slots=True)
class EndpointRate:
    """The send slots of one host; a ``tasks.http.clients.EndpointLimits``."""

    rates: Rates
    host: str
    per_second: float

    @property
    def max_in_flight(self) -> int:
        """Calls that may wait for their slots at the same time."""
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
            # The slot was counted from somewhere between asking and now: the later one is safe.
            due_s = loop.time() + wait_s
            await asyncio.sleep(wait_s)
            is_late = loop.time() - min(due_s, entered_s + wait_s) > most_late_s

    def observe(self, rate: RateInfo) -> None:
        """Take in what the head of an answer says: nothing here."""


class SharedRates:
    """The rates of one process; closed with its session.

    Args:
        rates: shared with other processes; closed with this.
        per_second: host, with its port where the URL has one → calls per second.
    """

    def __init__(self, rates: Rates, per_second: Mapping[str, float]) -> None:
        self._rates = rates
        self._hosts = {host: EndpointRate(rates, host, rate) for host, rate in per_second.items()}

    def of(self, endpoint: str | None) -> EndpointRate | None:
        """Return the rate of an endpoint (scheme and host); ``None`` means nothing limits it."""
        return self._hosts.get((endpoint or "").partition("://")[2].lower())

    def close(self) -> None:
        """Free the database; safe to call twice."""
        self._rates.close()


HELD = "held"
"""Error type of a call that was held back: nothing was sent."""
LONGEST_HOLD_S = 60.0
"""How long a call that has entered is held back: a claim in the journal does not last for ever."""
LONG_PAUSES = 8
"""Answers in a row that ask for a longer pause than a run waits, after which an endpoint that has
answered before is given up; one that has not is at the first."""
SHORTEST_REPORTED_S = 5.0
"""Shorter pauses are no news for people."""

THROTTLED = frozenset({"http_429", "http_498"})
"""Rate limits; 498 is Groq's for a tier without capacity."""
NOT_FOUND = frozenset({"http_404", "http_405", "http_410"})
"""Nothing is there: by a wrong address, or for this candidate."""
_FORBIDDEN = "http_403"
"""A wrong key, or one that may not ask for this model."""
_SPENT = frozenset({"http_402", "http_429"})
"""Where a retry is of no use, the account is out of credit."""

_Meaning = Literal[
    "answered", "alive", "throttled", "overloaded", "failed", "refused", "not_found", "unsent"
]
_MEANINGS: dict[str, _Meaning] = {
    **dict.fromkeys(NOT_FOUND, "not_found"),
    **dict.fromkeys(THROTTLED, "throttled"),
    # Too much for the endpoint, or it is down: both are taken in.
    **dict.fromkeys(("http_503", "http_529"), "overloaded"),
    **dict.fromkeys(("http_408", "http_409", "http_425"), "alive"),
}
"""Error type of a fault that may heal → what it means; any other is a failure."""


class EndpointLimiter:
    """Admission of calls to one endpoint with one key; an ``EndpointLimits``.

    Times are those of the event loop's clock.

    Args:
        endpoint: scheme and host.
        max_in_flight: most calls in flight.
        run_label: what `convergence resume` is to be given, for messages.
        on_event: called with what is worth a line of progress.
        rate: calls per second that all processes keep together.
        address: check of the address; ``None`` if many candidates, and no parameter ``model``.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        max_in_flight: int,
        run_label: str | None = None,
        on_event: Callable[[str], None] | None = None,
        rate: EndpointRate | None = None,
        address: AddressCheck | None = None,
    ) -> None:
        self.n_in_flight = 0
        """Calls that have entered and not left."""
        self.n_entered = 0
        """Calls that have entered so far."""
        self._endpoint = endpoint
        self._resume = f"`convergence resume {run_label or 'LABEL'}`"
        self._on_event = on_event
        self._rate = rate
        if rate is not None:
            max_in_flight = min(max_in_flight, rate.max_in_flight)
        self._aimd = Aimd(most=max_in_flight)
        self._pacer = Pacer()
        self._address = address or AddressCheck()
        self._breaker = Breaker(endpoint, commands=self._address.commands)
        self._down_reason: str | None = None
        self._last_missed = ""
        self._failing: set[str] = set()
        """Candidates whose calls have failed since the last answer."""
        self._reported_until_s = -math.inf
        """When the wait ends that was reported last."""
        self._first_throttled_s = math.inf

    @property
    def limit(self) -> int:
        """Calls that may be in flight now."""
        return self._aimd.limit

    @property
    def has_answered(self) -> bool:
        """Whether any request was dealt with."""
        return self._breaker.has_answered

    @property
    def is_probing(self) -> bool:
        """Whether the call that has entered is a probe."""
        return self._breaker.state == "half_open"

    @property
    def failing_candidates(self) -> Set[str]:
        """Candidates to ask after others: nothing was found for them, or the endpoint seems down."""
        missed = frozenset() if self.has_answered else self._address.candidates
        return missed if self._breaker.state == "closed" else missed | self._failing

    # -- calls

    def enter(self, now_s: float) -> float | None:
        """Let a call pass, or say in how many seconds to look again.

        Returns:
            ``None`` if it has entered, and has to ``leave``. Infinity: until another one has left.

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
        """Return for how long no call may enter; infinite: until one has left."""
        if self.n_in_flight >= self._aimd.limit:
            return math.inf
        return max(self._pacer.wait_s(now_s), self._breaker.wait_s(now_s, self.n_in_flight))

    def leave_unused(self) -> None:
        """Leave without having called."""
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
        """Leave with the end of a call.

        Args:
            fault: how it ended; ``None`` if it was answered.
            now_s: by the clock of the calls.
            candidate_id: whose call it was.
            model: the candidate's parameter ``model``; empty: it has none.
            is_control: whether it was a control; see ``Breaker``.
        """
        n_in_flight = self.n_in_flight
        self.n_in_flight -= 1
        meaning, rate = _meaning_of(fault), RateInfo()
        if isinstance(fault, InfrastructureFault):
            rate = fault.rate or RateInfo(retry_after_s=fault.retry_after_s)
            # A wrong address, a wrong key, or this candidate's parameters alone may mean these.
            if not self.has_answered and fault.error_type in {*NOT_FOUND, _FORBIDDEN}:
                self._address.missed(candidate_id, model)
                self._last_missed = str(fault)
                if fault.error_type == _FORBIDDEN and not self._address.has_tried_all_models:
                    meaning = "not_found"  # maybe it may ask for another model
        self._pause(rate, now_s)
        if (rate.retry_after_s or 0.0) > LONGEST_PAUSE_S:
            self._aimd.ended()
            self._breaker.refused(
                f"{self._endpoint} asks to wait {rate.retry_after_s:.0f} s, and a run waits no "
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
        """Give the endpoint up if its address is wrong for every candidate; return whether it is.

        Args:
            others_wait: whether other candidates wait for a slot.
        """
        address = self._address
        if self.has_answered or not address.is_wrong(others_wait=others_wait):
            return False
        self._give_up(
            f"{self._endpoint} accepted none of {address.n_answers} calls for "
            f"{len(address.candidates)} different candidates. The last: {self._last_missed}. Check "
            "the address (`api.endpoint`, its path included) and the names of models; with another "
            "one, start a new run: `convergence optimize`"
        )
        return True

    def report_wait(self, delay_s: float, now_s: float, *, n_attempts: int, most: int) -> None:
        """Report what a call waits for, unless it is short or another wait was just reported.

        Args:
            delay_s: until the retry.
            now_s: by the clock of the calls.
            n_attempts: that the call has had; the pause of the first is reported with its answer.
            most: attempts that it may have.
        """
        wait_s = max(delay_s, self._pacer.wait_s(now_s))
        if wait_s < SHORTEST_REPORTED_S or n_attempts < 2 or now_s < self._reported_until_s:
            return
        self._reported_until_s = now_s + wait_s
        host = self._endpoint.partition("://")[2] or self._endpoint
        self._report(
            f"waiting {wait_s:.0f} s for {host}: rate limit, {n_attempts} of {most} attempts"
        )

    # -- at the edges of each exchange (``tasks.http.clients.EndpointLimits``)

    async def wait_to_send(self) -> None:
        """Wait until the pause is over that began since the call entered, and for its slot.

        Raises:
            InfrastructureFault: the wait is long; nothing was sent, and a retry may succeed.
            StoreError: the database of send slots cannot be used.
        """
        await self._wait_out_pause()
        if self._rate is not None:
            await self._rate.wait_to_send()
            await self._wait_out_pause()

    async def _wait_out_pause(self) -> None:
        loop = asyncio.get_running_loop()
        while (wait_s := self._pacer.wait_s(loop.time())) > 0.0:
            if wait_s > LONGEST_HOLD_S:
                raise InfrastructureFault(
                    f"{self._endpoint} asked to wait {wait_s:.0f} s just before this was sent",
                    error_type=HELD,
                    retry_after_s=wait_s,
                )
            await asyncio.sleep(wait_s)

    def observe(self, rate: RateInfo) -> None:
        """Take in what the head of an answer says, as soon as it is there."""
        self._pause(rate, asyncio.get_running_loop().time())

    # -- inside

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
                self._report(f"{self._endpoint} answers {others if is_control else 'again'}")
        elif meaning == "refused":
            is_final = fault is not None and fault.error_type in _SPENT
            breaker.refused(str(fault), is_final=is_final)
        elif breaker.failed(str(fault), now_s):
            after_s = breaker.wait_s(now_s, 0)
            failed = f"{breaker.n_failed} calls in a row failed"
            reason = "" if breaker.absent else f": {fault}"
            self._report(f"{breaker.absent or failed}; trying one in {after_s:.0f} s{reason}")

    def _check_throttling(self, fault: EvaluationFault | None, now_s: float) -> None:
        """Give up an endpoint that has long said nothing but that it is too much."""
        self._first_throttled_s = min(self._first_throttled_s, now_s)
        lasted_s = now_s - self._first_throttled_s
        if not self.has_answered and lasted_s > LONGEST_PAUSE_S:
            self._give_up(
                f"{self._endpoint} has refused every call for {lasted_s:.0f} s by its rate limit. Check the "
                f"account's limits with the provider. The last answer: {fault}"
            )

    def _slow_down(self, n_in_flight: int, fault: EvaluationFault | None, now_s: float) -> None:
        before = self.limit
        if not self._aimd.throttled(n_in_flight):
            return
        if self._pacer.wait_s(now_s) == 0.0 and self.limit == 1:
            self._pacer.back_off(now_s)  # less than one in flight takes time between them
        if self.limit == before:
            return
        wait_s = self._pacer.wait_s(now_s)
        status = "" if fault is None else fault.error_type.replace("http_", "HTTP ")
        written = f"{wait_s:,.0f}" if wait_s >= 100.0 else f"{wait_s:.3g}"
        pause = f", {written} s" if wait_s > 0.0 else ""
        self._report(f"slowed down to {self.limit} in flight: {status}{pause}")

    def _pause(self, rate: RateInfo, now_s: float) -> None:
        if (rate.retry_after_s or 0.0) > LONGEST_PAUSE_S:
            return  # a refusal: whether of this request or of all, the next ones show
        if self._pacer.observe(rate, now_s) >= SHORTEST_REPORTED_S:
            wait_s = self._pacer.wait_s(now_s)
            self._report(f"paused for {wait_s:.0f} s, as {self._endpoint} asks")

    def _give_up(self, reason: str) -> None:
        if self._down_reason is None:
            self._down_reason = (
                f"{reason.rstrip('.')}. This run called it {self.n_entered} times. Paid "
                f"answers are kept; {self._resume} continues later."
            )
            self._report(reason)

    def _report(self, text: str) -> None:
        if self._on_event is not None:
            self._on_event(text)


@dataclass(slots=True, eq=False, kw_only=True)
class EndpointLimiters:
    """All limiters of one event loop, by endpoint and key."""

    max_in_flight: int
    """Most calls in flight through one limiter."""
    run_label: str | None = None
    """What `convergence resume` is to be given, for messages."""
    on_event: Callable[[str], None] | None = None
    """Called with what is worth a line of progress, in the loop's thread."""
    rates: SharedRates | None = None
    """Calls per second that all processes keep together."""
    address_of: Callable[[str], AddressCheck] | None = None
    """Makes the check of an endpoint's address; ``None`` if many candidates, and no parameter
    ``model``."""
    _limiters: dict[tuple[str, str | None], EndpointLimiter] = field(
        default_factory=dict, init=False
    )

    def of(self, endpoint: str | None, credential: str | None) -> EndpointLimiter | None:
        """Return the limiter of an endpoint and the variable of its key, made at the first use.

        Args:
            endpoint: scheme and host; ``None`` if the call leaves no process, and has no limiter.
            credential: name of the environment variable; ``None`` if no key is sent.
        """
        if endpoint is None:
            return None
        key = (endpoint, credential)
        if key not in self._limiters:
            self._limiters[key] = EndpointLimiter(
                endpoint,
                max_in_flight=self.max_in_flight,
                run_label=self.run_label,
                on_event=self.on_event,
                rate=self.rate_of(endpoint),
                address=None if self.address_of is None else self.address_of(endpoint),
            )
        return self._limiters[key]

    def rate_of(self, endpoint: str | None) -> EndpointRate | None:
        """Return the calls per second that all processes keep at an endpoint; ``None``: any."""
        return None if self.rates is None else self.rates.of(endpoint)


def _meaning_of(fault: EvaluationFault | None) -> _Meaning:
    """Return what the end of a call says about its endpoint."""
    if not isinstance(fault, InfrastructureFault):
        return "answered"  # maybe with something useless
    if fault.error_type in (HELD, "stopped"):
        return "unsent"
    if not fault.retryable:
        return "alive" if fault.error_type == TOO_LARGE else "refused"
    return _MEANINGS.get(fault.error_type, "failed")
