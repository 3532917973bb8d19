"""Journal of paid calls in an SQLite file of the store."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from convergence_core.ports import CallIntent, Claim, Settlement, StoredAnswer
from tasks.store.clock import wall_clock_us
from tasks.store.journal.calls import Call, CallStatements, StoredAttempt, asker
from tasks.store.journal.ledger import (
    BEGUN_COLUMNS,
    LOSE,
    NEW_ATTEMPT,
    ROW_COLUMNS,
    SETTLE,
    damaged_error,
    insert_sql,
    is_whole,
    name_of,
    row_of,
    stored_answer,
)
from tasks.store.journal.schema import SQLITE_JOURNAL
from tasks.store.journal.sql_journal import Journal, Loaded
from tasks.store.layout import JOURNAL_FILE, ensure_store, store_root
from tasks.store.sqlite import SqliteDatabase

_ROW = ", ".join(ROW_COLUMNS)
_CALL = (
    "SELECT state, owner, lease_us, latest_id, answer_id, outcome FROM calls WHERE call_key = ?"
)
# Separate look-ups by key, since SQLite takes three times as long for a join.
_PAYER = f"SELECT {_ROW} FROM attempts WHERE id = ?"  # noqa: S608 - constants
_NUMBER = "SELECT attempt FROM attempts WHERE id = ?"
_ATTEMPT = (
    f"SELECT previous_id, state, error_type, {', '.join(BEGUN_COLUMNS)} FROM attempts WHERE id = ?"  # noqa: S608 - constants
)
_OTHERS = f"SELECT outcome, {_ROW} FROM attempts WHERE call_key = ? AND outcome IS NOT NULL"  # noqa: S608 - constants
_WHOLE = (
    f"SELECT coalesce(outcome, (SELECT outcome FROM calls c WHERE c.call_key = attempts.call_key "  # noqa: S608 - constants
    f"AND answer_id = attempts.id)), {_ROW} FROM attempts WHERE id = ?"
)
_BYTES = (
    f"SELECT {', '.join(f'CAST({c} AS BLOB)' for c in ROW_COLUMNS)} FROM attempts WHERE id = ?"  # noqa: S608 - constants
)
_WRONG_CALLS = """
SELECT CAST('call ' || c.call_key AS BLOB) FROM calls c LEFT JOIN attempts l ON l.id = latest_id
  LEFT JOIN attempts a ON a.id = answer_id
WHERE l.call_key IS NOT c.call_key OR c.state NOT IN ('started', 'done', 'failed')
  OR (c.state = 'done' AND answer_id IS NULL) OR owner IS NULL OR lease_us IS NULL
  OR (answer_id IS NOT NULL AND (a.call_key IS NOT c.call_key OR a.state <> 'done'))
