"""Event loop of a session, which calls the target and measures answers."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import Any

from convergence_core.errors import CandidateFault, EvaluationFault
from convergence_core.objective import RewardModel
from convergence_core.ports import CallIntent, Metric, Target, WorstCase
from convergence_core.records import (
    Assignment,
    Case,
    Cell,
    Evaluation,
    Json,
    Params,
    Reply,
    Status,
    canonical_json,
    fields_of,
    sha256_hex,
)
from tasks.calls.metric_calls import ComposedTarget, PaidCall, PaidMetric
from tasks.calls.outcomes import AttemptRecord, Redact, score_of, scored_outcome
from tasks.calls.paid_calls import Calls
from tasks.calls.pending_calls import (
    AGENT_LANE,
    JUDGE_LANE,
    TARGET_LANE,
    THOUGHT_LANE,
    CallOutcome,
    PendingCall,
    RunContext,
)
from tasks.calls.scorer import CONSTRAINT, CellScore, Scorer, error_text

TIMEOUTS = frozenset({"timeout", "connect_timeout"})
"""Error types that make an evaluation's status ``timeout``."""


@dataclass(slots=True, eq=False)
class Job:
    """One call of ``evaluate`` with the queue of its evaluations."""

    assignment: Assignment
    generation: int | None
    reports_each: bool
    """Whether the waiting thread needs each evaluation immediately, or all together."""
    n_left: int
    results: "SimpleQueue[list[tuple[int, Evaluation]] | BaseException]" = field(
        default_factory=SimpleQueue
    )
    """Evaluations with the index of their cell, or the error that ends the job."""
    _delivered: list[tuple[int, Evaluation]] = field(default_factory=list)

    def deliver(self, index: int, evaluation: Evaluation) -> bool:
        """Add an evaluation in the session's loop; return whether to flush."""
        self._delivered.append((index, evaluation))
        self.n_left -= 1
        return self.reports_each or self.n_left == 0

    def flush(self) -> None:
        """Send the evaluations added since the last flush."""
        if self._delivered:
            self.results.put(self._delivered)
            self._delivered = []


@dataclass(slots=True, eq=False)
class PendingCell:
    """A cell without an evaluation."""

    job: Job
    index: int
    cell: Cell
    case: Case
    call: PendingCall

    @property
    def params(self) -> Params:
        """The candidate's parameters."""
        return self.job.assignment.candidate.params

    def evaluation(
        self, reply: Reply | None, score: CellScore, record: AttemptRecord, *, keep_text: bool
    ) -> Evaluation:
        """Return the evaluation of a cell from its answer or fault."""
        status: Status = "ok"
        if score.fault is not None and score.error_type != CONSTRAINT:
            status = "timeout" if score.error_type in TIMEOUTS else "error"
        answered: dict[str, Any] = {"provider": self.call.intent.provider}
        if reply is not None:
            answered = fields_of(reply, "latency_ms", "first_token_ms", "usage", "dropped")
            answered |= fields_of(reply, "recording_url", "model", "provider")
        # A billed failure has a price; a free one says nothing about the price.
        price = (record.cost_usd or None) if reply is None else reply.cost_usd
        return self._evaluation(
            status=status,
            **fields_of(score, "fault", "error_type", "error", "reward", "metrics"),
            **fields_of(record, "cached", "attempt", "started_us", "ended_us"),
            **answered,
            cost_usd=0.0 if record.cached else price,
            price_usd=price,
            request_text=self.call.request_text if keep_text else None,
            response_text=canonical_json(reply.value) if reply and keep_text else None,
            thinking_text=reply.thinking if reply and keep_text else None,
        )

    def skipped(self, error_type: str, reason: str) -> Evaluation:
        """Return the evaluation of a planned cell without a call."""
        return self._evaluation(
            status="skipped",
            error_type=error_type,
            error=reason,
            provider=self.call.intent.provider,
            attempt=0,
        )

    def _evaluation(self, **more: Any) -> Evaluation:
        intent = self.call.intent
        return Evaluation(
            eval_id=intent.eval_id or "",
            cell=self.cell,
            generation=self.job.generation,
            call_key=intent.call_key,
            **more,
        )


