"""Paid calls: one hard limit per lane, reserved in the budget, journaled, paced, retried.

Everything here runs in one event loop, so its counters need no lock: between two ``await`` nobody
else runs. A call waits in the queue of its lane; a slot of the lane takes the next one that its
endpoint's gate lets through, reserves its worst case in the budget, claims it in the journal,
makes it, settles it, and goes on with the next. Claims are made just before the call and a slot
holds one at a time, so a killed process leaves at most as many calls of unknown fate as there are
slots.

A retry waits without a slot and then queues like everybody else. Every attempt is reserved and
claimed anew. An answer is durable before anybody sees it.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from convergence_core.budget.limits import Budget, Exhausted, Reservation, Wait
from convergence_core.errors import (
    CandidateFault,
    EndpointDownError,
    EvaluationFault,
    InfrastructureFault,
)
from convergence_core.events import BudgetWarned
from convergence_core.ports import StoredAnswer
from convergence_core.records import Json, Reply
from tasks.calls.journal_batches import JournalQueue
from tasks.calls.lanes import CallOutcome, Lane, PendingCall
from tasks.calls.outcomes import Record, Redact, fault_outcome, record_of, redacted, reply_outcome
from tasks.calls.rate_limiter import ASTRAY, HELD, THROTTLED, EndpointLimiter
from tasks.calls.settlements import (
    is_usable,
    settle_place,
    settlement_of_fault,
    settlement_of_reply,
)
from tasks.http.retries import LONGEST_PAUSE_S, Backoff
from tasks.http.stopwatch import checked_by

BUSY_LOOK_S = (0.05, 2.0)
"""First and longest pause before looking again at a call that another process makes."""

STOPPED = "the run was stopped before this was answered"


class Calls:
    """Makes calls. All methods must be called in the loop's thread."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        journal: JournalQueue,
        budget: Budget,
        lanes: Mapping[str, int],
        max_retries: int,
        max_rate_limit_retries: int,
        keep_text: bool,
        redact: Redact,
        now_us: Callable[[], int],
        backoff: Backoff,
        on_failure: Callable[[BaseException], None],
        on_warning: Callable[[BudgetWarned], None] | None = None,
    ) -> None:
        """Prepare to make calls.

        Args:
            loop: where everything runs.
            journal: where calls are claimed and settled.
            budget: what may still be spent, over all lanes.
            lanes: name → most calls in flight.
            max_retries: further tries of a call after a fault that a retry may heal.
            max_rate_limit_retries: further tries of a call after a rate limit, beside those; none
                where ``max_retries`` is 0.
            keep_text: whether details of faults are stored.
            redact: takes secrets out of a text.
            now_us: clock, in microseconds since the epoch.
            backoff: pauses before retries.
            on_failure: told of an error that is no fault of a call; everything ends then.
            on_warning: told when a limit of the budget comes near.
        """
        self._loop = loop
        self._journal = journal
        self._budget = budget
        self._lanes = {name: Lane(limit) for name, limit in lanes.items()}
        self._max_retries = max_retries
        self._max_rate_limit_retries = max_rate_limit_retries if max_retries else 0
        self._max_held = max_rate_limit_retries
        self._keep_text = keep_text
        self._redact = redact
        self._now_us = now_us
        self._backoff = backoff
        self._on_failure = on_failure
        self._on_warning = on_warning
        self._rng = random.Random()  # noqa: S311 - jitter of pauses, no part of any result
        self._under_way: set[PendingCall] = set()
        """Calls that have a place in the budget, until they have ended or pause."""
        self._same: dict[str, list[PendingCall]] = {}
        """Key of a call under way → others that wait for its answer."""
        self._pausing: dict[PendingCall, asyncio.TimerHandle] = {}
        self._settling: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False

    # -- life

    @property
    def stopping(self) -> bool:
        """Whether no further call starts."""
        return self._stopping

    def make(self, call: PendingCall) -> "asyncio.Future[CallOutcome]":
        """Queue a call behind all others of its lane; the future is done when it has ended."""
        if self._stopping:
            self._not_asked(call)
        else:
            lane = self._lanes[call.lane]
            lane.ready.append(call)
            lane.gates.add(call.gate)
            self._loop.call_soon(self._dispatch)
        return call.future

    def stop(self, grace_s: float) -> None:
        """Start no further call; calls in flight may go on for ``grace_s``."""
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
            self._not_asked(call)
        self._loop.call_later(grace_s, self._cancel_slots)

    async def drain(self) -> None:
        """Wait until no call is in flight: after ``stop`` that is its grace at most."""
        while slots := [slot for lane in self._lanes.values() for slot in lane.slots]:
            await asyncio.wait(slots)

    async def aclose(self) -> None:
        """Stop, give up calls in flight, and wait until what was answered is settled."""
        self.stop(0.0)
        self._cancel_slots()
        if self._timer is not None:
            self._timer.cancel()
        while open_tasks := self._settling.union(*(lane.slots for lane in self._lanes.values())):
            await asyncio.wait(open_tasks)
            await asyncio.sleep(0)  # their callbacks run

    def _cancel_slots(self) -> None:
        for lane in self._lanes.values():
            for slot in lane.slots:
                slot.cancel()

    def _not_asked(self, call: PendingCall) -> None:
        """End a call that is not asked (again) because the run stops."""
        self._end(call, call.last or CallOutcome(not_asked=("stopped", STOPPED)))

    def _end(self, call: PendingCall, outcome: CallOutcome) -> None:
        if not call.future.done():
            call.future.set_result(outcome)

    # -- queue and slots

    def _dispatch(self) -> None:
        """Open slots while there is work and room."""
        for lane in self._lanes.values():
            for _ in range(min(len(lane.ready), lane.limit - len(lane.slots))):
                call = self._take(lane)
                if call is None:
                    break
                self._start(lane.slots, self._slot(lane, call))

    def _start(self, group: set["asyncio.Task[None]"], work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        group.add(task)
        self._count_slots()

        def ended(task: "asyncio.Task[None]") -> None:
            group.discard(task)
            self._count_slots()
            if not task.cancelled() and (error := task.exception()) is not None:
                self._on_failure(error)
            else:
                self._dispatch()

        task.add_done_callback(ended)

    def _count_slots(self) -> None:
        self._journal.n_slots = sum(len(lane.slots) for lane in self._lanes.values())

    async def _slot(self, lane: Lane, first: PendingCall) -> None:
        call: PendingCall | None = first
        while call is not None:
            try:
                await self._attempt(call)
            except asyncio.CancelledError:
                self._not_asked(call)
                self._free(call)
                raise
            call = self._take(lane)

    def _take(self, lane: Lane) -> PendingCall | None:
        """Return the next call that may be asked now, with its place in the budget."""
        closed: set[EndpointLimiter | None] = set()
        index = 0
        while index < len(lane.ready) and closed != lane.gates:
            call = lane.ready[index]
            if (same := self._same.get(call.key)) is not None:
                del lane.ready[index]
                same.append(call)
                continue
            if call.gate is not None and (call.gate in closed or not self._enter(call.gate)):
                closed.add(call.gate)
                index += 1
                continue
            place = self._budget.reserve(call.worst, self._now_us() / 1e6)
            if isinstance(place, Wait):
                self._leave(call)
                return None  # what is reserved may be given back: whoever does looks here again
            if isinstance(place, Exhausted):
                self._leave(call)
            call.place = place
            del lane.ready[index]
            self._same[call.key] = []
            self._under_way.add(call)
            return call
        return None

    def _enter(self, gate: EndpointLimiter) -> bool:
        """Pass a gate, or make sure to look again when it opens."""
        try:
            delay_s = gate.enter(self._loop.time())
        except EndpointDownError as error:
            self._on_failure(error)
            return False
        if delay_s is None:
            return True
        if delay_s < float("inf") and (
            self._timer is None
            or self._timer.cancelled()
            or self._timer.when() > self._loop.time() + delay_s
        ):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(delay_s, self._look_at_gates)
        return False

    def _look_at_gates(self) -> None:
        self._timer = None
        self._dispatch()

    def _leave(self, call: PendingCall) -> None:
        if call.gate is not None:
            call.gate.leave_unused()

    def _free(self, call: PendingCall) -> None:
        """Let others that want the same call look at its answer."""
        self._under_way.discard(call)
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
            self._not_asked(call)
        else:
            self._pausing[call] = self._loop.call_later(delay_s, requeue)

    # -- one attempt

    async def _attempt(self, call: PendingCall) -> None:
        place = call.place
        if not isinstance(place, Reservation):
            assert isinstance(place, Exhausted)  # noqa: S101 - taken with one or the other
            answer = await self._journal.look(call.key)
            if answer is not None and is_usable(answer, call.intent):
                self._replay(call, answer)
            else:
                self._end(call, _refused(call, place))
            self._free(call)
            return
        is_asked = False
        try:
            claim = await self._journal.claim(call.intent)
            is_asked = claim.state == "granted" and not self._stopping
        finally:
            if not is_asked:
                self._budget.release(place)
                self._leave(call)
        if claim.state == "granted":
            await self._call(call, place, claim.attempt)
        elif claim.answer is not None:
            self._replay(call, claim.answer)
            self._free(call)
        else:
            first_s, longest_s = BUSY_LOOK_S
            call.n_looks += 1
            self._pause(call, min(longest_s, first_s * 2.0 ** min(call.n_looks - 1, 10)))

    async def _call(self, call: PendingCall, place: Reservation, attempt: int) -> None:
        started_us = self._now_us()
        if self._stopping:
            fault = InfrastructureFault(STOPPED, error_type="stopped")
            record = Record(started_us=started_us, ended_us=started_us, attempt=attempt)
            durable = self._settle_fault(call, fault, record)
            self._conclude(self._end_unsent(call, durable))
            return
        call.n_tries += 1
        call.n_asked += 1
        ending: Reply | EvaluationFault
        broken: BaseException | None = None
        try:
            with checked_by(call.gate or call.pace):
                ending = redacted(await call.send(), self._redact)
        except EvaluationFault as error:
            ending = self._doubted(call, error)
        except Exception as error:  # noqa: BLE001 - raised again when the attempt is settled
            broken = error
            ending = InfrastructureFault(str(error), error_type=type(error).__name__)
        except asyncio.CancelledError:
            # Sent, and nobody will see its end: the journal keeps the claim, which counts as lost.
            self._budget.settle(place, usd=None, tokens=None)
            self._leave(call)
            raise
        record = Record(started_us=started_us, ended_us=self._now_us(), attempt=attempt)
        self._pay(call, place, ending)
        # Each attempt is settled before this slot claims another.
        if isinstance(ending, Reply):
            stored = reply_outcome(ending) if call.keep is None else await call.keep(ending)
            durable = self._journal.settle(settlement_of_reply(call, record, stored, ending))
            self._conclude(
                self._finish(
                    call, CallOutcome(record=record, stored=stored, reply=ending), durable
                )
            )
            return
        durable = self._settle_fault(call, ending, record)
        if isinstance(ending, InfrastructureFault):
            self._conclude(self._heal(call, ending, record, durable))
        else:
            outcome = CallOutcome(record=record, stored=self._stored(ending))
            self._conclude(self._finish(call, outcome, durable))
        if broken is not None:
            raise broken

    def _pay(self, call: PendingCall, place: Reservation, ending: Reply | EvaluationFault) -> None:
        """Settle the reservation and tell the gate, as soon as the end is known."""
        settle_place(self._budget, place, ending)
        if call.gate is not None:
            fault = None if isinstance(ending, Reply) else ending
            call.gate.leave(
                fault,
                self._loop.time(),
                candidate_id=call.candidate_id,
                model=call.model_choice,
            )
            self._check_address(call.gate)
        if self._on_warning is not None:
            for share, text in self._budget.warnings(self._now_us() / 1e6):
                self._on_warning(BudgetWarned(text=text, share=share))
        self._dispatch()

    def _doubted(self, call: PendingCall, fault: EvaluationFault) -> EvaluationFault:
        """Return a fault that shows a wrong address as the infrastructure's until somebody answers.

        Only an endpoint that has answered another request shows that nothing is there for this one.
        """
        gate = call.gate
        is_astray = isinstance(fault, CandidateFault) and fault.error_type in ASTRAY
        if gate is None or gate.has_answered or not is_astray:
            return fault
        return InfrastructureFault(
            self._redact(str(fault)),
            error_type=fault.error_type,
            details=fault.details,
            billed=fault.billed,
        )

    def _check_address(self, gate: EndpointLimiter) -> None:
        """End everything where an address is wrong; before that, ask for other candidates first."""
        missed = gate.candidates_missed
        if not missed:
            return
        waits = [lane.postpone(gate, missed) for lane in self._lanes.values()]
        under_way = any(
            call.gate is gate and call.candidate_id not in missed for call in self._under_way
        )
        if gate.give_up_address(others_wait=any(waits) or under_way):
            self._enter(gate)  # which tells whoever waits for its calls

    def _stored(self, fault: EvaluationFault) -> Json:
        return fault_outcome(fault, self._redact, keep_text=self._keep_text)

    def _settle_fault(
        self, call: PendingCall, fault: EvaluationFault, record: Record
    ) -> "asyncio.Future[Any]":
        return self._journal.settle(settlement_of_fault(call, record, self._stored(fault), fault))

    # -- after the attempt: no slot is held

    def _conclude(self, work: Coroutine[Any, Any, None]) -> None:
        self._start(self._settling, work)

    async def _end_unsent(self, call: PendingCall, durable: "asyncio.Future[Any]") -> None:
        await durable
        self._not_asked(call)
        self._free(call)

    async def _finish(
        self, call: PendingCall, outcome: CallOutcome, durable: "asyncio.Future[Any]"
    ) -> None:
        await durable
        self._free(call)
        self._end(call, outcome)

    async def _heal(
        self,
        call: PendingCall,
        fault: InfrastructureFault,
        record: Record,
        durable: "asyncio.Future[Any]",
    ) -> None:
        """Ask again later, or end the call with its fault when that is of no use."""
        await durable
        call.last = CallOutcome(record=record, fault=fault)
        delay_s = self._delay_s(call, fault)
        if delay_s is None:
            self._end(call, call.last)
            self._free(call)
        else:
            self._pause(call, delay_s)

    def _delay_s(self, call: PendingCall, fault: InfrastructureFault) -> float | None:
        """Return the seconds until a call is asked again; ``None``: it is not.

        One call is attempted ``1 + max_retries + max_rate_limit_retries`` times at most, and what
        answers ask it to wait comes to ``LONGEST_PAUSE_S`` at most.
        """
        is_held = fault.error_type == HELD
        is_limited = is_held or fault.error_type in THROTTLED
        if is_limited:
            call.n_throttled += 1
            # What was never sent is asked again even where nothing is retried.
            most = self._max_held if is_held else self._max_rate_limit_retries
            if call.n_throttled <= most:
                call.n_tries -= 1  # it uses up none of the retries that faults have
        call.asked_s += fault.retry_after_s or 0.0
        if not fault.retryable or self._stopping:
            return None
        if call.n_tries > self._max_retries or call.asked_s > LONGEST_PAUSE_S:
            return None
        n_tries = call.n_tries + min(call.n_throttled, self._max_rate_limit_retries)
        delay_s = self._backoff.delay_s(n_tries, fault.retry_after_s, self._rng)
        if is_limited and delay_s is not None and call.gate is not None:
            call.gate.tell_wait(
                delay_s,
                self._loop.time(),
                n_attempts=n_tries,
                most=1 + self._max_retries + self._max_rate_limit_retries,
            )
        return delay_s

    def _replay(self, call: PendingCall, answer: StoredAnswer) -> None:
        """End a call with an answer of the journal, exactly as the first time."""
        record = record_of(answer, call.intent.run_id, call.intent.eval_id)
        self._end(call, CallOutcome(record=record, stored=answer.outcome))


def _refused(call: PendingCall, place: Exhausted) -> CallOutcome:
    """Return how a call ends whose next attempt the budget refuses."""
    if call.last is None or call.last.fault is None:
        return CallOutcome(not_asked=("budget", place.reason))
    attempts = (
        "its one attempt" if call.n_asked == 1 else f"the last of its {call.n_asked} attempts"
    )
    return replace(
        call.last,
        fault=InfrastructureFault(
            f"{place.reason} A call was not made again after {attempts}: {call.last.fault}",
            error_type="budget",
        ),
    )
