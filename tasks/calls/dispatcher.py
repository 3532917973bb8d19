"""Event loop of a session: it calls the target and measures answers."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from typing import Any

from convergence_core.errors import CandidateFault, EvaluationFault
from convergence_core.objective import RewardModel
from convergence_core.ports import Metric, Target, WorstCase
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
_OF_A_REPLY = (
    *("latency_ms", "first_token_ms", "usage", "dropped", "recording_url", "model", "provider"),
)
"""Its fields that an evaluation has too."""


@dataclass(slots=True, eq=False)
class Job:
    """One call of ``evaluate``, and the queue that its evaluations leave by."""

    assignment: Assignment
    generation: int | None
    reports_each: bool
    """Whether the waiting thread wants each evaluation as it ends, or all at once."""
    n_left: int
    results: "SimpleQueue[list[tuple[int, Evaluation]] | BaseException]" = field(
        default_factory=SimpleQueue
    )
    """Evaluations by index of their cell, or the error that ends the job."""
    _delivered: list[tuple[int, Evaluation]] = field(default_factory=list)

    def deliver(self, index: int, evaluation: Evaluation) -> bool:
        """Take one evaluation; runs in the session's loop. Return whether it is worth a flush."""
        self._delivered.append((index, evaluation))
        self.n_left -= 1
        return self.reports_each or self.n_left == 0

    def flush(self) -> None:
        """Hand over what was delivered since the last flush."""
        if self._delivered:
            self.results.put(self._delivered)
            self._delivered = []


@dataclass(slots=True, eq=False)
class PendingCell:
    """A cell that has no evaluation yet."""

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
        """Return the evaluation of a cell whose call ended, with an answer or a fault."""
        status: Status = "ok"
        if score.fault is not None and score.error_type != CONSTRAINT:
            status = "timeout" if score.error_type in TIMEOUTS else "error"
        answered: dict[str, Any] = {"provider": self.call.intent.provider}
        if reply is not None:
            answered = fields_of(reply, *_OF_A_REPLY)
        # A failure that was billed has a price; one that cost nothing says nothing of a price.
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
        """Return the evaluation of a planned cell that no call was made for."""
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
    """Return the evaluation of a cell whose parameters make no request."""
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
"""What a composed call costs itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a session evaluates, and how answers are measured."""

    target: Target
    timeout_s: float
    """How long the target lets one call continue."""
    credential: str | None = None
    """Variable with the target's key; rate limits are counted per key."""
    metrics: Sequence[Metric | PaidMetric]
    """How answers are measured; closed with the session."""
    rewards: RewardModel
    cases: Mapping[str, Case]

    def call(self, params: Params, case: Case, *, purpose: str = TARGET_LANE) -> PaidCall:
        """Return the call of the target with these parameters.

        Raises:
            CandidateFault: they make no request.
        """
        target = self.target
        call = PaidCall.of_target(
            target,
            params,
            case,
            purpose=purpose,
            credential=self.credential,
            timeout_s=self.timeout_s,
        )
        if not isinstance(target, ComposedTarget):
            return call
        compose = partial(target.compose, params, case)
        return replace(call, worst=NOTHING, timeout_s=target.longest_s, compose=compose)