UNION ALL SELECT CAST('activity of run ' || run_id AS BLOB) FROM activity WHERE seen_us < started_us
"""
"""Calls with a foreign or missing attempt, and impossible times."""
_GIVEN = (
    "SELECT attempt FROM attempts WHERE state = 'cached' AND call_key = ? AND run_id = ? "
    "AND eval_id = ? AND purpose = ?"
)
_LATEST = "(SELECT latest_id FROM calls WHERE call_key = :call_key)"
_STATEMENTS = CallStatements(
    lose=f"{LOSE} AND id = {_LATEST}",
    start=insert_sql("started", NEW_ATTEMPT, {"previous_id": _LATEST}),
    grant="INSERT INTO calls(call_key, state, owner, lease_us, latest_id, request_sha256) "
    "VALUES (:call_key, 'started', :owner, :lease_us, last_insert_rowid(), :request_sha256) "
    "ON CONFLICT(call_key) DO UPDATE SET state = 'started', owner = excluded.owner, "
    "lease_us = excluded.lease_us, latest_id = excluded.latest_id",
    settle=f"{SETTLE} WHERE id = :id",
    win=(
        "UPDATE attempts SET outcome = (SELECT outcome FROM calls WHERE call_key = :call_key) "
        "WHERE id = (SELECT answer_id FROM calls WHERE call_key = :call_key)",
        "UPDATE calls SET state = 'done', outcome = :outcome, answer_id = :id "
        "WHERE call_key = :call_key",
    ),
    fail="UPDATE calls SET state = 'failed' WHERE call_key = :call_key",
    keeps_answers=False,
)


def open_journal(path: Path | str, url: str | None = None) -> Journal:
    """Open the journal of a store.

    Args:
        path: root folder of the store.
        url: ``postgresql://`` URL of a journal that several machines share; ``None`` means a file
            of the store.

    Raises:
        StoreError: it cannot be opened; the message holds no password.
    """
    if url is None:
        return SqliteJournal(path)
    from tasks.store.journal.postgres_journal import PostgresJournal  # noqa: PLC0415 - optional

    return PostgresJournal(url)


class SqliteJournal(Journal):
    """``Journal`` on a local disk, shared by processes of one machine. Thread-safe."""

    statements = _STATEMENTS

    def __init__(self, path: Path | str, *, now_us: Callable[[], int] = wall_clock_us) -> None:
        """Open the journal of a store, creating both if they are missing.

        Args:
            path: root folder of the store.
            now_us: clock for leases.

        Raises:
            StoreFormatError: the folder is not a store, or has a newer version.
            StoreDamagedError: the file is not a journal.
            StoreWriteError: it cannot be created or written.
        """
        root = store_root(path)
        ensure_store(root)
        self._database: SqliteDatabase
        super().__init__(SqliteDatabase(root / JOURNAL_FILE, SQLITE_JOURNAL))
        self._now_us = now_us

    def claim(self, intents: Sequence[CallIntent], owner: str) -> list[Claim]:
        """Claim calls; see ``Journal.claim``. Hits without a ledger row take no lock."""
        hits = []
        with self._database.reading() as connection:
            for intent in intents:
                call = _call(connection, intent.call_key)
                answer = None if call.answer is None else call.answers[call.answer]
                if answer is None or not answer.is_paid_by(intent):
                    break
                hits.append(Claim(state="hit", answer=answer))
            else:
                return hits
        return super().claim(intents, owner)

    def answers(self, call_keys: Sequence[str]) -> dict[str, StoredAnswer]:
        """Return the stored ``done`` outcomes of these keys; see ``Journal.answers``."""
        with self._database.reading() as connection:
            calls = [_call(connection, key) for key in call_keys]
        return {call.key: call.answers[call.answer] for call in calls if call.answer is not None}

    def _clock(self, connection: apsw.Connection) -> Callable[[], int]:  # noqa: ARG002
        return self._now_us

    def _damaged(
        self, connection: apsw.Connection, where: str, values: Sequence[Any]
    ) -> list[str]:
        return damaged_attempts(connection, where, values)

    def _load_claimed(self, connection: apsw.Connection, intents: Sequence[CallIntent]) -> Loaded:
        calls: dict[str, Call] = {}
        for intent in intents:
            key = intent.call_key
            call = calls[key] = calls.get(key) or _call(connection, key)
            if call.answer is None or call.answers[call.answer].is_paid_by(intent):
                continue
            for outcome, *row in connection.execute(_OTHERS, (key,)):
                answer = stored_answer(row_of(row), outcome)
                call.answers[answer.attempt] = answer
            for (attempt,) in connection.execute(_GIVEN, (key, *asker(intent))):
                call.given[asker(intent)] = attempt
        return lambda: calls

    def _load_settled(
        self, connection: apsw.Connection, settlements: Sequence[Settlement]
    ) -> Loaded:
        calls: dict[str, Call] = {}
        for settlement in settlements:
            key = settlement.call_key
            row: Any = connection.execute(_CALL, (key,)).fetchone()
            if row is None:
                continue
            state, owner, _, attempt_id, answer_id, _ = row
            call = calls.setdefault(key, Call(key=key, state=state, owner=owner))
            call.answer = None if answer_id is None else _number(connection, answer_id)
            # Walk back from the latest attempt, which nearly always is the settled one.
            while attempt_id is not None and settlement.attempt not in call.attempts:
                attempt: Any = connection.execute(_ATTEMPT, (attempt_id,)).fetchone()
                previous_id, attempt_state, error_type, *values = attempt
                begun = dict(zip(BEGUN_COLUMNS, values, strict=True))
                number = begun["attempt"]
                call.attempts[number] = StoredAttempt(attempt_id, attempt_state, error_type, begun)
                call.latest = max(call.latest, number)
                attempt_id = previous_id
        return lambda: calls


def _call(connection: apsw.Connection, key: str) -> Call:
    """Return a call with its answer, or a new call if it was never claimed."""
    row: Any = connection.execute(_CALL, (key,)).fetchone()
    if row is None:
        return Call(key=key)
    state, owner, lease_us, latest_id, answer_id, outcome = row
    call = Call(key=key, state=state, owner=owner, lease_us=lease_us)
    if answer_id is not None:
        payer: Any = connection.execute(_PAYER, (answer_id,)).fetchone()
        if payer is None:
            raise damaged_error([f"call {key}"])
        answer = stored_answer(row_of(payer), outcome)
        call.answer, call.latest = answer.attempt, answer.attempt
        call.answers[answer.attempt] = answer
    if latest_id != answer_id:
        call.latest = _number(connection, latest_id)
    return call


def _number(connection: apsw.Connection, attempt_id: int) -> int:
    number: Any = connection.execute(_NUMBER, (attempt_id,)).fetchone()
    if number is None:
        raise damaged_error([f"row {attempt_id} of the attempts"])
    return int(number[0])


def damaged_attempts(
    connection: apsw.Connection, where: str = "TRUE", values: Sequence[Any] = ()
) -> list[str]:
    """Return the names of attempts that have changed since their writing."""
    damaged = []
    ids = connection.execute(f"SELECT id FROM attempts WHERE {where}", tuple(values)).fetchall()  # noqa: S608 - constants
    attempts: Any
    for row_id in ids:
        try:
            attempts = connection.execute(_WHOLE, row_id).fetchone()
            is_damaged = attempts is None or not is_whole(row_of(attempts[1:]), attempts[0])
        except UnicodeDecodeError:
            blobs: Any = connection.execute(_BYTES, row_id).fetchone()
            attempts = None, *(blob and blob.decode("utf-8", "replace") for blob in blobs)
            is_damaged = True
        if is_damaged:
            damaged.append(
                f"row {row_id[0]}" if attempts is None else name_of(row_of(attempts[1:]))
            )
    return damaged


def journal_damage(path: Path) -> str | None:
    """Return what is wrong with a journal's file; ``None`` if it is intact."""
    try:
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            problems: Any = connection.execute("PRAGMA integrity_check(1)").fetchall()
            if problems != [("ok",)]:
                return str(problems[0][0])
            version = connection.pragma("user_version")
            if version != SQLITE_JOURNAL.version:
                return f"it says that it has version {version}"
            damaged = damaged_attempts(connection)
            calls: Any = connection.execute(_WRONG_CALLS).fetchall()
    except apsw.Error as error:
        return str(error)
    damaged += [name.decode("utf-8", "replace") for (name,) in calls]
    return str(damaged_error(damaged)) if damaged else None
