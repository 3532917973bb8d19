"""Outcomes of calls: their journal entries and their costs.

Reading an entry returns exactly what was written.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

from convergence_core.budget.limits import Budget, Reservation
from convergence_core.errors import (
    Billed,
    CandidateFault,
    EvaluationFault,
    EvaluatorFault,
    InfrastructureFault,
)
from convergence_core.ports import CallIntent, Settlement, StoredAnswer
from convergence_core.records import (
    NO_USAGE,
    Json,
    Reply,
    Usage,
    canonical_json,
    fields_of,
    sha256_hex,
)
from tasks.calls.scorer import CellScore
from tasks.json_values import mapping
from tasks.secrets.redaction import Redactor, redact_json, shortened

Redact: TypeAlias = Callable[[str], str]

MAX_MESSAGE_CHARS = 2000
MAX_DETAILS_CHARS = 4000
MASKED = "redacted"
"""Error type of an answer that redaction changes, which therefore has no score."""

_FREE = Billed(usage=NO_USAGE, cost_usd=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """Account of the call behind an evaluation, from the journal or as written to it."""

    started_us: int | None = None
    ended_us: int | None = None
    attempt: int = 1
    cached: bool = False
    """Whether another evaluation paid for the answer."""
    cost_usd: float | None = None
    """Cost billed by the provider in US dollars, also if another evaluation paid; ``None`` if unknown."""

    @classmethod
    def of(
        cls, ending: Reply | EvaluationFault, attempt: int, started_us: int, now_us: int
    ) -> Self:
        """Return the account of an attempt that has just ended."""
        billed = billed_of(ending)
        cost_usd = None if billed is None else billed.cost_usd
        ended_us = max(now_us, started_us)  # clocks may be set back
        return cls(started_us=started_us, ended_us=ended_us, attempt=attempt, cost_usd=cost_usd)


# -- JSON forms


def reply_outcome(reply: Reply) -> dict[str, Json]:
    """Return the JSON form of a reply."""
    rare = fields_of(reply, "finish_reason", "recording_url", "thinking")
    return {
        "reply": {
            **fields_of(reply, "value", "latency_ms", "cost_usd", "price_version", "model"),
            **fields_of(reply, "provider", "first_token_ms"),
            "usage": reply.usage.to_json(),
            "dropped": list(reply.dropped),
            "extra": dict(reply.extra),
            **{name: text for name, text in rare.items() if text},
        }
    }


def reply_of(outcome: Json) -> Reply | None:
    """Return the reply in an outcome; ``None`` for a fault."""
    reply = mapping(outcome).get("reply")
    if not isinstance(reply, dict):
        return None
    dropped = reply.get("dropped")
    return Reply(
        **{  # type: ignore[arg-type]  # as ``reply_outcome`` wrote it
            **reply,
            "usage": Usage.from_json(reply.get("usage")),
            "dropped": tuple(map(str, dropped)) if isinstance(dropped, list) else (),
        }
    )


def fault_outcome(fault: EvaluationFault, redact: Redact, *, keep_text: bool) -> Json:
    """Return the redacted JSON form of a fault, without details if ``keep_text`` is off."""
    details = shortened(fault.details, MAX_DETAILS_CHARS, redact) if keep_text else ""
    return {
        "fault": fault.fault,
        "error_type": redact(fault.error_type),
        "message": shortened(str(fault), MAX_MESSAGE_CHARS, redact),
        "details": details,
    }


def fault_of(outcome: Json) -> CandidateFault:
    """Return the candidate's fault in an outcome."""
    assert isinstance(outcome, dict)  # noqa: S101 - only ``fault_outcome`` writes it
    message, kind, details = (str(outcome[key]) for key in ("message", "error_type", "details"))
    return CandidateFault(message, error_type=kind, details=details)


def scored_outcome(reply: Reply, score: CellScore) -> Json:
    """Return the JSON form of a reply without its content: hashes and score."""
    thinking = None if reply.thinking is None else f"sha256 {sha256_hex(reply.thinking)}"
    value: Json = {"sha256": sha256_hex(canonical_json(reply.value))}
    kept = replace(reply, value=value, thinking=thinking)
    return {**reply_outcome(kept), "verdict": score.to_json()}


