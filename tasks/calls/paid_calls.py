"""Paid calls: limited, reserved in the budget, journaled, paced and retried.

All code here runs in one event loop, so its counters need no lock: nothing else runs between two
``await``. A call waits in the queue of its lane. A slot of the lane takes the next call that its
endpoint's limiter admits, reserves its worst case in the budget, claims it in the journal, makes
it and settles it, then continues with the next. A slot holds one claim at a time and claims just
before the call, so a killed process leaves at most as many calls of unknown end as there are
slots.

A retry waits without a slot and then queues like any other call. Every attempt is reserved and
claimed again. An answer is durable before it is used.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from convergence_core.budget.limits import Budget, Exhausted, Reservation, Wait
from convergence_core.config.optimization import ExecutionConfig
from convergence_core.errors import (
    CandidateFault,
    EndpointDownError,
    EvaluationFault,
    EvaluatorFault,
    InfrastructureFault,
)
from convergence_core.events import BudgetWarned, CallEnded
from convergence_core.ports import StoredAnswer
from convergence_core.records import Json, Reply, canonical_json, fields_of, sha256_hex
from tasks.calls.journal_batches import JournalQueue
from tasks.calls.outcomes import (
    AttemptRecord,
    Redact,
    billed_of,
    fault_outcome,
    is_usable,
    masked_fault,
    paid_by_parts,
    record_of,
    redacted,
    reply_of,
    reply_outcome,
    settle_reservation,
    settlement_of,
)
from tasks.calls.pending_calls import (
    AGENT_LANE,
    JUDGE_LANE,
    TARGET_LANE,
    THOUGHT_LANE,
    CallOutcome,
    Lane,
    PendingCall,
)
from tasks.calls.rate_limiter import HELD, NOT_FOUND, THROTTLED, EndpointLimiter, SharedRates
from tasks.http.clients import within_limits
from tasks.http.retries import LONGEST_PAUSE_S, Backoff

BUSY_LOOK_S = (0.05, 2.0)
"""First and longest pause, in seconds, before checking again on another process's call."""