def unrequested(
    job: Job, cell: Cell, eval_id: str, fault: CandidateFault, redact: Redact, *, provider: str
) -> Evaluation:
    """Return the evaluation of a cell whose parameters form no valid request."""
    return Evaluation(
        eval_id=eval_id,
        cell=cell,
        generation=job.generation,
        status="error",
        fault="candidate",
        error_type=fault.error_type,
        error=error_text(str(fault), fault.details, redact),
        reward=0.0,
        provider=provider,
        attempt=0,
    )


NOTHING = WorstCase(usd=0.0, tokens=0)
"""Worst case of a composed call itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Target and metrics of a session."""

    target: Target
    timeout_s: float
    """Maximum seconds of one call."""
    credential: str | None = None
    """Environment variable of the target's key, since rate limits apply per key."""
    metrics: Sequence[Metric | PaidMetric]
    """Metrics of the answers; closed with the session."""
    rewards: RewardModel
    cases: Mapping[str, Case]

    def call(self, params: Params, case: Case, *, purpose: str = TARGET_LANE) -> PaidCall:
        """Return the call of the target with these parameters.

        Raises:
            CandidateFault: they form no valid request.
        """
        target = self.target
        call = PaidCall.of_target(
            target, params, case, purpose=purpose, **fields_of(self, "credential", "timeout_s")
        )
        if not isinstance(target, ComposedTarget):
            return call
        compose = partial(target.compose, params, case)
        return replace(call, worst=NOTHING, timeout_s=target.longest_s, compose=compose)


