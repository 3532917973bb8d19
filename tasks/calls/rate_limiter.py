"""Gates before endpoints: who may call now, and what each end of a call means for the next.

Rate limits are counted per endpoint and key, so there is one ``EndpointLimiter`` for each pair, whatever the
purpose of its calls. A gate has no queue and nobody waits in it: ``enter`` lets a call pass or says
when to look again, so that a call which has to wait holds no slot of another endpoint, whoever
keeps the queue decides who is next, and a stop has nothing to interrupt.

A pause that an answer asks for holds for all calls: for those that have not entered by ``enter``,
and for those that have by ``clearance``, at the moment they would leave.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Literal

from convergence_core.budget.rate_limit import AddressCheck, Aimd, Breaker, Pacer
from convergence_core.errors import EndpointDownError, EvaluationFault, InfrastructureFault
from convergence_core.records import RateInfo
from tasks.calls.shared_rate import Pace, Pacing
from tasks.http.bodies import TOO_LARGE
from tasks.http.retries import LONGEST_PAUSE_S

__all__ = ["ASTRAY", "HELD", "THROTTLED", "EndpointLimiter", "EndpointLimiters", "TrafficEvent"]

HELD = "held"
"""Error type of a call that was held back: nothing was sent."""
LONGEST_HOLD_S = 60.0
"""How long a call that has entered is held back: a claim in the journal does not last for ever."""
LONG_PAUSES = 8
"""Answers in a row that ask for a longer pause than a run waits, after which an endpoint that has
answered before is given up; one that has not is at the first."""
SHORTEST_TOLD_S = 5.0
"""Shorter pauses are no news for people."""

_UNSENT = frozenset({HELD, "stopped"})
THROTTLED = frozenset({"http_429", "http_498"})
"""Rate limits; 498 is Groq's for a tier without capacity."""
ASTRAY = frozenset({"http_404", "http_405", "http_410"})
"""Nothing is there: by a wrong address, or for this candidate."""
_FORBIDDEN = "http_403"
"""A wrong key, or one that may not ask for this model."""
_OVERLOADED = frozenset({"http_503", "http_529"})
"""Too much for the endpoint, or it is down: both are taken in."""
_ALIVE = frozenset({"http_408", "http_409", "http_425"})
_SPENT = frozenset({"http_402", "http_429"})
"""Where a retry is of no use, the account is out of credit."""

_Meaning = Literal[
    "answered", "alive", "throttled", "overloaded", "failed", "refused", "astray", "unsent"
]


TrafficKind = Literal["slower", "paused", "waiting", "silent", "back", "down"]

