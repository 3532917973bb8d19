"""One cell on its way through a session: its keys before the call, its evaluation after it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import TypeAlias

from convergence_core.errors import (
    CandidateFault,
    EvaluationFault,
    InfrastructureFault,
)
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
    sha256_hex,
)
from convergence_core.store.protocols import Answer, CallIntent
from tasks.redaction import redact_json
from tasks.scoring import CONSTRAINT, Verdict, error_text
from tasks.values import shorten

Redact: TypeAlias = Callable[[str], str]
TIMEOUTS = frozenset({"timeout", "connect_timeout", "read_timeout"})
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
    call_key: str
    intent: CallIntent
    n_tries: int = 0
    """Attempts made by this session."""
    n_looks: int = 0
    """How often another process was found at the same call."""
    fault: InfrastructureFault | None = None
    """Why the last try failed."""
    record: "Record | None" = None
    """The account of the last try that failed."""
    looks_only: bool = False
    """The budget is spent: an answer may be read, no call may be made."""

    @property
    def params(self) -> Params:
        """The candidate's parameters."""
        return self.job.assignment.candidate.params


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The account of the call behind an evaluation, from the journal or as written to it."""

    started_us: int | None = None
    ended_us: int | None = None
    attempt: int = 1
    cached: bool = False
    """Whether another evaluation paid for the answer."""


def call_key_of(*, provider: str, request: Json, cell: Cell, run_id: str) -> str:
    """Return the journal's key of a call: a hash of all that shapes the answer, and the run.

    Fresh cells have keys of their own: an answer that the search has seen is no fresh one.
    """
    return sha256_hex(
        canonical_json(
            {
                "provider": provider,
                "request": request,
                "case": cell.case_id,
                "repeat": cell.repeat,
                "epoch": run_id,
                "purpose": "fresh" if cell.role == "fresh" else "evaluation",
            }
        )
    )


# -- outcomes: what the journal stores of a call


def reply_outcome(reply: Reply) -> dict[str, Json]:
    """Return the JSON form of a reply."""
    return {
        "reply": {
            "value": reply.value,
            "latency_ms": reply.latency_ms,
            "cost_usd": reply.cost_usd,
            "tokens_in": reply.tokens_in,
            "tokens_out": reply.tokens_out,
            "model": reply.model,
            "provider": reply.provider,
            "extra": dict(reply.extra),
        }
    }


def fault_outcome(fault: EvaluationFault, redact: Redact, *, keep_text: bool) -> Json:
    """Return the JSON form of a fault, redacted; without its details where no text is kept."""
    message = redact(shorten(str(fault), 2000))
    details = redact(shorten(fault.details)) if keep_text else ""
    return {
        "fault": fault.fault,
        "error_type": fault.error_type,
        "message": message,
        "details": details,
    }


def scored_outcome(reply: Reply, verdict: Verdict) -> Json:
    """Return the JSON form of a reply whose text is not kept: its hash, and its verdict."""
    value_sha256 = sha256_hex(canonical_json(reply.value))
    kept = replace(reply, value={"sha256": value_sha256})
    return {**reply_outcome(kept), "verdict": verdict.to_json()}


def verdict_of(outcome: Json) -> Verdict | None:
    """Return the verdict that ``scored_outcome`` wrote, ``None`` for other outcomes."""
    if not isinstance(outcome, dict) or "verdict" not in outcome:
        return None
    return Verdict.from_json(outcome["verdict"])


def reply_of(outcome: Json) -> Reply | None:
    """Return the reply that an outcome holds, ``None`` for a fault."""
    if not isinstance(outcome, dict) or not isinstance(outcome.get("reply"), dict):
        return None
    return Reply(**outcome["reply"])  # type: ignore[arg-type]  # as ``reply_outcome`` wrote it


_FAULT_KEYS = ("message", "error_type", "details")


def fault_of(outcome: Json) -> CandidateFault:
    """Return the candidate's fault that an outcome holds."""
    assert isinstance(outcome, dict)  # noqa: S101 - only ``fault_outcome`` writes it
    message, error_type, details = (str(outcome[key]) for key in _FAULT_KEYS)
    return CandidateFault(message, error_type=error_type, details=details)


def redacted(reply: Reply, redact: Redact) -> Reply:
    """Return a reply without secrets: the one that is stored is the one that is scored."""
    value = redact_json(reply.value, redact)
    model = None if reply.model is None else redact(reply.model)
    if value == reply.value and model == reply.model:
        return reply
    return replace(reply, value=value, model=model)


# -- evaluations


def answered(
    pending: PendingCell,
    reply: Reply | None,
    verdict: Verdict,
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
        cost_usd=_paid(reply, record),
        tokens_in=None if reply is None else reply.tokens_in,
        tokens_out=None if reply is None else reply.tokens_out,
        model=None if reply is None else reply.model,
        provider=pending.intent.provider if reply is None else reply.provider,
        call_key=pending.call_key,
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
        call_key=pending.call_key,
        attempt=0,
    )


def record_of(answer: Answer, eval_id: str) -> Record:
    """Return the account of a stored answer, as seen by one evaluation."""
    return Record(
        started_us=answer.started_us,
        ended_us=answer.ended_us,
        attempt=answer.attempt,
        cached=answer.eval_id is not None and answer.eval_id != eval_id,
    )