@dataclass(slots=True, eq=False, kw_only=True)
class Dispatcher:
    """Turns cells into evaluations. All methods run in the loop's thread."""

    loop: asyncio.AbstractEventLoop
    workload: Workload
    scorer: Scorer
    calls: Calls
    context: RunContext
    _cells: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _jobs: set[Job] = field(default_factory=set, init=False)
    _to_flush: set[Job] = field(default_factory=set, init=False)
    _error: BaseException | None = field(default=None, init=False)

    def add(self, job: Job, cells: list[PendingCell]) -> None:
        """Queue the cells of a job after all others."""
        if self._error is not None:
            job.results.put(self._error)
            return
        self._jobs.add(job)
        for pending in cells:
            if not self.context.keep_text:
                pending.call.keep = partial(self._without_text, pending)
            future = self._make(pending.call, pending.cell)
            future.add_done_callback(partial(self._measure, pending))

    def fail(self, error: BaseException) -> None:
        """End all jobs with an error that is not a cell's fault."""
        if self._error is None:
            self._error = error
        for job in self._jobs:
            job.results.put(self._error)
        self._jobs.clear()
        self.calls.stop(0.0)

    async def drain(self, most_s: float) -> None:
        """Wait, after a stop, for calls in flight and their measurements, at most ``most_s``."""
        await self.calls.drain()
        await asyncio.sleep(0)  # starts the measurement of ended calls
        if self._cells:
            await asyncio.wait(self._cells, timeout=most_s)

    async def aclose(self) -> None:
        """Stop, abandon calls in flight and measurements, and fail the waiting jobs."""
        await self.calls.aclose()
        for cell in self._cells:
            cell.cancel()
        if self._cells:
            await asyncio.wait(self._cells)
        await asyncio.sleep(0)  # runs their callbacks
        for job in self._jobs:
            job.results.put(RuntimeError("the session was closed before all cells were measured"))
        self._jobs.clear()

    async def make(
        self, paid: PaidCall, cell: Cell, *, lane: str, eval_id: str, generation: int | None
    ) -> CallOutcome:
        """Make a call and return its outcome; see ``RunContext.pending``."""
        call = self.context.pending(paid, cell, lane=lane, eval_id=eval_id, generation=generation)
        return await self._make(call, cell)

    def _make(self, call: PendingCall, cell: Cell) -> "asyncio.Future[CallOutcome]":
        """Queue a call; a composed one gets an asker for its own calls."""
        if call.paid.compose is not None:
            asker = CellAsker(self, cell, AGENT_LANE, call.intent)
            call.send = partial(call.paid.compose, asker)
        return self.calls.make(call)

    async def ask_standalone(
        self, call: PaidCall, label: str, generation: int
    ) -> tuple[Reply, int]:
        """Make a call outside any evaluation, e.g. for a hypothesis; see ``Asker.ask``.

        It passes no limiter, so that an endpoint that fails for hypotheses stops no run. Its lane
        and its endpoint's calls per second limit it, and it waits for its own retries.

        Args:
            call: the call.
            label: purpose, part of the call's key; its hash replaces an evaluation's id.
            generation: generation of the ledger.

        Returns:
            The reply, and the time at which it was durable, in microseconds since the epoch.
        """
        eval_id = sha256_hex(canonical_json([self.context.run_id, generation, label]))[:24]
        cell = Cell(candidate_id="", case_id=label)
        outcome = await self.make(
            call, cell, lane=THOUGHT_LANE, eval_id=eval_id, generation=generation
        )
        reply = outcome.answer()
        assert outcome.record is not None  # noqa: S101 - an answer has a record
        return reply, outcome.record.ended_us or 0

    # -- one cell

    def _measure(self, pending: PendingCell, future: "asyncio.Future[CallOutcome]") -> None:
        """Measure the answer of an ended call."""
        if future.cancelled():
            return
        task = self.loop.create_task(self._conclude(pending, future.result()))
        self._cells.add(task)
        task.add_done_callback(self._concluded)

    def _concluded(self, task: "asyncio.Task[None]") -> None:
        self._cells.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    async def _conclude(self, pending: PendingCell, outcome: CallOutcome) -> None:
        if outcome.unsent_reason is not None:
            self._end(pending, pending.skipped(*outcome.unsent_reason))
            return
        assert outcome.record is not None  # noqa: S101 - a sent call has a record
        reply: Reply | None = None
        try:
            reply = outcome.answer()
            score = score_of(outcome.stored) or await self._score(pending, reply)
        except EvaluationFault as fault:
            score = self.scorer.score_of_fault(fault)
        self._end(
            pending,
            pending.evaluation(reply, score, outcome.record, keep_text=self.context.keep_text),
        )

    async def _score(self, pending: PendingCell, reply: Reply) -> CellScore:
        asker = CellAsker(self, pending.cell, JUDGE_LANE, pending.call.intent)
        return await self.scorer.score(reply, pending.case, pending.params, asker)

    async def _without_text(self, pending: PendingCell, reply: Reply) -> Json:
        return scored_outcome(reply, await self._score(pending, reply))

    def _end(self, pending: PendingCell, evaluation: Evaluation) -> None:
        job = pending.job
        if job.deliver(pending.index, evaluation):
            if not self._to_flush:
                self.loop.call_soon(self._flush)
            self._to_flush.add(job)
        if job.n_left == 0:
            self._jobs.discard(job)

    def _flush(self) -> None:
        """Wake each waiting thread once for all cells that ended in this iteration of the loop."""
        for job in self._to_flush:
            job.flush()
        self._to_flush.clear()


@dataclass(frozen=True, slots=True)
class CellAsker:
    """``Asker`` of one cell."""

    dispatcher: Dispatcher
    cell: Cell
    lane: str
    """Lane of its calls."""
    payer: CallIntent
    """Intent of the cell's call: its evaluation pays, in the ledger of its generation."""

    async def ask(self, call: PaidCall) -> Reply:
        """Make a paid call; see ``Asker``."""
        return await self._answer(call, self.cell, self.lane)

    async def answer_of(self, params: Params, case: Case) -> Reply:
        """Call the target with other parameters; see ``Asker``."""
        call = self.dispatcher.workload.call(params, case, purpose="champion")
        return await self._answer(call, Cell(candidate_id="", case_id=case.case_id), TARGET_LANE)

    async def _answer(self, call: PaidCall, cell: Cell, lane: str) -> Reply:
        eval_id, generation = self.payer.eval_id or "", self.payer.generation
        outcome = await self.dispatcher.make(
            call, cell, lane=lane, eval_id=eval_id, generation=generation
        )
        return outcome.answer()
