"""Rules of the journal: claims of calls, and which answer is the call's.

An evaluation that was given an answer once gets the same one for ever, also when the answer of the
call has been replaced since: so a resumed run reads what it read before, and pays for nothing twice.
Any other evaluation gets the call's answer if it is young enough.

The first answer wins until an evaluation finds it too old. A later answer of an attempt given up for
lost is paid all the same: it stays with its attempt, for the evaluation that paid.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from convergence_core.ports import CallIntent, Claim, Settlement, StoredAnswer


class StoredAttempt(NamedTuple):
    """An attempt at a call, as it is stored."""

    row_id: int | None
    """Its row in SQLite."""
    state: str
    error_type: str | None
    begun: Mapping[str, Any]
    """Row of the columns that it keeps from its beginning to its end."""

    @property
    def run_id(self) -> str:
        """The run that began it."""
        return str(self.begun["run_id"])

    @property
    def is_open(self) -> bool:
        """Whether its end counts: not seen yet, or given up for lost and known now."""
        return self.state == "started" or (self.state, self.error_type) == ("failed", "lost")


@dataclass(slots=True, kw_only=True)
class Call:
    """A call of a batch, as it will be when the batch is committed."""

    key: str
    state: str = "new"
    owner: str = ""
    lease_us: int = 0
    latest: int = 0
    """Number of its latest attempt."""
    answer: int | None = None
    """Number of the attempt whose answer is the call's; it stays while a newer one is asked for."""
    attempts: dict[int, StoredAttempt] = field(default_factory=dict)
    """Number → attempt, of those that are settled."""
    answers: dict[int, StoredAnswer] = field(default_factory=dict)
    """Number of an attempt → its answer."""
    given: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """(run, evaluation, purpose) → attempt whose answer it was given by a hit."""


class CallWriter(Protocol):
    """Changes of a batch, as a database takes them."""

    def lose(self, call: Call) -> None:
        """Give the latest attempt up for lost."""

    def start(self, call: Call, intent: CallIntent, now: int) -> None:
        """Record the call's new latest attempt, with its lease."""

    def hit(self, intent: CallIntent, answer: StoredAnswer, now: int) -> None:
        """Record that an answer was used again."""

    def settle(self, settlement: Settlement, call: Call, *, wins: bool) -> None:
        """Record how an attempt ended; its answer becomes the call's if it wins."""

    def fail(self, call: Call) -> None:
        """Record that the call failed."""

    def flush(self) -> None:
        """Send what is not sent yet."""


def claim(call: Call, intent: CallIntent, owner: str, now: int, writer: CallWriter) -> Claim:
    """Decide one claim; the call and the writer hold what follows from it."""
    answer = _usable(call, intent, now, writer)
    if answer is not None:
        return Claim(state="hit", answer=answer)
    if call.state == "started":
        if call.lease_us > now:
            return Claim(state="busy")
        writer.lose(call)
    call.state, call.owner = "started", owner
    call.latest += 1
    call.lease_us = now + int(intent.lease_s * 1e6)
    writer.start(call, intent, now)
    return Claim(state="granted", attempt=call.latest)


def settle(call: Call, settlement: Settlement, writer: CallWriter) -> tuple[str, str] | None:
    """Decide how a call ends as one of its attempts did.

    Returns:
        (run, owner) of the claim that was settled; ``None`` if another took the call over since.

    Raises:
        ValueError: the attempt was never granted.
    """
    number = settlement.attempt
    attempt = call.attempts.get(number)
    if attempt is None:
        raise ValueError(f"attempt {number} of call {call.key} was never granted")
    if attempt.is_open:
        is_done = settlement.state == "done"
        wins = is_done and call.state != "done"
        writer.settle(settlement, call, wins=wins)
        if wins:
            call.state, call.answer = "done", number
        elif not is_done and call.state == "started" and call.latest == number:
            call.state = "failed"
            writer.fail(call)
        call.attempts[number] = attempt._replace(state=settlement.state, error_type=None)
    return (attempt.run_id, call.owner) if number == call.latest else None


def is_paid_by(answer: StoredAnswer, intent: CallIntent) -> bool:
    """Return whether the evaluation that asks paid for the answer itself."""
    return (answer.run_id, answer.eval_id) == (intent.run_id, intent.eval_id)


def asker(intent: CallIntent) -> tuple[str, str, str]:
    """Return what an answer is given to: (run, evaluation, purpose)."""
    return intent.run_id, intent.eval_id or "", intent.purpose


def _usable(call: Call, intent: CallIntent, now: int, writer: CallWriter) -> StoredAnswer | None:
    """Return the answer that the evaluation may have, its hit recorded."""
    if call.answer is None:
        return None
    answer = call.answers[call.answer]
    if is_paid_by(answer, intent):
        return answer
    paid = [number for number, other in call.answers.items() if is_paid_by(other, intent)]
    if paid:
        return call.answers[max(paid)]
    known = call.given.get(asker(intent))
    if known is not None:
        return call.answers[known]
    if intent.fresh_since_us is not None and answer.ended_us < intent.fresh_since_us:
        return None
    call.given[asker(intent)] = call.answer
    writer.hit(intent, answer, now)
    return answer