STOPPED = "the run was stopped before this was answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """Maximum calls in flight and maximum attempts."""

    workers: int
    """Maximum calls of the target in flight, over all assignments."""
    judge_workers: int = 1
    thought_workers: int = 1
    max_retries: int
    """Maximum retries of a call after a transient fault."""
    max_rate_limit_retries: int = ExecutionConfig().max_rate_limit_retries
    """Maximum additional retries of a call after rate limits; none if ``max_retries`` is 0."""
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(slots=True, eq=False, kw_only=True)
class Calls:
    """Makes calls. All methods run in the loop's thread."""

    loop: asyncio.AbstractEventLoop
    journal: JournalQueue
    budget: Budget
    """Budget of all lanes."""
    limits: CallLimits
    limiter_of: Callable[[str, str | None], EndpointLimiter]
    """(endpoint, variable of its key) → the limiter of both, always the same."""
    rates: SharedRates | None = None
    """Calls per second that all processes keep together."""
    keep_text: bool
    """Whether details of faults are stored."""
    redact: Redact
    now_us: Callable[[], int]
    on_failure: Callable[[BaseException], None]
    """Called with an error that is not a call's fault, which ends everything."""
    on_call: Callable[[CallEnded], None] | None = None
    """Called with each ended attempt before it is settled; must neither raise nor block."""
    on_warning: Callable[[BudgetWarned], None] | None = None
    """Called when a limit of the budget is near."""
    _lanes: dict[str, Lane] = field(init=False)
    _rng: random.Random = field(default_factory=random.Random, init=False)
    """Random jitter of pauses, without effect on results."""
    _in_flight: set[PendingCall] = field(default_factory=set, init=False)
    """Calls with a reservation in the budget, until they end or pause."""
    _answered: dict[EndpointLimiter | None, PendingCall] = field(default_factory=dict, init=False)
    """Limiter → one of its answered calls; see ``Breaker``."""
    _same: dict[str, list[PendingCall]] = field(default_factory=dict, init=False)
    """Key of a call in flight → other calls that wait for its answer."""
    _pausing: dict[PendingCall, asyncio.TimerHandle] = field(default_factory=dict, init=False)
    _settling: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _stopping: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Create the lanes, judges first because they complete a cell."""
        self._lanes = {
            JUDGE_LANE: Lane(self.limits.judge_workers),
            AGENT_LANE: Lane(self.limits.workers),
            TARGET_LANE: Lane(self.limits.workers),
            THOUGHT_LANE: Lane(self.limits.thought_workers),
        }

    # -- life

    def make(self, call: PendingCall) -> "asyncio.Future[CallOutcome]":
        """Queue a call after all others of its lane; the future completes with its outcome."""
        call.future = self.loop.create_future()
        if self._stopping:
            self._end_unsent(call)
            return call.future
        if call.lane == THOUGHT_LANE:
            call.limits = None if self.rates is None else self.rates.of(call.endpoint)
        elif call.endpoint is not None:  # else it leaves no process
            call.limits = call.limiter = self.limiter_of(call.endpoint, call.paid.credential)
        lane = self._lanes[call.lane]
        lane.ready.append(call)
        lane.limiters.add(call.limiter)
        self.loop.call_soon(self._dispatch)
        return call.future

    def stop(self, grace_s: float) -> None:
        """Start no further calls; calls in flight may continue for ``grace_s`` seconds."""
        if self._stopping:
            return
        self._stopping = True
        queued = [*self._pausing]
        for timer in self._pausing.values():
            timer.cancel()
        self._pausing.clear()
        for lane in self._lanes.values():
            queued += lane.ready
            lane.ready.clear()
        for waiting in self._same.values():
            queued += waiting
            waiting.clear()
        for call in queued:
            self._end_unsent(call)
        self.loop.call_later(grace_s, self._cancel_slots)

    async def drain(self) -> None:
        """Wait until no call is in flight and all answers are settled.

        After ``stop`` this takes at most its grace.
        """
        while open_tasks := self._settling.union(*(lane.slots for lane in self._lanes.values())):
            await asyncio.wait(open_tasks)
            await asyncio.sleep(0)  # runs their callbacks

    async def aclose(self) -> None:
        """Stop, abandon calls in flight, and wait until all answers are settled."""
        self.stop(0.0)
        self._cancel_slots()
        if self._timer is not None:
            self._timer.cancel()
        await self.drain()

    def _cancel_slots(self) -> None:
        for lane in self._lanes.values():
            for slot in lane.slots:
                slot.cancel()

    def _end_unsent(self, call: PendingCall) -> None:
        """End a call that a stop prevents."""
        self._end(call, call.last or CallOutcome(unsent_reason=("stopped", STOPPED)))

    def _end(self, call: PendingCall, outcome: CallOutcome) -> None:
        if not call.future.done():
            call.future.set_result(outcome)

    # -- queue and slots

    def _dispatch(self) -> None:
        """Open slots while calls are ready and slots free."""
        for lane in self._lanes.values():
            for _ in range(min(len(lane.ready), lane.n_slots - len(lane.slots))):
                call = self._take(lane)
                if call is None:
                    break
                self._start(lane.slots, self._slot(lane, call))

    def _start(self, group: set["asyncio.Task[None]"], work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        group.add(task)
        self._count_slots()

        def ended(task: "asyncio.Task[None]") -> None:
            group.discard(task)
            self._count_slots()
            if not task.cancelled() and (error := task.exception()) is not None:
                self.on_failure(error)
            else:
                self._dispatch()

        task.add_done_callback(ended)

    def _count_slots(self) -> None:
        self.journal.n_slots = sum(len(lane.slots) for lane in self._lanes.values())

    async def _slot(self, lane: Lane, first: PendingCall) -> None:
        call: PendingCall | None = first
        while call is not None:
            try:
                await self._attempt(call)
            except asyncio.CancelledError:
                self._end_unsent(call)
                self._free(call)
                raise
            call = self._take(lane)

    def _take(self, lane: Lane) -> PendingCall | None:
        """Return the next call to make, with its reservation in the budget."""
        closed: set[EndpointLimiter | None] = set()
        index = 0
        while index < len(lane.ready) and closed != lane.limiters:
            call = lane.ready[index]
            if (same := self._same.get(call.key)) is not None:
                del lane.ready[index]
                same.append(call)
                continue
            limiter = call.limiter
            if limiter is not None and (limiter in closed or not self._enter(limiter)):
                closed.add(limiter)
                index += 1
                continue
            reservation = self.budget.reserve(call.paid.worst, self.now_us() / 1e6)
            if not isinstance(reservation, Reservation):
                self._leave_unused(call)
            if isinstance(reservation, Wait):
                return None  # a release of reserved budget triggers another attempt
            control = self._control(call) if isinstance(reservation, Reservation) else None
            if control is not None and isinstance(reservation, Reservation):
                self.budget.release(reservation)
                call = control
            else:
                call.reservation = reservation
                del lane.ready[index]
            self._same[call.key] = []
            self._in_flight.add(call)
            return call
        return None

    def _control(self, call: PendingCall) -> PendingCall | None:
        """Return the control that replaces a probe, an earlier answered request, or ``None``."""
        limiter, now_us = call.limiter, self.now_us()
        answered = self._answered.get(limiter)
        if limiter is None or not limiter.is_probing or answered is None:
            return None
        reservation = self.budget.reserve(answered.paid.worst, now_us / 1e6)
        if not isinstance(reservation, Reservation):
            return None
        key = sha256_hex(canonical_json([answered.key, now_us]))
        control = PendingCall(
            lane=call.lane,
            **fields_of(answered, "paid", "request_text", "send"),
            intent=replace(
                answered.intent,
                call_key=key,
                eval_id=key[:24],
                generation=call.intent.generation,
            ),
            keep=_without_text,
            limiter=limiter,
            limits=limiter,
            reservation=reservation,
            is_control=True,
        )
        control.future = self.loop.create_future()
        return control

    def _enter(self, limiter: EndpointLimiter) -> bool:
        """Enter a limiter, or schedule another attempt for when it opens."""
        now_s = self.loop.time()
        try:
            delay_s = limiter.enter(now_s)
        except EndpointDownError as error:
            self.on_failure(error)
            return False
        if delay_s is None:
            return True
        timer = self._timer
        is_later = timer is None or timer.cancelled() or timer.when() > now_s + delay_s
        if delay_s < float("inf") and is_later:
            if timer is not None:
                timer.cancel()
            self._timer = self.loop.call_later(delay_s, self._look_at_limiters)
        return False

    def _look_at_limiters(self) -> None:
        self._timer = None
        self._dispatch()

    def _leave_unused(self, call: PendingCall) -> None:
        if call.limiter is not None:
            call.limiter.leave_unused()

    def _free(self, call: PendingCall) -> None:
        """Let other calls with the same key read its answer."""
        self._in_flight.discard(call)
        for other in reversed(self._same.pop(call.key, ())):
            self._lanes[other.lane].ready.appendleft(other)
        self._dispatch()

    def _pause(self, call: PendingCall, delay_s: float) -> None:
        def requeue() -> None:
            del self._pausing[call]
            self._lanes[call.lane].ready.append(call)
            self._dispatch()

        self._free(call)
        if self._stopping:
            self._end_unsent(call)
        else:
            self._pausing[call] = self.loop.call_later(delay_s, requeue)

    # -- one attempt

    async def _attempt(self, call: PendingCall) -> None:
        reservation = call.reservation
        if not isinstance(reservation, Reservation):
            assert isinstance(reservation, Exhausted)  # noqa: S101 - the only other kind
            answer = await self.journal.look(call.key)
            if answer is not None and is_usable(answer, call.intent):
                self._end(call, self._replay(call, answer))
            else:
                self._end(call, _refused(call, reservation))
            self._free(call)
            return
        is_asked = False
        try:
            claim = await self.journal.claim(call.intent)
            is_asked = claim.state == "granted" and not self._stopping
        finally:
            if not is_asked:
                self.budget.release(reservation)
                self._leave_unused(call)
        if claim.state == "granted":
            await self._call(call, reservation, claim.attempt)
        elif claim.answer is not None:
            self._end(call, self._replay(call, claim.answer))
            self._free(call)
        else:
            first_s, longest_s = BUSY_LOOK_S
            self._pause(call, min(longest_s, first_s * 2.0 ** min(call.n_busy, 10)))
            call.n_busy += 1

    def _replay(self, call: PendingCall, answer: StoredAnswer) -> CallOutcome:
        """Return the outcome of a call with a stored answer, as the first time."""
        if reply_of(answer.outcome) is not None:
            self._answered.setdefault(call.limiter, call)
        return CallOutcome(record=record_of(answer, call.intent), stored=answer.outcome)

    async def _call(self, call: PendingCall, reservation: Reservation, attempt: int) -> None:
        started_us = self.now_us()
        if self._stopping:
            fault = InfrastructureFault(STOPPED, error_type="stopped")
            record = AttemptRecord(started_us=started_us, ended_us=started_us, attempt=attempt)
            self._settle(call, record, self._stored(fault), fault, lambda: self._give_up(call))
            return
        call.n_tries += 1
        call.n_sent += 1
        if call.is_composed:
            # Its inner calls would wait forever for a reservation that it holds.
            self.budget.settle(reservation, usd=0.0, tokens=0)
        ending: Reply | EvaluationFault
        broken: BaseException | None = None
        try:
            with within_limits(call.limits):
                ending = self._clean(call, await call.send())
        except EvaluationFault as error:
            ending = self._maybe_wrong_address(call, error)
        except Exception as error:  # noqa: BLE001 - re-raised after the settlement
            broken = error
            ending = InfrastructureFault(str(error), error_type=type(error).__name__)
        except asyncio.CancelledError:
            # The request was sent and its end is unknown: the journal keeps the claim, which
            # counts as lost.
            if not call.is_composed:
                self.budget.settle(reservation, usd=None, tokens=None)
            self._leave_unused(call)
            raise
        record = AttemptRecord.of(ending, attempt, started_us, self.now_us())
        self._pay(call, reservation, ending)
        self._report(call, record, ending)
        # Each attempt is settled before this slot claims another.
        if isinstance(ending, Reply):
            stored = reply_outcome(ending) if call.keep is None else await call.keep(ending)
            outcome = CallOutcome(record=record, stored=stored, reply=ending)
            self._settle(call, record, stored, ending, lambda: self._finish(call, outcome))
            return
        stored = self._stored(ending)
        if isinstance(ending, InfrastructureFault):
            failed = ending
            call.last = CallOutcome(record=record, fault=failed)
            self._settle(call, record, stored, ending, lambda: self._retry(call, failed))
        else:
            masked = ending if isinstance(ending, EvaluatorFault) else None
            outcome = CallOutcome(record=record, stored=stored, fault=masked)
            self._settle(call, record, stored, ending, lambda: self._finish(call, outcome))
        if broken is not None:
            raise broken

    def _clean(self, call: PendingCall, reply: Reply) -> Reply | EvaluatorFault:
        """Return a reply without secrets, or a fault if redaction changes a target's answer.

        Redaction leaves the rating of a judge and the forecasts of a hypothesis unchanged.
        """
        clean = redacted(reply, self.redact)
        if clean.value == reply.value or call.lane not in (TARGET_LANE, AGENT_LANE):
            return clean
        billed = None if call.is_composed else billed_of(clean)
        return masked_fault(reply.value, self.redact, billed)

    def _pay(
        self, call: PendingCall, reservation: Reservation, ending: Reply | EvaluationFault
    ) -> None:
        """Settle the reservation and leave the limiter as soon as the ending is known."""
        if not call.is_composed:
            settle_reservation(self.budget, reservation, ending)
        if isinstance(ending, Reply) and not (call.is_composed or call.is_control):
            self._answered[call.limiter] = call
        if call.limiter is not None:
            call.limiter.leave(
                None if isinstance(ending, Reply) else ending,
                self.loop.time(),
                candidate_id=call.candidate_id,
                model=call.model_choice,
                is_control=call.is_control,
            )
            self._check_address(call.limiter)
        if self.on_warning is not None:
            for share, text in self.budget.warnings(self.now_us() / 1e6):
                self.on_warning(BudgetWarned(text=text, share=share))
        self._dispatch()

    def _report(
        self, call: PendingCall, record: AttemptRecord, ending: Reply | EvaluationFault
    ) -> None:
        """Report an attempt's ending to the listener."""
        if self.on_call is None:
            return
        ending = paid_by_parts(ending) if call.is_composed else ending
        self.on_call(
            CallEnded(
                **fields_of(call.intent, "run_id", "generation", "eval_id", "purpose", "provider"),
                **fields_of(record, "started_us", "ended_us", "attempt"),
                candidate_id=call.candidate_id,
                request=call.paid.request,
                reply=ending if isinstance(ending, Reply) else None,
                fault=None if isinstance(ending, Reply) else ending,
            )
        )

    def _maybe_wrong_address(self, call: PendingCall, fault: EvaluationFault) -> EvaluationFault:
        """Treat a not-found fault as infrastructure until the endpoint has answered.

        Only an endpoint that has answered another request shows that this one is wrong.
        """
        limiter = call.limiter
        is_not_found = isinstance(fault, CandidateFault) and fault.error_type in NOT_FOUND
        if limiter is None or limiter.has_answered or not is_not_found:
            return fault
        text = self.redact(str(fault))
        return InfrastructureFault(text, **fields_of(fault, "error_type", "details", "billed"))

    def _check_address(self, limiter: EndpointLimiter) -> None:
        """Move failing candidates' calls to the end; fail the run if the address is wrong."""
        failing = limiter.failing_candidates
        if not failing:
            return
        in_flight = {call.candidate_id for call in self._in_flight if call.limiter is limiter}
        known = failing | in_flight
        waits = [lane.postpone(limiter, known) for lane in self._lanes.values()]
        if limiter.give_up_address(others_wait=any(waits) or known > failing):
            self._enter(limiter)  # which ends all waiting jobs

    def _stored(self, fault: EvaluationFault) -> Json:
        return fault_outcome(fault, self.redact, keep_text=self.keep_text)

    # -- after the attempt, without a slot

    def _settle(
        self,
        call: PendingCall,
        record: AttemptRecord,
        stored: Json,
        ending: Reply | EvaluationFault,
        then: Callable[[], None],
    ) -> None:
        """Settle an attempt, and continue when that is durable."""
        ending = paid_by_parts(ending) if call.is_composed else ending
        durable = self.journal.settle(settlement_of(call.intent, record, stored, ending))

        async def go_on() -> None:
            await durable
            then()

        self._start(self._settling, go_on())

    def _give_up(self, call: PendingCall) -> None:
        self._end_unsent(call)
        self._free(call)

    def _finish(self, call: PendingCall, outcome: CallOutcome) -> None:
        self._free(call)
        self._end(call, outcome)

    def _retry(self, call: PendingCall, fault: InfrastructureFault) -> None:
        """Retry later, or end the call with its fault if no retry is left."""
        delay_s = None if call.is_control else self._delay_s(call, fault)
        if delay_s is None:
            self._give_up(call)
        else:
            self._pause(call, delay_s)

    def _delay_s(self, call: PendingCall, fault: InfrastructureFault) -> float | None:
        """Return the seconds until a retry; ``None`` if there is none.

        A call has at most ``1 + max_retries + max_rate_limit_retries`` attempts, and its requested
        waits add up to at most ``LONGEST_PAUSE_S``.
        """
        max_retries = self.limits.max_retries
        max_waits = self.limits.max_rate_limit_retries if max_retries else 0
        is_held = fault.error_type == HELD
        is_limited = is_held or fault.error_type in THROTTLED
        if is_limited:
            call.n_throttled += 1
            # An unsent request is retried even without retries.
            most = self.limits.max_rate_limit_retries if is_held else max_waits
            if call.n_throttled <= most:
                call.n_tries -= 1  # does not use up a retry after a fault
        call.waits_s += fault.retry_after_s or 0.0
        if not fault.retryable or self._stopping:
            return None
        if call.n_tries > max_retries or call.waits_s > LONGEST_PAUSE_S:
            return None
        n_tries = call.n_tries + min(call.n_throttled, max_waits)
        delay_s = self.limits.backoff.delay_s(n_tries, fault.retry_after_s, self._rng)
        if is_limited and delay_s is not None and call.limiter is not None:
            most = 1 + max_retries + max_waits
            call.limiter.report_wait(delay_s, self.loop.time(), n_attempts=n_tries, most=most)
        return delay_s


async def _without_text(reply: Reply) -> Json:
    return reply_outcome(replace(reply, value=None, thinking=None, extra={}))


def _refused(call: PendingCall, exhausted: Exhausted) -> CallOutcome:
    """Return the outcome of a call whose next attempt the budget rejects."""
    if call.last is None or call.last.fault is None:
        return CallOutcome(unsent_reason=("budget", exhausted.reason))
    attempts = "its one attempt" if call.n_sent == 1 else f"the last of its {call.n_sent} attempts"
    return replace(
        call.last,
        fault=InfrastructureFault(
            f"{exhausted.reason} A call was not made again after {attempts}: {call.last.fault}",
            error_type="budget",
        ),
    )