@dataclass(slots=True, eq=False, kw_only=True)
class Dispatcher:
    """Turns cells into evaluations. All methods must be called in the loop's thread."""

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
        """Queue the cells of a job behind all others."""
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
        """End all jobs with an error that is no fault of a cell."""
        if self._error is None:
            self._error = error
        for job in self._jobs:
            job.results.put(self._error)
        self._jobs.clear()
        self.calls.stop(0.0)

    async def drain(self, most_s: float) -> None:
        """Wait, after a stop, until what was in flight has ended, and until it is measured, at most ``most_s``."""
        await self.calls.drain()
        await asyncio.sleep(0)  # what has ended begins to be measured
        if self._cells:
            await asyncio.wait(self._cells, timeout=most_s)

    async def aclose(self) -> None:
        """Stop, give up calls in flight and what is measured, and let no one wait for it."""
        await self.calls.aclose()
        for cell in self._cells:
            cell.cancel()
        if self._cells:
            await asyncio.wait(self._cells)
        await asyncio.sleep(0)  # their callbacks run
        for job in self._jobs:
            job.results.put(RuntimeError("the session was closed before all cells were measured"))
        self._jobs.clear()

    async def make(
        self, paid: PaidCall, cell: Cell, *, lane: str, eval_id: str, generation: int | None
    ) -> CallOutcome:
        """Make a call and return how it ended; see ``RunContext.pending``."""
        call = self.context.pending(paid, cell, lane=lane, eval_id=eval_id, generation=generation)
        return await self._make(call, cell)

    def _make(self, call: PendingCall, cell: Cell) -> "asyncio.Future[CallOutcome]":
        """Queue a call; one that is composed gets what its own calls are made by."""
        if call.paid.compose is not None:
            intent = call.intent
            asker = CellAsker(
                self, cell, AGENT_LANE, eval_id=intent.eval_id or "", generation=intent.generation
            )
            call.send = partial(call.paid.compose, asker)
        return self.calls.make(call)

    async def ask_standalone(
        self, call: PaidCall, label: str, generation: int
    ) -> tuple[Reply, int]:
        """Make a call for no evaluation, e.g. a thought's; see ``Asker.ask``.

        It passes no limiter: an endpoint that is down for thoughts stops no run. Its lane and its
        endpoint's calls per second limit it, and its retries wait by themselves.

        Args:
            call: to be made.
            label: what it is for; part of its key, and a hash of it stands in for an evaluation's id.
            generation: whose ledger it stands in.

        Returns:
            the reply, and when it was durable, in microseconds since the epoch.
        """
        eval_id = sha256_hex(canonical_json([self.context.run_id, generation, label]))[:24]
        cell = Cell(candidate_id="", case_id=label)
        outcome = await self.make(
            call, cell, lane=THOUGHT_LANE, eval_id=eval_id, generation=generation
        )
        reply = outcome.answer()
        assert outcome.record is not None  # noqa: S101 - it was asked, or found
        return reply, outcome.record.ended_us or 0

    # -- one cell

    def _measure(self, pending: PendingCell, future: "asyncio.Future[CallOutcome]") -> None:
        """Measure the answer of a call; runs as soon as it has ended."""
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
        assert outcome.record is not None  # noqa: S101 - it was asked, or found
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
        intent = pending.call.intent
        asker = CellAsker(
            self,
            pending.cell,
            JUDGE_LANE,
            eval_id=intent.eval_id or "",
            generation=pending.job.generation,
        )
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
        """Wake each waiting thread once for all cells that ended in this round."""
        for job in self._to_flush:
            job.flush()
        self._to_flush.clear()


@dataclass(frozen=True, slots=True)
class CellAsker:
    """The ``Asker`` of one cell."""

    dispatcher: Dispatcher
    cell: Cell
    lane: str
    """Where what it asks waits."""
    _: KW_ONLY
    eval_id: str
    """Of the evaluation that pays."""
    generation: int | None
    """Whose ledger the calls stand in."""

    async def ask(self, call: PaidCall) -> Reply:
        """Make a paid call; see ``Asker``."""
        return await self._answer(call, self.cell, self.lane)

    async def answer_of(self, params: Params, case: Case) -> Reply:
        """Ask the target with other parameters; see ``Asker``."""
        call = self.dispatcher.workload.call(params, case, purpose="champion")
        return await self._answer(call, Cell(candidate_id="", case_id=case.case_id), TARGET_LANE)

    async def _answer(self, call: PaidCall, cell: Cell, lane: str) -> Reply:
        outcome = await self.dispatcher.make(
            call, cell, lane=lane, eval_id=self.eval_id, generation=self.generation
        )
        return outcome.answer()
