"""``PostgresJournal``: the journal that several machines share.

As in SQLite, ``calls`` holds one row per ``call_key`` and ``attempts`` is the ledger. A batch locks
the rows of its calls in the order of their keys, so that no two wait for each other in a circle: new
keys are inserted first, known ones locked then. Leases end by the server's clock, since those of
machines differ.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from convergence_core.ports import (
    CallIntent,
    CallTotals,
    Claim,
    LostCall,
    Row,
    Settlement,
    StoredAnswer,
)
from tasks.store.journal.ledger import (
    ANSWER_COLUMNS,
    LEDGER,
    LEDGER_ORDER,
    LOST_COLUMNS,
    account,
    ledger_sql,
    lost_calls,
    stored_answer,
    totals_sql,
)
from tasks.store.journal.postgres import ACTIVITY, ATTEMPTS, CALLS, PostgresDatabase
from tasks.store.journal.postgres_batches import ClaimBatch, SettleBatch
from tasks.store.journal.sqlite import Closing

if TYPE_CHECKING:
    from tasks.store.journal.postgres import Connection

_TOTALS = totals_sql(ATTEMPTS, "%s")
_LEDGER = ledger_sql(ATTEMPTS, "%s")
_ACTIVE = (
    f"SELECT coalesce(sum(seen_us - started_us), 0)::bigint FROM {ACTIVITY} WHERE run_id = %s"  # noqa: S608 - constants
)
_ANSWERS = (
    f"SELECT a.call_key, a.outcome, {', '.join(f'a.{c}' for c in ANSWER_COLUMNS)} FROM {CALLS} c "  # noqa: S608 - constants
    f"JOIN {ATTEMPTS} a ON a.call_key = c.call_key AND a.attempt = c.answer "
    "AND a.state = 'done' WHERE c.call_key = ANY(%s)"
)
# Calls before attempts, and in the order of their keys, as everybody locks.
_LOCK_RUN = (
    f"SELECT call_key FROM {CALLS} WHERE state = 'started' AND call_key IN "  # noqa: S608 - constants
    f"(SELECT call_key FROM {ATTEMPTS} WHERE run_id = %s AND state = 'started') "
    "ORDER BY call_key FOR UPDATE"
)
_IN_FLIGHT = (
    f"SELECT {', '.join(LOST_COLUMNS)} FROM {ATTEMPTS} WHERE run_id = %s AND state = 'started' "  # noqa: S608 - constants
    "ORDER BY started_us, call_key"
)
_ABANDON = (
    f"UPDATE {CALLS} SET state = 'failed' WHERE state = 'started' AND call_key = ANY(%s)",  # noqa: S608 - constants
    f"UPDATE {ATTEMPTS} SET state = 'failed', error_type = 'lost', "  # noqa: S608 - constants
    "maybe_usd = coalesce(max_usd, 0), maybe_tokens = coalesce(max_tokens, 0) "
    "WHERE call_key = ANY(%s) AND state = 'started'",
)


class PostgresJournal(Closing):
    """The ``Journal`` in a Postgres database, shared by processes of many machines. Thread-safe.

    Rows are durable as far as the server makes a commit so; ``synchronous_commit`` is on.
    """

    def __init__(self, dsn: str, *, now_us: Callable[[], int] | None = None) -> None:
        """Connect to the journal, creating its tables if need be.

        Args:
            dsn: ``postgresql://`` URL; it may hold a password, which no message repeats.
            now_us: clock for leases; by default the server's.

        Raises:
            StoreError: the URL is none, or the extra ``postgres`` is not installed.
            StoreFormatError: the tables are of a newer version, or the database is not UTF-8.
            StoreWriteError: the server cannot be reached or written.
        """
        self._database = PostgresDatabase(dsn)
        self._now_us = now_us

    def claim(self, intents: Sequence[CallIntent], owner: str) -> list[Claim]:
        """Claim calls, in order, in one durable transaction; see ``SqliteJournal.claim``.

        Raises:
            StoreWriteError: nothing was claimed, or that is unknown because the connection
                dropped at the commit; then these claims end with their leases.
        """
        if not intents:
            return []
        batch = ClaimBatch(intents, owner, self._now_us)
        return self._database.write(batch.lock, batch.change)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Record how attempts ended, in one durable transaction; see ``SqliteJournal.settle``.

        Raises:
            ValueError: an attempt was never granted; nothing is recorded.
            StoreWriteError: nothing is recorded, or that is unknown.
        """
        if settlements:
            batch = SettleBatch(settlements, self._now_us)
            self._database.write(batch.lock, batch.change, is_idempotent=True)

    def answers(self, call_keys: Sequence[str]) -> dict[str, StoredAnswer]:
        """Return the stored ``done`` outcomes among these keys; claims and writes nothing.

        However old: whoever asks can see when they ended and who paid.
        """
        if not call_keys:
            return {}
        rows = self._database.read(lambda c: c.execute(_ANSWERS, (list(call_keys),)).fetchall())
        return {key: stored_answer(row, outcome) for key, outcome, *row in rows}

    def totals(self, run_id: str, *, before_generation: int | None = None) -> CallTotals:
        """Return the account of a run; with ``before_generation`` only of earlier generations.

        ``active_s`` is that of the whole run.
        """
        earlier = "" if before_generation is None else " AND generation < %s"
        values = (run_id,) if before_generation is None else (run_id, before_generation)

        def read(connection: "Connection") -> CallTotals:
            row = connection.execute(_TOTALS + earlier, values).fetchall()[0]
            return account(row, connection.execute(_ACTIVE, (run_id,)).fetchall()[0][0])

        return self._database.read(read)

    def abandon(self, run_id: str) -> list[LostCall]:
        """Release the claims of a run whose process is known to be dead; return them by age.

        Raises:
            StoreWriteError: nothing was released, or that is unknown.
        """

        def lock(connection: "Connection") -> "Callable[[], list[tuple[Any, ...]]]":
            connection.execute(_LOCK_RUN, (run_id,))
            return connection.execute(_IN_FLIGHT, (run_id,)).fetchall

        def change(connection: "Connection", rows: list[tuple[Any, ...]]) -> list[LostCall]:
            for statement in _ABANDON if rows else ():
                connection.execute(statement, ([row[0] for row in rows],))
            return lost_calls(rows)

        return self._database.write(lock, change)

    def attempts(
        self, run_id: str, *, generation: int | None, all_generations: bool = False
    ) -> list[Row]:
        """Return the ledger rows of one generation (``None``: those outside any), by key."""
        one = "" if all_generations else "AND generation IS NOT DISTINCT FROM %s"
        values = (run_id,) if all_generations else (run_id, generation)
        sql = f"{_LEDGER} {one} {LEDGER_ORDER}"
        rows = self._database.read(lambda c: c.execute(sql, values).fetchall())
        return [dict(zip(LEDGER, row, strict=True)) for row in rows]

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        self._database.close()