_MEANINGS: Mapping[str, _Meaning] = {
    **dict.fromkeys(ASTRAY, "astray"),
    **dict.fromkeys(THROTTLED, "throttled"),
    **dict.fromkeys(_OVERLOADED, "overloaded"),
    **dict.fromkeys(_ALIVE, "alive"),
}
"""Error type of a fault that may heal → what it means; any other is a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficEvent:
    """Something about an endpoint that is worth a line of progress."""

    endpoint: str
    kind: TrafficKind
    text: str
    """For people, e.g. ``slowed down to 3 in flight: HTTP 429, 12 s``."""
    limit: int
    """Calls that may be in flight now."""


class EndpointLimiter:
    """One endpoint and key, in one event loop. Times are those of its clock."""

    def __init__(
        self,
        endpoint: str,
        *,
        max_in_flight: int,
        run_label: str | None = None,
        on_event: Callable[[TrafficEvent], None] | None = None,
        pace: Pace | None = None,
        address: AddressCheck | None = None,
    ) -> None:
        self.endpoint = endpoint
        """Where its calls go: scheme and host, for people."""
        self.n_in_flight = 0
        """Calls that have entered and not left."""
        self.n_throttled = 0
        """Answers that said it was too much."""
        self.n_entered = 0
        """Calls that have entered so far."""
        self.events: deque[TrafficEvent] = deque(maxlen=100)
        """The latest events, oldest first."""
        self._resume = f"`convergence resume {run_label or 'LABEL'}`"
        self._on_event = on_event
        self._pace = pace
        if pace is not None:
            max_in_flight = min(max_in_flight, pace.most_in_flight)
        self._aimd = Aimd(most=max_in_flight)
        self._pacer = Pacer()
        self._breaker = Breaker(endpoint)
        self._address = address or AddressCheck()
        self._why_down: str | None = None
        self._last_missed = ""
        self._told_until_s = -math.inf
        """When the wait ends that people were told of last."""

    @property
    def limit(self) -> int:
        """Calls that may be in flight now."""
        return self._aimd.limit

    @property
    def is_down(self) -> bool:
        """Whether the endpoint was given up."""
        return self._why_down is not None

    @property
    def has_answered(self) -> bool:
        """Whether any request was dealt with."""
        return self._breaker.has_answered

    @property
    def candidates_missed(self) -> Set[str]:
        """Candidates that nothing was found for; empty once anything was answered."""
        return frozenset() if self.has_answered else self._address.candidates

    # -- calls

    def enter(self, now_s: float) -> float | None:
        """Let a call pass, or say in how many seconds to look again.

        Returns:
            ``None``: it has entered, and has to ``leave``. Infinity: until another one has left.

        Raises:
            EndpointDownError: the endpoint was given up.
        """
        if self._why_down is not None:
            raise EndpointDownError(self._why_down)
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
    ) -> None:
        """Leave with the end of a call.

        Args:
            fault: how it ended; ``None``: it was answered.
            now_s: by the clock of the calls.
            candidate_id: whose call it was.
            model: the candidate's parameter ``model``; empty: it has none.
        """
        n_in_flight = self.n_in_flight
        self.n_in_flight -= 1
        meaning = _meaning_of(fault)
        if fault is not None and not self.has_answered and _may_be_the_candidates(fault):
            self._address.missed(candidate_id, model)
            self._last_missed = str(fault)
            if fault.error_type == _FORBIDDEN and not self._address.has_tried_all_models:
                meaning = "astray"  # maybe it may ask for another model
        rate = _rate_of(fault)
        self._pause(rate, now_s)
        if (rate.retry_after_s or 0.0) > LONGEST_PAUSE_S:
            self._aimd.ended()
            self._breaker.refused(
                f"{self.endpoint} asks to wait {rate.retry_after_s:.0f} s, and a run waits no "
                f"longer than {LONGEST_PAUSE_S:.0f} s",
                is_final=True,
                most=LONG_PAUSES if self._breaker.has_answered else 1,
            )
            self._mind_verdict()
            return
        if meaning == "answered":
            self._aimd.answered(n_in_flight)
            self._pacer.answered()
        elif meaning in ("throttled", "overloaded"):
            self.n_throttled += 1
            self._slow_down(n_in_flight, fault, now_s)
        else:
            self._aimd.ended()
        self._mind(meaning, fault, now_s)

    def give_up_address(self, *, others_wait: bool) -> bool:
        """Give the endpoint up if its address is wrong for every candidate; return whether it is.

        Args:
            others_wait: whether candidates could be asked for that were not yet.
        """
        if self.has_answered or not self._address.is_wrong(others_wait=others_wait):
            return False
        found, n = self._address, len(self._address.candidates)
        self._give_up(
            f"{self.endpoint} dealt with none of {found.n_answers} calls for {n} different "
            f"candidates. The last: {self._last_missed}. Check the address "
            "(`api.endpoint`, its path included) and the names of models; with another one, begin a "
            "new run: `convergence optimize`"
        )
        return True

    def tell_wait(self, delay_s: float, now_s: float, *, n_attempts: int, most: int) -> None:
        """Say what a call waits for, unless it is short or another one's wait was just told.

        Args:
            delay_s: until the call is asked again.
            now_s: by the clock of the calls.
            n_attempts: that the call has had; the first one's pause is told by who asked for it.
            most: attempts that it may have.
        """
        wait_s = max(delay_s, self._pacer.wait_s(now_s))
        if wait_s < SHORTEST_TOLD_S or n_attempts < 2 or now_s < self._told_until_s:
            return
        self._told_until_s = now_s + wait_s
        self._tell(
            "waiting",
            f"waiting {wait_s:.0f} s for {self.endpoint.partition('://')[2] or self.endpoint}: rate limit, {n_attempts} of "
            f"{most} attempts",
        )

    # -- at the edges of each exchange (``tasks.http.stopwatch.Checkpoint``)

    async def clearance(self) -> None:
        """Wait until the pause is over that began since the call entered, and for its moment.

        Raises:
            InfrastructureFault: it is a long one; nothing was sent, and it may be asked again.
            StoreError: the database of moments cannot be used.
        """
        await self._pause_is_over()
        if self._pace is not None:
            await self._pace.clearance()
            await self._pause_is_over()

    async def _pause_is_over(self) -> None:
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
        """Take in what the head of an answer says, as soon as it is there."""
        self._pause(rate, asyncio.get_running_loop().time())

    # -- inside

    def _mind(self, meaning: _Meaning, fault: EvaluationFault | None, now_s: float) -> None:
        """Tell the breaker how the call ended."""
        breaker = self._breaker
        if meaning == "unsent":
            breaker.unused()
        elif meaning in ("answered", "alive", "throttled", "astray"):
            if breaker.answered(is_success=meaning == "answered"):
                self._tell("back", f"{self.endpoint} answers again")
        elif meaning == "refused":
            is_final = fault is not None and fault.error_type in _SPENT
            breaker.refused(str(fault), is_final=is_final)
        elif breaker.failed(str(fault), now_s):
            after_s = breaker.wait_s(now_s, 0)
            self._tell(
                "silent",
                f"{breaker.n_failed} calls in a row failed, trying one in {after_s:.0f} s: {fault}",
            )
        self._mind_verdict()

    def _mind_verdict(self) -> None:
        if self._breaker.verdict is not None:
            self._give_up(self._breaker.verdict)

    def _slow_down(self, n_in_flight: int, fault: EvaluationFault | None, now_s: float) -> None:
        before = self.limit
        if not self._aimd.throttled(n_in_flight):
            return
        wait_s = self._pacer.wait_s(now_s)
        if wait_s == 0.0 and self.limit == 1:
            self._pacer.back_off(now_s)  # less than one in flight takes time between them
            wait_s = self._pacer.wait_s(now_s)
        if self.limit == before:
            return
        status = "" if fault is None else fault.error_type.replace("http_", "HTTP ")
        written = f"{wait_s:,.0f}" if wait_s >= 100.0 else f"{wait_s:.3g}"
        pause = f", {written} s" if wait_s > 0.0 else ""
        self._tell("slower", f"slowed down to {self.limit} in flight: {status}{pause}")

    def _pause(self, rate: RateInfo, now_s: float) -> None:
        if (rate.retry_after_s or 0.0) > LONGEST_PAUSE_S:
            return  # a refusal: whether of this request or of all, the next ones show
        longer_s = self._pacer.observe(rate, now_s)
        if longer_s >= SHORTEST_TOLD_S:
            wait_s = self._pacer.wait_s(now_s)
            self._tell("paused", f"paused for {wait_s:.0f} s, as {self.endpoint} asks")

    def _give_up(self, why: str) -> None:
        if self._why_down is None:
            self._why_down = (
                f"{why.rstrip('.')}. Asked {self.n_entered} times by this run; what was answered is kept, and "
                f"{self._resume} goes on later."
            )
            self._tell("down", why)

    def _tell(self, kind: TrafficKind, text: str) -> None:
        event = TrafficEvent(endpoint=self.endpoint, kind=kind, text=text, limit=self.limit)
        self.events.append(event)
        if self._on_event is not None:
            self._on_event(event)


class EndpointLimiters:
    """All gates of one event loop, by endpoint and key."""

    def __init__(
        self,
        *,
        max_in_flight: int,
        run_label: str | None = None,
        on_event: Callable[[TrafficEvent], None] | None = None,
        pacing: Pacing | None = None,
        address_of: Callable[[str], AddressCheck] | None = None,
    ) -> None:
        """Prepare to make gates.

        Args:
            max_in_flight: most calls in flight through one gate.
            run_label: what `convergence resume` is to be given, for messages.
            on_event: told of each event, in the loop's thread.
            pacing: calls per second that all processes keep together.
            address_of: makes the check of an endpoint's address; ``None``: many candidates, and no
                parameter ``model``.
        """
        self._address_of = address_of
        self._pacing = pacing
        self._max_in_flight = max_in_flight
        self._run_label = run_label
        self._on_event = on_event
        self._gates: dict[tuple[str, str | None], EndpointLimiter] = {}

    def of(self, endpoint: str | None, credential: str | None) -> EndpointLimiter | None:
        """Return the gate of an endpoint and the variable of its key, made when first asked for.

        Args:
            endpoint: scheme and host; ``None``: the call leaves no process, and has no gate.
            credential: name of the environment variable; ``None``: no key is sent.
        """
        if endpoint is None:
            return None
        key = (endpoint, credential)
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = EndpointLimiter(
                endpoint,
                max_in_flight=self._max_in_flight,
                run_label=self._run_label,
                on_event=self._on_event,
                pace=self.pace_of(endpoint),
                address=None if self._address_of is None else self._address_of(endpoint),
            )
        return gate

    def pace_of(self, endpoint: str | None) -> Pace | None:
        """Return the calls per second that all processes keep at an endpoint; ``None``: any."""
        return None if self._pacing is None else self._pacing.of(endpoint)

    @property
    def all(self) -> tuple[EndpointLimiter, ...]:
        """The gates made so far."""
        return tuple(self._gates.values())


def _meaning_of(fault: EvaluationFault | None) -> _Meaning:
    """Return what the end of a call says about its endpoint."""
    if not isinstance(fault, InfrastructureFault):
        return "answered"  # maybe with something useless
    kind = fault.error_type
    if kind in _UNSENT:
        return "unsent"
    if not fault.retryable:
        return "alive" if kind == TOO_LARGE else "refused"
    return _MEANINGS.get(kind, "failed")


def _may_be_the_candidates(fault: EvaluationFault) -> bool:
    """Whether a wrong address, a wrong key, or this candidate's parameters alone may mean this."""
    if not isinstance(fault, InfrastructureFault):
        return False
    return fault.error_type in ASTRAY or fault.error_type == _FORBIDDEN


def _rate_of(fault: EvaluationFault | None) -> RateInfo:
    if not isinstance(fault, InfrastructureFault):
        return RateInfo()
    return fault.rate or RateInfo(retry_after_s=fault.retry_after_s)
