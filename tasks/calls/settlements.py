"""What the end of an attempt means to the journal and to the budget."""

from convergence_core.budget.limits import Budget, Reservation
from convergence_core.errors import EvaluationFault, InfrastructureFault
from convergence_core.ports import CallIntent, Settlement, StoredAnswer
from convergence_core.records import NO_USAGE, Json, Reply, Usage
from tasks.calls.lanes import PendingCall
from tasks.calls.outcomes import Record


def settlement_of_reply(
    call: PendingCall, record: Record, stored: Json, reply: Reply
) -> Settlement:
    """Return what the journal is told of an answer.

    Args:
        call: that was made.
        record: of the attempt.
        stored: what is kept of the answer.
        reply: the answer.
    """
    assert record.started_us is not None and record.ended_us is not None  # noqa: S101, PT018 - a call was made
    return Settlement(
        call_key=call.key,
        attempt=record.attempt,
        state="done",
        outcome=stored,
        started_us=record.started_us,
        ended_us=record.ended_us,
        cost_usd=reply.cost_usd,
        usage=reply.usage,
        price_version=reply.price_version,
        model=reply.model,
    )


def settlement_of_fault(
    call: PendingCall, record: Record, stored: Json, fault: EvaluationFault
) -> Settlement:
    """Return what the journal is told of a fault; what it may have cost counts with it.

    Args:
        call: that was made.
        record: of the attempt.
        stored: what is kept of the fault.
        fault: how the attempt ended.
    """
    assert record.started_us is not None and record.ended_us is not None  # noqa: S101, PT018 - a call was made
    may_be_billed = isinstance(fault, InfrastructureFault) and fault.may_be_billed
    billed = fault.billed
    if billed is not None:
        cost_usd, maybe = billed.cost_usd, False
    elif may_be_billed:
        cost_usd, maybe = None, True
    else:
        cost_usd, maybe = 0.0, False
    return Settlement(
        call_key=call.key,
        attempt=record.attempt,
        state="failed" if isinstance(fault, InfrastructureFault) else "done",
        outcome=stored,
        started_us=record.started_us,
        ended_us=record.ended_us,
        cost_usd=cost_usd,
        maybe_usd=(call.worst.usd or 0.0) if maybe else 0.0,
        maybe_tokens=(call.worst.tokens or 0) if maybe else 0,
        usage=NO_USAGE if billed is None else billed.usage,
        price_version=None if billed is None else billed.price_version,
        model=None if billed is None else billed.model,
    )


def settle_place(budget: Budget, place: Reservation, ending: Reply | EvaluationFault) -> None:
    """Count in the budget what an attempt cost, or its worst case where nobody knows."""
    if isinstance(ending, Reply):
        budget.settle(place, usd=ending.cost_usd, tokens=_tokens(ending.usage))
        return
    billed = ending.billed
    if billed is not None:
        budget.settle(place, usd=billed.cost_usd, tokens=_tokens(billed.usage))
    elif isinstance(ending, InfrastructureFault) and ending.may_be_billed:
        budget.settle(place, usd=None, tokens=None)
    else:
        budget.settle(place, usd=0.0, tokens=0)


def is_usable(answer: StoredAnswer, intent: CallIntent) -> bool:
    """Whether a stored answer is young enough for this call, or its own."""
    since = intent.fresh_since_us
    is_own = (answer.run_id, answer.eval_id) == (intent.run_id, intent.eval_id)
    return since is None or answer.ended_us >= since or is_own


def _tokens(usage: Usage) -> int | None:
    """Return what counts against ``max_tokens``; half a report would count too little."""
    is_whole = usage.prompt_tokens is not None and usage.completion_tokens is not None
    return usage.total if is_whole else None
