"""Claims in the SQLite journal: who may make a call, and who gets which answer.

An evaluation that was given an answer once gets the same one for ever, also when the answer of the
call has been replaced since: so a resumed run reads what it read before, and pays for nothing
twice. Anybody else gets the call's answer if it is young enough.
"""

from typing import Any, NamedTuple

import apsw

from convergence_core.ports import CallIntent, Claim, StoredAnswer
from tasks.store.journal.ledger import (
    ANSWER_COLUMNS,
    asked,
    cache_hit_sql,
    is_fresh,
    new_attempt_sql,
    stored_answer,
)

# Two look-ups by key: joined, they take SQLite three times as long.
_CALL = "SELECT state, lease_us, latest_id, answer_id, outcome FROM calls WHERE call_key = ?"
_PAYER = f"SELECT {', '.join(ANSWER_COLUMNS)} FROM attempts WHERE id = ?"  # noqa: S608 - constants
_GIVEN = (
    "SELECT attempt FROM attempts WHERE state = 'cached' AND call_key = :call_key "
    "AND run_id = :run_id AND eval_id = :eval_id AND purpose = :purpose"
)
# Paid by this evaluation itself, or given to it before it was replaced.
_OTHER = (
    "SELECT id, outcome FROM attempts WHERE outcome IS NOT NULL AND call_key = :call_key "  # noqa: S608 - constants
    f"AND ((run_id = :run_id AND eval_id = :eval_id) OR attempt = ({_GIVEN})) "
    "ORDER BY run_id = :run_id AND eval_id = :eval_id DESC, id DESC LIMIT 1"
)
_NUMBER = "SELECT attempt FROM attempts WHERE id = ?"
_NEW_ATTEMPT = new_attempt_sql("attempts", "?", "previous_id")
_CACHE_HIT = cache_hit_sql("attempts", "?")
_GRANT = (
    "INSERT INTO calls(call_key, state, owner, lease_us, latest_id, request_sha256) "
    "VALUES (?, 'started', ?, ?, ?, ?) ON CONFLICT(call_key) DO UPDATE SET state = 'started', "
    "owner = excluded.owner, lease_us = excluded.lease_us, latest_id = excluded.latest_id"
)
# `lost`: its process died, or its lease ran out, before anybody could say how it ended.
LOSE = (
    "UPDATE attempts SET state = 'failed', error_type = 'lost', "
    "maybe_usd = coalesce(max_usd, 0), maybe_tokens = coalesce(max_tokens, 0) "
    "WHERE state = 'started' AND "
)


class KnownCall(NamedTuple):
    """A known call."""

    state: str
    lease_us: int
    latest_id: int
    """Its latest attempt."""
    answer_id: int | None
    """The attempt that answered it; it stays while a newer answer is asked for."""
    outcome: str | None


def look_up(connection: apsw.Connection, call_key: str) -> KnownCall | None:
    """Return a call, ``None`` if nobody ever claimed it."""
    row = connection.execute(_CALL, (call_key,)).fetchone()
    return None if row is None else KnownCall(*row)


def answer_of(connection: apsw.Connection, call: KnownCall) -> StoredAnswer | None:
    """Return the answer of a call, ``None`` if it has none."""
    return None if call.answer_id is None else _answer(connection, call.answer_id, call.outcome)


def is_paid_by(answer: StoredAnswer, intent: CallIntent) -> bool:
    """Return whether the evaluation that asks paid for the answer itself."""
    return (answer.run_id, answer.eval_id) == (intent.run_id, intent.eval_id)


def claim_call(connection: apsw.Connection, intent: CallIntent, owner: str, now: int) -> Claim:
    """Claim one call inside the caller's transaction."""
    call = look_up(connection, intent.call_key)
    answer = None if call is None else _usable(connection, call, intent, now)
    if answer is not None:
        return Claim(state="hit", answer=answer)
    attempt = 1
    if call is not None:
        if call.state == "started":
            if call.lease_us > now:
                return Claim(state="busy")
            connection.execute(f"{LOSE}id = ?", (call.latest_id,))
        latest: Any = connection.execute(_NUMBER, (call.latest_id,)).fetchone()
        attempt += latest[0]
    previous_id = None if call is None else call.latest_id
    connection.execute(
        _NEW_ATTEMPT,
        (*asked(intent), attempt, previous_id, intent.max_usd, intent.max_tokens, now),
    )
    attempt_id = connection.last_insert_rowid()
    lease_us = now + int(intent.lease_s * 1e6)
    connection.execute(
        _GRANT, (intent.call_key, owner, lease_us, attempt_id, intent.request_sha256)
    )
    return Claim(state="granted", attempt=attempt)


def _usable(
    connection: apsw.Connection, call: KnownCall, intent: CallIntent, now: int
) -> StoredAnswer | None:
    """Return the answer that the evaluation may have, its hit recorded."""
    answer = answer_of(connection, call)
    if answer is None or is_paid_by(answer, intent):
        return answer
    who = {
        "call_key": intent.call_key,
        "run_id": intent.run_id,
        "eval_id": intent.eval_id or "",
        "purpose": intent.purpose,
    }
    other = connection.execute(_OTHER, who).fetchone()
    if other is not None:
        return _answer(connection, *other)
    if not is_fresh(answer.ended_us, intent):
        given = connection.execute(_GIVEN, who).fetchone()
        return None if given is None else answer
    connection.execute(_CACHE_HIT, (*asked(intent), answer.attempt, answer.run_id, now, now))
    return answer


def _answer(connection: apsw.Connection, attempt_id: int, outcome: str | None) -> StoredAnswer:
    payer = connection.execute(_PAYER, (attempt_id,)).fetchone()
    assert payer is not None, "written in the same transaction"  # noqa: S101
    return stored_answer(payer, str(outcome))
