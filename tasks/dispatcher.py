"""Takes cells from a queue to their evaluations: slots, budget, journal, retries.

Everything here runs in one event loop, so its counters need no lock: between two ``await`` nobody
else runs, and a call is reserved in the budget before it is claimed.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from convergence_core.errors import EvaluationFault, InfrastructureFault
from convergence_core.records import Evaluation, Json, Reply
from convergence_core.store.protocols import Answer, Settlement
from convergence_core.target import Target
from tasks.cells import (
    Job,
    PendingCell,
    Record,
    answered,
    fault_of,
    fault_outcome,
    record_of,
    redacted,
    reply_of,
    reply_outcome,
    scored_outcome,
    skipped,
    verdict_of,
)
from tasks.journaling import JournalQueue
from tasks.retries import Backoff
from tasks.scoring import Scorer, Verdict

BUSY_LOOK_S = (0.05, 2.0)
"""First and longest pause before looking again at a call that another process makes."""

_STOPPED = "the run was stopped before this cell was answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a dispatcher may do."""

    workers: int
    """Most calls in flight."""
    max_retries: int
    max_calls: int | None
    """Most calls of the run, retries included; ``None``: no limit."""
    keep_text: bool
    """Whether answers are stored; without, only their metrics are."""


class Dispatcher:
    """The loop's side of a session. All methods must be called in the loop's thread."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        target: Target,
        scorer: Scorer,
        journal: JournalQueue,
        limits: Limits,
        calls_used: int,
        redact: Callable[[str], str],
        now_us: Callable[[], int],
        backoff: Backoff,
    ) -> None:
        self.n_used = calls_used
        """Calls granted so far; read from any thread."""
        self._loop = loop
        self._target = target
        self._scorer = scorer
        self._journal = journal
        self._limits = limits
        self._redact = redact
        self._now_us = now_us
        self._backoff = backoff
        self._rng = random.Random()  # noqa: S311 - jitter of pauses, no part of any result
        self._ready: deque[PendingCell] = deque()
        self._same_call: dict[str, list[PendingCell]] = {}
        """Call under way → cells that wait for its answer."""
        self._pausing: dict[PendingCell, asyncio.TimerHandle] = {}
        self._slots: set[asyncio.Task[None]] = set()
        self._conclusions: set[asyncio.Task[None]] = set()
        self._jobs: set[Job] = set()
        self._to_flush: set[Job] = set()
        self._n_reserved = 0
        self._stopping = False
        self._error: BaseException | None = None

    # -- life

    def add(self, job: Job, cells: list[PendingCell]) -> None:
        """Queue the cells of a job behind all others."""
        if self._error is not None:
            job.results.put(self._error)
            return
        self._jobs.add(job)
        self._ready.extend(cells)
        if self._stopping:
            self._skip_queued()
        self._dispatch()

    def stop(self, grace_s: float) -> None:
        """Start no further call; calls in flight may go on for ``grace_s``."""
        if not self._stopping:
            self._stopping = True
            self._skip_queued()
            self._loop.call_later(grace_s, self._cancel_slots)

    def fail(self, error: BaseException) -> None:
        """End all jobs with an error that is no fault of a cell."""
        if self._error is None:
            self._error = error
        self._stopping = True
        for job in self._jobs:
            job.results.put(self._error)
        self._jobs.clear()
        self._ready.clear()
        for timer in self._pausing.values():
            timer.cancel()
        self._pausing.clear()

    async def aclose(self) -> None:
        """Stop, give up calls in flight, and wait until what was answered is settled."""
        self.stop(0.0)
        self._cancel_slots()
        while open_tasks := self._slots | self._conclusions:
            await asyncio.wait(open_tasks)
            await asyncio.sleep(0)  # their callbacks run

    def _cancel_slots(self) -> None:
        for slot in self._slots:
            slot.cancel()

    def _skip_queued(self) -> None:
        queued = [*self._ready, *self._pausing]
        for timer in self._pausing.values():
            timer.cancel()
        for cells in self._same_call.values():
            queued += cells
            cells.clear()
        self._ready.clear()
        self._pausing.clear()
        for pending in queued:
            self._skip(pending, "stopped", _STOPPED)

    # -- queue and slots

    @property
    def _is_blocked(self) -> bool:
        """Whether the last calls of the budget are reserved: they may be given back, or not."""
        max_calls = self._limits.max_calls
        return (
            max_calls is not None
            and self._n_reserved > 0
            and self.n_used + self._n_reserved >= max_calls
        )

    def _dispatch(self) -> None:
        """Open slots while there is work and room."""
        if self._is_blocked:
            return
        for _ in range(min(len(self._ready), self._limits.workers - len(self._slots))):
            self._track(self._slots, self._slot())

    def _track(self, group: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        group.add(task)
        self._journal.n_slots = len(self._slots)

        def ended(task: asyncio.Task[None]) -> None:
            group.discard(task)
            self._journal.n_slots = len(self._slots)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.fail(error)
            elif self._ready:
                self._dispatch()

        task.add_done_callback(ended)

    async def _slot(self) -> None:
        while (pending := self._take()) is not None:
            try:
                await self._attempt(pending)
            except asyncio.CancelledError:
                self._skip(pending, "stopped", _STOPPED)
                self._free_call(pending)
                raise

    def _take(self) -> PendingCell | None:
        """Return the next cell that may be asked now, its place in the budget reserved."""
        while self._ready and not self._is_blocked:
            pending = self._ready.popleft()
            same = self._same_call.get(pending.call_key)
            if same is not None:
                same.append(pending)
                continue
            self._same_call[pending.call_key] = []
            max_calls = self._limits.max_calls
            pending.looks_only = max_calls is not None and self.n_used >= max_calls
            if not pending.looks_only:
                self._n_reserved += 1
            return pending
        return None

    def _free_call(self, pending: PendingCell) -> None:
        """Let cells that want the same call look at its answer."""
        if same := self._same_call.pop(pending.call_key, None):
            self._ready.extendleft(reversed(same))
            self._dispatch()

    def _pause(self, pending: PendingCell, delay_s: float) -> None:
        def requeue() -> None:
            del self._pausing[pending]
            self._ready.append(pending)
            self._dispatch()

        self._free_call(pending)
        self._pausing[pending] = self._loop.call_later(delay_s, requeue)

    # -- one cell

    async def _attempt(self, pending: PendingCell) -> None:
        if pending.looks_only:
            answer = await self._journal.look(pending.call_key)
            if answer is not None:
                self._conclude(self._replay(pending, answer))
            else:
                why = f"budget.max_calls={self._limits.max_calls} is spent"
                self._skip(pending, "budget", why)
                self._free_call(pending)
            return
        try:
            claim = await self._journal.claim(pending.intent)
            self.n_used += claim.state == "granted"
        finally:
            self._n_reserved -= 1
        if self._limits.max_calls is not None:
            self._dispatch()
        if claim.state == "granted":
            await self._call(pending, claim.attempt)
        elif claim.answer is not None:
            self._conclude(self._replay(pending, claim.answer))
        else:
            first_s, longest_s = BUSY_LOOK_S
            self._look_again(pending, min(longest_s, first_s * 2.0 ** min(pending.n_looks, 10)))

    def _look_again(self, pending: PendingCell, delay_s: float) -> None:
        pending.n_looks += 1
        if self._stopping:
            self._skip(pending, "stopped", _STOPPED)
            self._free_call(pending)
        else:
            self._pause(pending, delay_s)

    async def _call(self, pending: PendingCell, attempt: int) -> None:
        started_us = self._now_us()
        keep_text = self._limits.keep_text
        if self._stopping:
            unsent = InfrastructureFault(_STOPPED, error_type="stopped")
            record = Record(started_us=started_us, ended_us=started_us, attempt=attempt)
            outcome = fault_outcome(unsent, self._redact, keep_text=keep_text)
            self._conclude(
                self._end_unsent(pending, self._settle(pending, record, "failed", outcome))
            )
            return
        pending.n_tries += 1
        reply: Reply | None = None
        fault: EvaluationFault | None = None
        broken: Exception | None = None
        try:
            reply = redacted(await self._target.call(pending.params, pending.case), self._redact)
        except EvaluationFault as error:
            fault = error
        except Exception as error:  # noqa: BLE001 - raised again when the attempt is settled
            broken = error
            fault = InfrastructureFault(str(error), error_type=type(error).__name__)
        record = Record(started_us=started_us, ended_us=self._now_us(), attempt=attempt)
        # Each attempt is settled before this slot claims another.
        if reply is not None:
            await self._keep(pending, reply, record)
            return
        assert fault is not None  # noqa: S101 - no reply
        outcome = fault_outcome(fault, self._redact, keep_text=keep_text)
        if isinstance(fault, InfrastructureFault):
            durable = self._settle(pending, record, "failed", outcome)
            self._conclude(self._heal(pending, fault, record, durable))
        else:
            durable = self._settle(pending, record, "done", outcome)
            verdict = self._scorer.verdict_of_fault(fault_of(outcome))
            self._conclude(self._finish(pending, None, verdict, record, durable))
        if broken is not None:
            raise broken

    async def _keep(self, pending: PendingCell, reply: Reply, record: Record) -> None:
        """Settle an answer and let it be scored; where no text is kept, score it first."""
        if self._limits.keep_text:
            durable = self._settle(pending, record, "done", reply_outcome(reply), reply)
            self._conclude(self._score(pending, reply, record, durable))
            return
        verdict = await self._scorer.verdict(reply, pending.case, pending.params)
        outcome = scored_outcome(reply, verdict)
        durable = self._settle(pending, record, "done", outcome, reply)
        self._conclude(self._finish(pending, reply, verdict, record, durable))

    def _settle(
        self,
        pending: PendingCell,
        record: Record,
        state: Any,
        outcome: Json,
        reply: Reply | None = None,
    ) -> "asyncio.Future[Any]":
        assert record.started_us is not None and record.ended_us is not None  # noqa: S101, PT018 - a call was made
        return self._journal.settle(
            Settlement(
                call_key=pending.call_key,
                attempt=record.attempt,
                state=state,
                outcome=outcome,
                started_us=record.started_us,
                ended_us=record.ended_us,
                cost_usd=None if reply is None else reply.cost_usd,
                tokens_in=None if reply is None else reply.tokens_in,
                tokens_out=None if reply is None else reply.tokens_out,
                model=None if reply is None else reply.model,
            )
        )

    # -- after the call: no slot is held

    def _conclude(self, work: Coroutine[Any, Any, None]) -> None:
        self._track(self._conclusions, work)

    async def _end_unsent(self, pending: PendingCell, durable: "asyncio.Future[Any]") -> None:
        await durable
        self._skip(pending, "stopped", _STOPPED)
        self._free_call(pending)

    async def _score(
        self, pending: PendingCell, reply: Reply, record: Record, durable: "asyncio.Future[Any]"
    ) -> None:
        await durable
        self._free_call(pending)
        verdict = await self._scorer.verdict(reply, pending.case, pending.params)
        self._end(pending, self._answered(pending, reply, verdict, record))

    async def _finish(
        self,
        pending: PendingCell,
        reply: Reply | None,
        verdict: Verdict,
        record: Record,
        durable: "asyncio.Future[Any]",
    ) -> None:
        await durable
        self._free_call(pending)
        self._end(pending, self._answered(pending, reply, verdict, record))

    async def _heal(
        self,
        pending: PendingCell,
        fault: InfrastructureFault,
        record: Record,
        durable: "asyncio.Future[Any]",
    ) -> None:
        """Ask again later, or end the cell with its fault when that is of no use."""
        await durable
        pending.fault = fault
        pending.record = record
        delay_s = None
        if fault.retryable and pending.n_tries <= self._limits.max_retries and not self._stopping:
            delay_s = self._backoff.delay_s(pending.n_tries, fault.retry_after_s, self._rng)
        if delay_s is None:
            self._end_with_fault(pending)
            self._free_call(pending)
        else:
            self._pause(pending, delay_s)

    async def _replay(self, pending: PendingCell, answer: Answer) -> None:
        """End a cell with an answer of the journal, exactly as the first time."""
        self._free_call(pending)
        record = record_of(answer, pending.eval_id)
        reply = reply_of(answer.outcome)
        verdict = verdict_of(answer.outcome)
        if reply is None:
            verdict = self._scorer.verdict_of_fault(fault_of(answer.outcome))
        elif verdict is None:
            verdict = await self._scorer.verdict(reply, pending.case, pending.params)
        assert verdict is not None  # noqa: S101 - one of the three
        self._end(pending, self._answered(pending, reply, verdict, record))

    def _answered(
        self, pending: PendingCell, reply: Reply | None, verdict: Verdict, record: Record
    ) -> Evaluation:
        return answered(pending, reply, verdict, record, keep_text=self._limits.keep_text)

    def _end_with_fault(self, pending: PendingCell) -> None:
        assert pending.fault is not None and pending.record is not None  # noqa: S101, PT018 - it failed
        verdict = self._scorer.verdict_of_fault(pending.fault)
        self._end(pending, self._answered(pending, None, verdict, pending.record))

    def _skip(self, pending: PendingCell, error_type: str, why: str) -> None:
        if pending.fault is not None:
            self._end_with_fault(pending)  # it was asked, and that is how it ended
        else:
            self._end(pending, skipped(pending, error_type, why))

    def _end(self, pending: PendingCell, evaluation: Evaluation) -> None:
        job = pending.job
        if job.deliver(pending.index, evaluation):
            if not self._to_flush:
                self._loop.call_soon(self._flush)
            self._to_flush.add(job)
        if job.n_left == 0:
            self._jobs.discard(job)

    def _flush(self) -> None:
        """Wake each waiting thread once for all cells that ended in this round."""
        for job in self._to_flush:
            job.flush()
        self._to_flush.clear()
