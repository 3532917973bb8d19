"""Rules of the journal: claims of calls, and which answer is the call's.

An evaluation that was given an answer once gets the same one for ever, also when the answer of the
call has been replaced since: so a resumed run reads what it read before, and pays for nothing twice.
Any other evaluation gets the call's answer if it is young enough.

The first answer wins until an evaluation finds it too old. A later answer of an attempt given up for
lost is paid all the same: it stays with its attempt, for the evaluation that paid.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from convergence_core.ports import CallIntent, Claim, Settlement, StoredAnswer
from convergence_core.records import fields_of
from tasks.store.journal.ledger import CACHE_HIT, begun_values, hit_values, settled_values


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
    answer: int | None = None
    """Number of the attempt whose answer is the call's; it stays while a newer one is asked for."""
    attempts: dict[int, StoredAttempt] = field(default_factory=dict)
    """Number → attempt, of those that are settled."""
    answers: dict[int, StoredAnswer] = field(default_factory=dict)
    """Number of an attempt → its answer."""
    given: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """(run, evaluation, purpose) → attempt whose answer it was given by a hit."""


class CallStatements(NamedTuple):
    """Statements that change calls and attempts in one database; their values are named."""

    lose: str
    start: str
    grant: str
    settle: str
    win: tuple[str, ...]
    """An answer becomes the call's."""
    fail: str
    keeps_answers: bool
    """Whether the answer of a call lies with its attempt."""


class CallWriter:
    """Changes of a batch, in the order in which they are decided."""

    def __init__(
        self, execute: Callable[[str, dict[str, Any]], object], statements: CallStatements
    ) -> None:
        self._execute, self._sql = execute, statements

    def lose(self, call: Call) -> None:
        """Give the latest attempt up for lost."""
        self._execute(self._sql.lose, {"call_key": call.key, "attempt": call.latest})

    def start(self, call: Call, intent: CallIntent, now: int) -> None:
        """Record the call's new latest attempt, with its lease."""
        self._execute(self._sql.start, begun_values(intent, call.latest, now))
        lease = fields_of(call, "owner", "lease_us", "latest")
        more = {"call_key": call.key, "request_sha256": intent.request_sha256}
        self._execute(self._sql.grant, lease | more)

    def hit(self, intent: CallIntent, answer: StoredAnswer, now: int) -> None:
        """Record that an answer was used again."""
        self._execute(CACHE_HIT, hit_values(intent, answer, now))

    def settle(self, settlement: Settlement, call: Call, *, wins: bool) -> None:
        """Record how an attempt ended; its answer becomes the call's if it wins."""
        attempt = call.attempts[settlement.attempt]
        values = settled_values(settlement, attempt.begun)
        place = {"call_key": call.key, "attempt": settlement.attempt, "id": attempt.row_id}
        is_kept = self._sql.keeps_answers or not wins
        kept = values if is_kept else values | {"outcome": None}
        self._execute(self._sql.settle, kept | place)
        if wins:
            for statement in self._sql.win:
                self._execute(statement, values | place)

    def fail(self, call: Call) -> None:
        """Record that the call failed."""
        self._execute(self._sql.fail, {"call_key": call.key})


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


def asker(intent: CallIntent) -> tuple[str, str, str]:
    """Return what an answer is given to: (run, evaluation, purpose)."""
    return intent.run_id, intent.eval_id or "", intent.purpose


def _usable(call: Call, intent: CallIntent, now: int, writer: CallWriter) -> StoredAnswer | None:
    """Return the answer that the evaluation may have, its hit recorded."""
    if call.answer is None:
        return None
    answer = call.answers[call.answer]
    if answer.is_paid_by(intent):
        return answer
    paid = [number for number, other in call.answers.items() if other.is_paid_by(intent)]
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
