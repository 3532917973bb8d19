"""Cells on their way through a session, and the evaluations made of them."""

from dataclasses import dataclass, field
from queue import SimpleQueue

from convergence_core.errors import CandidateFault
from convergence_core.records import (
    NO_USAGE,
    Assignment,
    Case,
    Cell,
    Evaluation,
    Params,
    Reply,
    Status,
    canonical_json,
)
from tasks.calls.outcomes import AttemptRecord, Redact
from tasks.calls.pending_calls import PendingCall
from tasks.calls.scorer import CONSTRAINT, CellScore, error_text

TIMEOUTS = frozenset({"timeout", "connect_timeout", "first_byte_timeout"})
"""Error types that make an evaluation's status ``timeout``."""


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
        cost_usd = None if reply is None else reply.cost_usd
        intent = self.call.intent
        return Evaluation(
            eval_id=intent.eval_id or "",
            cell=self.cell,
            generation=self.job.generation,
            status=status,
            fault=score.fault,
            error_type=score.error_type,
            error=score.error,
            reward=score.reward,
            metrics=score.metrics,
            latency_ms=None if reply is None else reply.latency_ms,
            first_token_ms=None if reply is None else reply.first_token_ms,
            cost_usd=0.0 if record.cached else cost_usd,
            usage=NO_USAGE if reply is None else reply.usage,
            dropped=() if reply is None else reply.dropped,
            recording_url=None if reply is None else reply.recording_url,
            model=None if reply is None else reply.model,
            provider=intent.provider if reply is None else reply.provider,
            call_key=intent.call_key,
            cached=record.cached,
            attempt=record.attempt,
            started_us=record.started_us,
            ended_us=record.ended_us,
            request_text=self.call.request_text if keep_text else None,
            response_text=canonical_json(reply.value) if reply and keep_text else None,
            thinking_text=reply.thinking if reply and keep_text else None,
        )

    def skipped(self, error_type: str, reason: str) -> Evaluation:
        """Return the evaluation of a cell that was planned and not asked."""
        intent = self.call.intent
        return Evaluation(
            eval_id=intent.eval_id or "",
            cell=self.cell,
            generation=self.job.generation,
            status="skipped",
            error_type=error_type,
            error=reason,
            provider=intent.provider,
            call_key=intent.call_key,
            attempt=0,
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