def score_of(outcome: Json) -> CellScore | None:
    """Return the score written by ``scored_outcome``; ``None`` for other outcomes."""
    if not isinstance(outcome, dict) or "verdict" not in outcome:
        return None
    return CellScore.from_json(outcome["verdict"])


def redacted(reply: Reply, redact: Redact) -> Reply:
    """Return a reply without secrets."""
    written = fields_of(reply, "value", "model", "finish_reason", "extra", "recording_url")
    written |= {"dropped": [*reply.dropped], "thinking": reply.thinking}
    clean = {name: redact_json(value, redact) for name, value in written.items()}
    if clean == written:
        return reply
    return replace(reply, **{**clean, "dropped": tuple(clean["dropped"])})  # type: ignore[arg-type]  # each of its own type


def masked_fault(value: Json, redact: Redact, billed: Billed | None) -> EvaluatorFault:
    """Return the fault of an answer that redaction changes, which would falsify its score."""
    text = canonical_json(value)
    names = redact.variables(text) if isinstance(redact, Redactor) else []
    what, fix = "text that looks like a key", "Ask for answers without keys."
    if names:
        what = f"the value of the environment variable {' and of '.join(names)}"
        fix = "Give it a value that no answer holds, or write a header that is no secret without `${…}`."
    return EvaluatorFault(
        f"the answer holds {what}, so it is masked and has no score. {fix}",
        error_type=MASKED,
        details=redact(text),
        billed=billed,
    )


# -- the ledger and the budget


def billed_of(ending: Reply | EvaluationFault) -> Billed | None:
    """Return the cost of an attempt; ``None`` if unknown, so that its worst case counts."""
    if isinstance(ending, Reply):
        return Billed(**fields_of(ending, "usage", "cost_usd", "price_version", "model"))
    if ending.billed is None and isinstance(ending, InfrastructureFault) and ending.may_be_billed:
        return None
    return ending.billed or _FREE


def settlement_of(
    intent: CallIntent, record: AttemptRecord, stored: Json, ending: Reply | EvaluationFault
) -> Settlement:
    """Return the journal's row of an ended attempt.

    Args:
        intent: intent of the call.
        record: account of the attempt.
        stored: stored form of the ending.
        ending: the answer or the fault.
    """
    billed = billed_of(ending)
    known = billed or Billed(usage=NO_USAGE, cost_usd=None)
    return Settlement(
        call_key=intent.call_key,
        **fields_of(record, "attempt", "started_us", "ended_us"),
        state="failed" if isinstance(ending, (InfrastructureFault, EvaluatorFault)) else "done",
        outcome=stored,
        maybe_usd=(intent.max_usd or 0.0) if billed is None else 0.0,
        maybe_tokens=(intent.max_tokens or 0) if billed is None else 0,
        **fields_of(known, "cost_usd", "usage", "price_version", "model"),
    )


def paid_by_parts(ending: Reply | EvaluationFault) -> Reply | EvaluationFault:
    """Return a composed call's ending for the ledger, without the cost of its inner calls."""
    if isinstance(ending, Reply):
        return replace(ending, cost_usd=0.0, price_version=None, usage=NO_USAGE)
    return ending


def settle_reservation(
    budget: Budget, reservation: Reservation, ending: Reply | EvaluationFault
) -> None:
    """Settle a reservation with an attempt's cost, or its worst case if unknown."""
    billed = billed_of(ending)
    if billed is _FREE:
        budget.settle(reservation, usd=0.0, tokens=0)
    elif billed is None:
        budget.settle(reservation, usd=None, tokens=None)
    else:
        usage = billed.usage
        # A partial report would count too little against ``max_tokens``.
        is_whole = usage.prompt_tokens is not None and usage.completion_tokens is not None
        tokens = usage.total if is_whole else None
        budget.settle(reservation, usd=billed.cost_usd, tokens=tokens)


def record_of(answer: StoredAnswer, intent: CallIntent) -> AttemptRecord:
    """Return the account of a stored answer for the evaluation of an intent."""
    return AttemptRecord(
        **fields_of(answer, "started_us", "ended_us", "attempt", "cost_usd"),
        cached=not answer.is_paid_by(intent),
    )


def is_usable(answer: StoredAnswer, intent: CallIntent) -> bool:
    """Return whether a stored answer is recent enough for this call, or paid by it."""
    since_us = intent.fresh_since_us
    return since_us is None or answer.ended_us >= since_us or answer.is_paid_by(intent)
