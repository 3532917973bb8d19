"""Settlements in the SQLite journal: how an attempt ended, and whose answer is the call's.

The first answer wins until somebody finds it too old. A later answer of an attempt given up for
lost is paid all the same: it stays with its attempt, for the evaluation that paid.
"""

import apsw

from convergence_core.ports import Settlement
from tasks.store.journal.ledger import outcome_text, settle_sql, settled_values

_CALL = "SELECT latest_id, state, answer_id, owner FROM calls WHERE call_key = ?"
_ATTEMPT = "SELECT attempt, previous_id, state, error_type, run_id FROM attempts WHERE id = ?"
_SETTLE_ATTEMPT = settle_sql("attempts", "?") + " WHERE id = ?"
_KEEP_REPLACED = (
    "UPDATE attempts SET outcome = (SELECT outcome FROM calls WHERE call_key = ?) WHERE id = ?"
)
_ANSWER = "UPDATE calls SET state = 'done', outcome = ?, answer_id = ? WHERE call_key = ?"
_FAIL = (
    "UPDATE calls SET state = 'failed' WHERE call_key = ? AND latest_id = ? AND state = 'started'"
)


def settle_attempt(connection: apsw.Connection, settlement: Settlement) -> tuple[str, str] | None:
    """Record how an attempt ended, inside the caller's transaction.

    Returns:
        (run, owner) of the claim that was settled; ``None`` if another took the call over since.

    Raises:
        ValueError: the attempt was never granted.
    """
    key = settlement.call_key
    call = connection.execute(_CALL, (key,)).fetchone()
    latest_id = None if call is None else call[0]
    attempt_id = latest_id
    while attempt_id is not None:
        row = connection.execute(_ATTEMPT, (attempt_id,)).fetchone()
        assert row is not None, "written in the same transaction"  # noqa: S101
        number, previous_id, state, error_type, run_id = row
        if number == settlement.attempt:
            assert call is not None  # noqa: S101 - its latest attempt led here
            # A late end of an attempt given up for lost still counts: it is known now.
            if state == "started" or (state, error_type) == ("failed", "lost"):
                _write(connection, settlement, attempt_id, call[1], call[2])
            return (run_id, call[3]) if attempt_id == latest_id else None
        attempt_id = previous_id
    raise ValueError(f"attempt {settlement.attempt} of call {key} was never granted")


def _write(
    connection: apsw.Connection,
    settlement: Settlement,
    attempt_id: int,
    call_state: str,
    answer_id: int | None,
) -> None:
    done = settlement.state == "done"
    wins = done and call_state != "done"
    values = settled_values(settlement, keeps_answer=not wins)
    connection.execute(_SETTLE_ATTEMPT, (*values, attempt_id))
    key = settlement.call_key
    if wins:
        if answer_id is not None:
            connection.execute(_KEEP_REPLACED, (key, answer_id))
        connection.execute(_ANSWER, (outcome_text(settlement.outcome), attempt_id, key))
    elif not done:
        connection.execute(_FAIL, (key, attempt_id))
