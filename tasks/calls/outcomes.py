"""What the journal keeps of a call, and what is read back from it: equal, to the letter."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from convergence_core.errors import CandidateFault, EvaluationFault
from convergence_core.ports import StoredAnswer
from convergence_core.records import Json, Reply, Usage, canonical_json, sha256_hex
from tasks.calls.scorer import CellScore
from tasks.secrets.redaction import redact_json, shortened

Redact: TypeAlias = Callable[[str], str]

MAX_MESSAGE_CHARS = 2000
MAX_DETAILS_CHARS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The account of the call behind an evaluation, from the journal or as written to it."""

    started_us: int | None = None
    ended_us: int | None = None
    attempt: int = 1
    cached: bool = False
    """Whether another evaluation paid for the answer."""


def reply_outcome(reply: Reply) -> dict[str, Json]:
    """Return the JSON form of a reply."""
    return {
        "reply": {
            "value": reply.value,
            "latency_ms": reply.latency_ms,
            "cost_usd": reply.cost_usd,
            "price_version": reply.price_version,
            "usage": reply.usage.to_json(),
            "model": reply.model,
            "provider": reply.provider,
            "first_token_ms": reply.first_token_ms,
            "dropped": list(reply.dropped),
            "extra": dict(reply.extra),
            **({"finish_reason": reply.finish_reason} if reply.finish_reason else {}),
        }
    }


def fault_outcome(fault: EvaluationFault, redact: Redact, *, keep_text: bool) -> Json:
    """Return the JSON form of a fault, redacted; without its details where no text is kept."""
    details = shortened(fault.details, MAX_DETAILS_CHARS, redact) if keep_text else ""
    return {
        "fault": fault.fault,
        "error_type": redact(fault.error_type),
        "message": shortened(str(fault), MAX_MESSAGE_CHARS, redact),
        "details": details,
    }


def scored_outcome(reply: Reply, verdict: CellScore) -> Json:
    """Return the JSON form of a reply whose text is not kept: its hash, and its verdict."""
    value_sha256 = sha256_hex(canonical_json(reply.value))
    kept = replace(reply, value={"sha256": value_sha256})
    return {**reply_outcome(kept), "verdict": verdict.to_json()}


def verdict_of(outcome: Json) -> CellScore | None:
    """Return the verdict that ``scored_outcome`` wrote, ``None`` for other outcomes."""
    if not isinstance(outcome, dict) or "verdict" not in outcome:
        return None
    return CellScore.from_json(outcome["verdict"])


def reply_of(outcome: Json) -> Reply | None:
    """Return the reply that an outcome holds, ``None`` for a fault."""
    found = outcome.get("reply") if isinstance(outcome, dict) else None
    if not isinstance(found, dict):
        return None
    rest = {name: value for name, value in found.items() if name not in ("usage", "dropped")}
    dropped = found.get("dropped")
    return Reply(
        **rest,  # type: ignore[arg-type]  # as ``reply_outcome`` wrote it
        usage=Usage.from_json(found.get("usage")),
        dropped=tuple(str(item) for item in dropped) if isinstance(dropped, list) else (),
    )


_FAULT_KEYS = ("message", "error_type", "details")


def fault_of(outcome: Json) -> CandidateFault:
    """Return the candidate's fault that an outcome holds."""
    assert isinstance(outcome, dict)  # noqa: S101 - only ``fault_outcome`` writes it
    message, error_type, details = (str(outcome[key]) for key in _FAULT_KEYS)
    return CandidateFault(message, error_type=error_type, details=details)


_SAID = ("value", "model", "finish_reason", "extra")
"""What of a reply are words of those who answered."""


def redacted(reply: Reply, redact: Redact) -> Reply:
    """Return a reply without secrets: the one that is stored is the one that is scored."""
    said = {name: getattr(reply, name) for name in _SAID}
    clean = {name: redact_json(value, redact) for name, value in said.items()}
    dropped = tuple(redact(text) for text in reply.dropped)
    if clean == said and dropped == reply.dropped:
        return reply
    return replace(reply, **clean, dropped=dropped)  # type: ignore[arg-type]  # each of its own type


def record_of(answer: StoredAnswer, run_id: str, eval_id: str | None) -> Record:
    """Return the account of a stored answer, as seen by one evaluation."""
    return Record(
        started_us=answer.started_us,
        ended_us=answer.ended_us,
        attempt=answer.attempt,
        cached=(answer.run_id, answer.eval_id) != (run_id, eval_id),
    )
