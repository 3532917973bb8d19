"""What a batch of claims or settlements reads, decides and writes in Postgres.

``lock`` sends the first round trip's statements, ``change`` decides in memory and sends the
second's. The rules are those of ``claiming`` and ``settling``; a contract suite holds both to them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from convergence_core.ports import CallIntent, Claim, Settlement, StoredAnswer
from tasks.store.journal.ledger import (
    ANSWER_COLUMNS,
    asked,
    cache_hit_sql,
    is_fresh,
    new_attempt_sql,
    settle_sql,
    settled_values,
    stored_answer,
)
from tasks.store.journal.postgres import ACTIVITY, ATTEMPTS, CALLS

if TYPE_CHECKING:
    from tasks.store.journal.postgres import Connection

    Rows = list[tuple[Any, ...]]

_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_INSERT_NEW = (
    f"INSERT INTO {CALLS}(call_key, state, owner, lease_us, latest, request_sha256) "  # noqa: S608 - constants
    "SELECT key, 'new', '', 0, 0, '' FROM unnest(%s::text[]) AS key ORDER BY key COLLATE \"C\" "
    "ON CONFLICT DO NOTHING"
)
_LOCK = (
    f"SELECT call_key, state, owner, lease_us, latest, answer FROM {CALLS} "  # noqa: S608 - constants
    "WHERE call_key = ANY(%s) ORDER BY call_key FOR UPDATE"
)
_ANSWERED = (
    f"SELECT call_key, state, purpose, outcome, {', '.join(ANSWER_COLUMNS)} FROM {ATTEMPTS} "  # noqa: S608 - constants
    "WHERE call_key = ANY(%s) AND (state = 'done' OR (state = 'cached' AND run_id = ANY(%s)))"
)
_GRANTED = (
    f"SELECT call_key, attempt, state, error_type, run_id FROM {ATTEMPTS} "  # noqa: S608 - constants
    "WHERE call_key = ANY(%s) AND state <> 'cached'"
)
_LOSE = (
    f"UPDATE {ATTEMPTS} SET state = 'failed', error_type = 'lost', "  # noqa: S608 - constants
    "maybe_usd = coalesce(max_usd, 0), maybe_tokens = coalesce(max_tokens, 0) "
    "WHERE call_key = %s AND attempt = %s AND state = 'started'"
)
_NEW_ATTEMPT = new_attempt_sql(ATTEMPTS, "%s")
_CACHE_HIT = cache_hit_sql(ATTEMPTS, "%s")
_GRANT = (
    f"UPDATE {CALLS} SET state = 'started', owner = %s, lease_us = %s, latest = %s, "  # noqa: S608 - constants
    "request_sha256 = %s WHERE call_key = %s"
)
_SETTLE_ATTEMPT = (
    f"{settle_sql(ATTEMPTS, '%s')} WHERE call_key = %s AND attempt = %s AND state <> 'cached'"
)
_SETTLE_CALL = f"UPDATE {CALLS} SET state = %s, answer = %s WHERE call_key = %s"  # noqa: S608 - constants
_SEEN = (
    f"INSERT INTO {ACTIVITY} AS a (run_id, owner, started_us, seen_us) VALUES (%s, %s, %s, %s) "  # noqa: S608 - constants
    "ON CONFLICT (run_id, owner) DO UPDATE SET seen_us = greatest(a.seen_us, excluded.seen_us)"
)


@dataclass(slots=True)
class _Call:
    """A locked call, as it will be when the batch is committed."""

    state: str
    owner: str
    lease_us: int
    latest: int
    answer: int | None
    given: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """(run, evaluation, purpose) → attempt whose answer it was given by a hit."""
    answers: dict[int, StoredAnswer] = field(default_factory=dict)
    """Attempt → what it was answered."""


class _Batch:
    def __init__(self, keys: Iterable[str], now_us: Callable[[], int] | None) -> None:
        self._keys = sorted(set(keys))
        self._now_us = now_us

    def _clock(self, connection: "Connection") -> Callable[[], int]:
        """Return how to learn the time: of the clock given, else of the server."""
        if self._now_us is not None:
            now = self._now_us()
            return lambda: now
        cursor = connection.execute(_NOW)
        return lambda: int(cursor.fetchall()[0][0])


def _note_activity(connection: "Connection", workers: Iterable[tuple[str, str]], now: int) -> None:
    for run_id, owner in sorted(workers):
        connection.execute(_SEEN, (run_id, owner, now, now))


def _write(connection: "Connection", sql: str, rows: "Rows") -> None:
    if rows:
        connection.cursor().executemany(sql, rows)


class ClaimBatch(_Batch):
    """Claims of one owner."""

    def __init__(
        self, intents: Sequence[CallIntent], owner: str, now_us: Callable[[], int] | None
    ) -> None:
        super().__init__((intent.call_key for intent in intents), now_us)
        self._intents = intents
        self._owner = owner

    def lock(self, connection: "Connection") -> "Callable[[], tuple[dict[str, _Call], int]]":
        """Lock the calls, new ones included, and read their answers."""
        runs = sorted({intent.run_id for intent in self._intents})
        connection.execute(_INSERT_NEW, (self._keys,))
        calls = connection.execute(_LOCK, (self._keys,))
        answered = connection.execute(_ANSWERED, (self._keys, runs))
        clock = self._clock(connection)

        def fetch() -> tuple[dict[str, _Call], int]:
            found = {key: _Call(*rest) for key, *rest in calls.fetchall()}
            for key, state, purpose, outcome, *row in answered.fetchall():
                run_id, eval_id, attempt = row[:3]
                if state == "cached":
                    found[key].given[run_id, eval_id, purpose] = attempt
                else:
                    found[key].answers[attempt] = stored_answer(row, outcome)
            return found, clock()

        return fetch

    def change(self, connection: "Connection", found: tuple[dict[str, _Call], int]) -> list[Claim]:
        """Decide each claim in order, and write what follows."""
        calls, now = found
        rows: dict[str, Rows] = {_LOSE: [], _NEW_ATTEMPT: [], _CACHE_HIT: [], _GRANT: []}
        claims = [self._claim(calls[i.call_key], i, now, rows) for i in self._intents]
        for sql, values in rows.items():
            _write(connection, sql, values)
        _note_activity(connection, {(i.run_id, self._owner) for i in self._intents}, now)
        return claims

    def _claim(self, call: _Call, intent: CallIntent, now: int, rows: "dict[str, Rows]") -> Claim:
        answer = _usable(call, intent, now, rows[_CACHE_HIT])
        if answer is not None:
            return Claim(state="hit", answer=answer)
        key = intent.call_key
        if call.state == "started":
            if call.lease_us > now:
                return Claim(state="busy")
            rows[_LOSE].append((key, call.latest))
        call.state = "started"
        call.latest += 1
        call.lease_us = now + int(intent.lease_s * 1e6)
        rows[_NEW_ATTEMPT].append(
            (*asked(intent), call.latest, intent.max_usd, intent.max_tokens, now)
        )
        rows[_GRANT].append((self._owner, call.lease_us, call.latest, intent.request_sha256, key))
        return Claim(state="granted", attempt=call.latest)


def _usable(call: _Call, intent: CallIntent, now: int, hits: "Rows") -> StoredAnswer | None:
    """Return the answer that the evaluation may have, its hit noted."""
    if call.answer is None:
        return None
    answer = call.answers[call.answer]
    me = (intent.run_id, intent.eval_id)
    if (answer.run_id, answer.eval_id) == me:
        return answer
    paid = [n for n, other in call.answers.items() if (other.run_id, other.eval_id) == me]
    if paid:
        return call.answers[max(paid)]
    who = (intent.run_id, intent.eval_id or "", intent.purpose)
    if who in call.given:
        return call.answers[call.given[who]]
    if not is_fresh(answer.ended_us, intent):
        return None
    call.given[who] = call.answer
    hits.append((*asked(intent), call.answer, answer.run_id, now, now))
    return answer


class SettleBatch(_Batch):
    """Settlements of attempts granted earlier."""

    def __init__(
        self, settlements: Sequence[Settlement], now_us: Callable[[], int] | None
    ) -> None:
        super().__init__((settlement.call_key for settlement in settlements), now_us)
        self._settlements = settlements

    def lock(self, connection: "Connection") -> "Callable[[], tuple[Rows, Rows, int]]":
        """Lock the calls and read their attempts."""
        calls = connection.execute(_LOCK, (self._keys,))
        granted = connection.execute(_GRANTED, (self._keys,))
        clock = self._clock(connection)
        return lambda: (calls.fetchall(), granted.fetchall(), clock())

    def change(self, connection: "Connection", found: "tuple[Rows, Rows, int]") -> None:
        """Decide each settlement in order, and write what follows.

        Raises:
            ValueError: an attempt was never granted.
        """
        call_rows, granted, now = found
        calls = {key: _Call(*rest) for key, *rest in call_rows}
        open_, run_of = set(), {}
        for key, attempt, state, error_type, run_id in granted:
            run_of[key, attempt] = run_id
            if state == "started" or (state, error_type) == ("failed", "lost"):
                open_.add((key, attempt))
        written: Rows = []
        changed: set[str] = set()
        workers = set()
        for settlement in self._settlements:
            key, attempt = settlement.call_key, settlement.attempt
            if (key, attempt) not in run_of:
                raise ValueError(f"attempt {attempt} of call {key} was never granted")
            call = calls[key]
            if attempt == call.latest:
                workers.add((run_of[key, attempt], call.owner))
            if (key, attempt) in open_:
                open_.discard((key, attempt))
                values = settled_values(settlement, keeps_answer=True)
                written.append((*values, key, attempt))
                if _end_call(call, settlement):
                    changed.add(key)
        _write(connection, _SETTLE_ATTEMPT, written)
        ended = [(calls[key].state, calls[key].answer, key) for key in sorted(changed)]
        _write(connection, _SETTLE_CALL, [*ended])
        _note_activity(connection, workers, now)


def _end_call(call: _Call, settlement: Settlement) -> bool:
    """Let a call end as its attempt did; return whether that changed it."""
    if settlement.state == "done":
        if call.state == "done":
            return False
        call.state, call.answer = "done", settlement.attempt
        return True
    if call.state != "started" or call.latest != settlement.attempt:
        return False
    call.state = "failed"
    return True
