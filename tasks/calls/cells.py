"""One cell on its way through a session: what is asked, and the evaluation that comes of it."""

from dataclasses import dataclass, field
from queue import SimpleQueue

from convergence_core.errors import CandidateFault
from convergence_core.ports import CallIntent, WorstCase
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
from tasks.calls.outcomes import Record, Redact
from tasks.calls.scorer import CONSTRAINT, CellScore, error_text

TIMEOUTS = frozenset({"timeout", "connect_timeout", "first_byte_timeout"})
"""Error types that make an evaluation's status ``timeout``."""


@dataclass(slots=True, eq=False)
class Job:
    """One call of ``evaluate``: where its evaluations are handed over, by index of the cell."""

    assignment: Assignment
    generation: int | None
    tells_each: bool
    """Whether the waiting thread wants each evaluation as it ends, or all at once."""
    n_left: int
    results: "SimpleQueue[list[tuple[int, Evaluation]] | BaseException]" = field(
        default_factory=SimpleQueue
    )
    _held: list[tuple[int, Evaluation]] = field(default_factory=list)

    def deliver(self, index: int, evaluation: Evaluation) -> bool:
        """Take one evaluation; runs in the session's loop. Return whether it is worth a flush."""
        self._held.append((index, evaluation))
        self.n_left -= 1
        return self.tells_each or self.n_left == 0

    def flush(self) -> None:
        """Hand over what was delivered since the last flush, in one go."""
        if self._held:
            self.results.put(self._held)
            self._held = []


@dataclass(slots=True, eq=False)
class PendingCell:
    """A cell that has no evaluation yet."""

    job: Job
    index: int
    cell: Cell
    case: Case
    eval_id: str
    request_text: str
    """The redacted canonical request."""
    intent: CallIntent
    worst: WorstCase
    endpoint: str | None
    """Whose rate limits the call obeys; ``None``: it leaves no process."""

    @property
    def params(self) -> Params:
        """The candidate's parameters."""
        return self.job.assignment.candidate.params


# -- evaluations


def answered(
    pending: PendingCell,
    reply: Reply | None,
    verdict: CellScore,
    record: Record,
    *,
    keep_text: bool,
) -> Evaluation:
    """Return the evaluation of a cell whose call ended, with an answer or a fault."""
    status: Status = "ok"
    if verdict.fault is not None and verdict.error_type != CONSTRAINT:
        status = "timeout" if verdict.error_type in TIMEOUTS else "error"
    response = None if reply is None or not keep_text else canonical_json(reply.value)
    return Evaluation(
        eval_id=pending.eval_id,
        cell=pending.cell,
        generation=pending.job.generation,
        status=status,
        fault=verdict.fault,
        error_type=verdict.error_type,
        error=verdict.error,
        reward=verdict.reward,
        metrics=verdict.metrics,
        latency_ms=None if reply is None else reply.latency_ms,
        first_token_ms=None if reply is None else reply.first_token_ms,
        cost_usd=_paid(reply, record),
        usage=NO_USAGE if reply is None else reply.usage,
        dropped=() if reply is None else reply.dropped,
        model=None if reply is None else reply.model,
        provider=pending.intent.provider if reply is None else reply.provider,
        call_key=pending.intent.call_key,
        cached=record.cached,
        attempt=record.attempt,
        started_us=record.started_us,
        ended_us=record.ended_us,
        request_text=pending.request_text if keep_text else None,
        response_text=response,
    )


def _paid(reply: Reply | None, record: Record) -> float | None:
    if record.cached:
        return 0.0
    return None if reply is None else reply.cost_usd


def unasked(
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


def skipped(pending: PendingCell, error_type: str, why: str) -> Evaluation:
    """Return the evaluation of a cell that was planned and not asked."""
    return Evaluation(
        eval_id=pending.eval_id,
        cell=pending.cell,
        generation=pending.job.generation,
        status="skipped",
        error_type=error_type,
        error=why,
        provider=pending.intent.provider,
        call_key=pending.intent.call_key,
        attempt=0,
    )
