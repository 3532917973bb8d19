"""Journal of paid calls in PostgreSQL, shared by several machines.

To avoid deadlocks, a batch locks the rows of its calls in key order: it inserts new keys first and
locks known ones next. The server's clock decides the expiry of leases, since the clocks of
machines differ.
"""

from collections.abc import Callable, Sequence
from typing import Any

from convergence_core.ports import CallIntent, Settlement, StoredAnswer
from tasks.store.journal.calls import Call, CallStatements, StoredAttempt
from tasks.store.journal.ledger import (
    BEGUN_COLUMNS,
    LOSE,
    NEW_ATTEMPT,
    ROW_COLUMNS,
    SETTLE,
    insert_sql,
    is_whole,
    name_of,
    row_of,
    stored_answer,
)
from tasks.store.journal.schema import POSTGRES_JOURNAL
from tasks.store.journal.sql_journal import Journal, Loaded
from tasks.store.postgres import PostgresConnection, PostgresDatabase

_NOW = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
_INSERT_NEW = (
    "INSERT INTO calls(call_key, state, owner, lease_us, latest, request_sha256) "
    "SELECT key, 'new', '', 0, 0, '' FROM unnest(?::text[]) AS key ORDER BY key COLLATE \"C\" "
    "ON CONFLICT DO NOTHING"
)
_LOCK = (
    "SELECT call_key, state, owner, lease_us, latest, answer FROM calls "
    "WHERE call_key = ANY(?) ORDER BY call_key FOR UPDATE"
)
_ROWS = f"SELECT outcome, {', '.join(ROW_COLUMNS)} FROM attempts"  # noqa: S608 - constants
_ANSWERED = f"{_ROWS} WHERE call_key = ANY(?) AND (state = 'done' OR (state = 'cached' AND run_id = ANY(?)))"
_GRANTED = (
    f"SELECT state, error_type, {', '.join(BEGUN_COLUMNS)} FROM attempts "  # noqa: S608 - constants
    "WHERE call_key = ANY(?) AND state <> 'cached'"
)
_STATEMENTS = CallStatements(
    lose=f"{LOSE} AND call_key = :call_key AND attempt = :attempt",
    start=insert_sql("started", NEW_ATTEMPT, {}),
    grant="UPDATE calls SET state = 'started', owner = :owner, lease_us = :lease_us, "
    "latest = :latest, request_sha256 = :request_sha256 WHERE call_key = :call_key",
    settle=f"{SETTLE} WHERE call_key = :call_key AND attempt = :attempt AND state <> 'cached'",
    win=("UPDATE calls SET state = 'done', answer = :attempt WHERE call_key = :call_key",),
    fail="UPDATE calls SET state = 'failed' WHERE call_key = :call_key",
    keeps_answers=True,
)
_ANSWERS = (
    f"SELECT a.outcome, {', '.join(f'a.{c}' for c in ROW_COLUMNS)} FROM calls c "  # noqa: S608 - constants
    "JOIN attempts a ON a.call_key = c.call_key AND a.attempt = c.answer "
    "AND a.state = 'done' WHERE c.call_key = ANY(?)"
)


class PostgresJournal(Journal):
    """``Journal`` in a Postgres database, shared by processes of many machines. Thread-safe.

    A row is as durable as the server's commit, with ``synchronous_commit`` on.
    """

    statements = _STATEMENTS
    # Calls before attempts, in key order, as every other statement locks them.
    lock_run = (
        "SELECT call_key FROM calls WHERE state = 'started' AND call_key IN "
        "(SELECT call_key FROM attempts WHERE run_id = ? AND state = 'started') "
        "ORDER BY call_key FOR UPDATE"
    )

    def __init__(self, dsn: str, *, now_us: Callable[[], int] | None = None) -> None:
        """Connect to the journal, creating its tables if they are missing.

        Args:
            dsn: ``postgresql://`` URL; messages never repeat its password.
            now_us: clock for leases; by default the server's.

        Raises:
            StoreError: the URL is invalid, or the extra ``postgres`` is not installed.
            StoreFormatError: the tables have a newer version, or the database is not UTF-8.
            StoreWriteError: the server cannot be reached or written.
        """
        self._database: PostgresDatabase
        super().__init__(PostgresDatabase(dsn, POSTGRES_JOURNAL))
        self._now_us = now_us

    def answers(self, call_keys: Sequence[str]) -> dict[str, StoredAnswer]:
        """Return the stored ``done`` outcomes among these keys; see ``Journal.answers``."""
        if not call_keys:
            return {}
        rows = self._database.read(lambda c: c.execute(_ANSWERS, (list(call_keys),)).fetchall())
        answers = ((row_of(values), outcome) for outcome, *values in rows)
        return {row["call_key"]: stored_answer(row, outcome) for row, outcome in answers}

    def _clock(self, connection: PostgresConnection) -> Callable[[], int]:
        if self._now_us is not None:
            return self._now_us
        cursor = connection.execute(_NOW)
        return lambda: int(cursor.fetchone()[0])

    def _damaged(
        self, connection: PostgresConnection, where: str, values: Sequence[Any]
    ) -> list[str]:
        rows = connection.execute(f"{_ROWS} WHERE {where}", values).fetchall()
        attempts = ((row_of(row), outcome) for outcome, *row in rows)
        return [name_of(row) for row, outcome in attempts if not is_whole(row, outcome)]

    def _load_claimed(
        self, connection: PostgresConnection, intents: Sequence[CallIntent]
    ) -> Loaded:
        keys = sorted({intent.call_key for intent in intents})
        connection.execute(_INSERT_NEW, (keys,))
        locked = connection.execute(_LOCK, (keys,))
        runs = sorted({intent.run_id for intent in intents})
        answered = connection.execute(_ANSWERED, (keys, runs))

        def fetch() -> dict[str, Call]:
            calls = _calls(locked.fetchall())
            for outcome, *values in answered.fetchall():
                row = row_of(values)
                call, attempt = calls[row["call_key"]], row["attempt"]
                if row["state"] == "cached":
                    call.given[row["run_id"], row["eval_id"], row["purpose"]] = attempt
                else:
                    call.answers[attempt] = stored_answer(row, outcome)
            return calls

        return fetch

    def _load_settled(
        self, connection: PostgresConnection, settlements: Sequence[Settlement]
    ) -> Loaded:
        keys = sorted({settlement.call_key for settlement in settlements})
        locked = connection.execute(_LOCK, (keys,))
        granted = connection.execute(_GRANTED, (keys,))

        def fetch() -> dict[str, Call]:
            calls = _calls(locked.fetchall())
            for state, error_type, *values in granted.fetchall():
                begun = dict(zip(BEGUN_COLUMNS, values, strict=True))
                attempt = StoredAttempt(None, state, error_type, begun)
                calls[begun["call_key"]].attempts[begun["attempt"]] = attempt
            return calls

        return fetch


def _calls(rows: Sequence[tuple[Any, ...]]) -> dict[str, Call]:
    names = ("key", "state", "owner", "lease_us", "latest", "answer")
    return {row[0]: Call(**dict(zip(names, row, strict=True))) for row in rows}
