"""Rules of the journal: claims of calls, and the attempt whose answer is valid.

An evaluation that has received an answer always receives the same one, even if another answer has
since replaced it in the call. A resumed run thus reads the same answers and pays for no call
twice. Any other evaluation receives the call's answer if it is recent enough.

The first answer wins until an evaluation finds it too old. A late answer of a lost attempt is
still paid for, so it stays with its attempt for the evaluation that paid.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from convergence_core.ports import CallIntent, Claim, Settlement, StoredAnswer
from convergence_core.records import fields_of
from tasks.store.journal.ledger import CACHE_HIT, begun_values, hit_values, settled_values


class StoredAttempt(NamedTuple):
    """A stored attempt at a call."""

    row_id: int | None
    """Row id in SQLite."""
    state: str
    error_type: str | None
    begun: Mapping[str, Any]
    """Stored values of ``BEGUN_COLUMNS``."""

    @property
    def run_id(self) -> str:
        """Run that started the attempt."""
        return str(self.begun["run_id"])

    @property
    def is_open(self) -> bool:
        """Whether its outcome may still be recorded: it is running, or was given up as lost."""
        return self.state == "started" or (self.state, self.error_type) == ("failed", "lost")


@dataclass(slots=True, kw_only=True)
class Call:
    """State of a call while a batch changes it."""

    key: str
    state: str = "new"
    owner: str = ""
    lease_us: int = 0
    latest: int = 0
    answer: int | None = None
    """Number of the attempt whose answer is valid for the call, even while a newer attempt runs.
    """
    attempts: dict[int, StoredAttempt] = field(default_factory=dict)
    """Number → attempt to settle."""
    answers: dict[int, StoredAnswer] = field(default_factory=dict)
    """Attempt number → its answer."""
    given: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """(run, evaluation, purpose) → attempt whose answer a hit returned."""


class CallStatements(NamedTuple):
    """Statements that change calls and attempts in one database, with named values."""

    lose: str
    start: str
    grant: str
    settle: str
    win: tuple[str, ...]
    """Statements that make an answer the call's."""
    fail: str
    keeps_answers: bool
    """Whether the attempt's row holds the call's answer."""


class CallWriter:
    """Writer of a batch's changes, in the order of the decisions."""

    def __init__(
        self, execute: Callable[[str, dict[str, Any]], object], statements: CallStatements
    ) -> None:
        self._execute, self._sql = execute, statements

    def lose(self, call: Call) -> None:
        """Mark the latest attempt as lost."""
        self._execute(self._sql.lose, {"call_key": call.key, "attempt": call.latest})

    def start(self, call: Call, intent: CallIntent, now: int) -> None:
        """Record the call's new latest attempt, with its lease."""
        self._execute(self._sql.start, begun_values(intent, call.latest, now))
        lease = fields_of(call, "owner", "lease_us", "latest")
        more = {"call_key": call.key, "request_sha256": intent.request_sha256}
        self._execute(self._sql.grant, lease | more)

    def hit(self, intent: CallIntent, answer: StoredAnswer, now: int) -> None:
        """Record a cache hit."""
        self._execute(CACHE_HIT, hit_values(intent, answer, now))

    def settle(self, settlement: Settlement, call: Call, *, wins: bool) -> None:
        """Record the end of an attempt; if it wins, its answer becomes the call's."""
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
    """Decide one claim and record its effects in the call and the writer."""
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
    """Settle one attempt of a call.

    Returns:
        (run, owner) of the settled claim; ``None`` if another claim has taken over the call.

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
    """Return the key of an answer's recipient: (run, evaluation, purpose)."""
    return intent.run_id, intent.eval_id or "", intent.purpose


def _usable(call: Call, intent: CallIntent, now: int, writer: CallWriter) -> StoredAnswer | None:
    """Return the answer that the evaluation may use and record a hit; ``None`` if none."""
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
