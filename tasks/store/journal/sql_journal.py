"""Journal of paid calls over any SQL database.

``calls`` holds one row per ``call_key`` with its answer. ``attempts``, the ledger, holds one row
per attempt and per cache hit. A hit by the evaluation that paid repeats that evaluation after a
kill, so it writes no row. A hit by another one is recorded as ``cached``, at cost 0 and 0 tokens,
with the run that paid. A resumed run thus ends with the same ledger as an uninterrupted one.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from convergence_core.ports import (
    CallIntent,
    CallTotals,
    Claim,
    LostCall,
    Row,
    Settlement,
    StoredAnswer,
)
from tasks.store.database import Closing, Connection
from tasks.store.journal.calls import Call, CallStatements, CallWriter, claim, settle
from tasks.store.journal.ledger import (
    ANSWERS,
    LEDGER,
    LEDGER_ORDER,
    LEDGER_SQL,
    LOSE,
    LOST_COLUMNS,
    TOTALS_SQL,
    account,
    damaged_error,
)

if TYPE_CHECKING:
    from tasks.store.postgres import PostgresDatabase
    from tasks.store.sqlite import SqliteDatabase


_ACTIVE = (
    "SELECT CAST(coalesce(sum(seen_us - started_us), 0) AS BIGINT) FROM activity WHERE run_id = ?"
)
_SEEN = (
    "INSERT INTO activity(run_id, owner, started_us, seen_us) VALUES (?, ?, ?, ?) "
    "ON CONFLICT(run_id, owner) DO UPDATE SET seen_us = excluded.seen_us "
    "WHERE excluded.seen_us > activity.seen_us"
)
_IN_FLIGHT = (
    f"SELECT {', '.join(LOST_COLUMNS)} FROM attempts "  # noqa: S608 - constants
    "WHERE run_id = ? AND state = 'started' ORDER BY started_us, call_key"
)
_ABANDON = (
    "UPDATE calls SET state = 'failed' WHERE state = 'started' AND call_key IN "
    "(SELECT call_key FROM attempts WHERE run_id = ? AND state = 'started')",
    f"{LOSE} AND run_id = ?",
)
Loaded = Callable[[], dict[str, Call]]
"""Function that fetches calls by key after their statements are sent."""


class Journal(Closing):
    """Journal over a database of either dialect."""

    statements: ClassVar[CallStatements]
    lock_run: ClassVar[str | None] = None
    """Statement that locks a run's calls in flight; ``None`` if transactions lock everything."""

    def __init__(self, database: "SqliteDatabase | PostgresDatabase") -> None:
        self._database = database

    def claim(self, intents: Sequence[CallIntent], owner: str) -> list[Claim]:
        """Claim calls, in order, in one durable transaction.

        An answered key is a hit, unless its answer ended before ``fresh_since_us`` and this
        evaluation never received it. A key under a live lease is busy, even for its owner. A key
        with an expired lease is granted again, and its old attempt counts as lost.

        Raises:
            StoreWriteError: nothing was claimed, or that is unknown because a connection dropped
                at the commit; such claims end with their leases.
        """
        if not intents:
            return []

        def change(connection: Any, state: tuple[dict[str, Call], int]) -> list[Claim]:
            (calls, now), writer = state, CallWriter(connection.execute, self.statements)
            claims = [claim(calls[i.call_key], i, owner, now, writer) for i in intents]
            _note_activity(connection, {(intent.run_id, owner) for intent in intents}, now)
            return claims

        return self._database.write(
            lambda c: self._timed(self._load_claimed(c, intents), c), change
        )

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Record the ends of attempts in one durable transaction.

        The first ``done`` of a key wins until it is too old. ``error_type`` and ``error`` of a
        failed attempt come from its outcome. Settling an attempt again changes nothing.

        Raises:
            ValueError: an attempt was never granted; nothing is recorded.
            StoreWriteError: nothing is recorded, or that is unknown.
        """
        if not settlements:
            return

        def change(connection: Any, state: tuple[dict[str, Call], int]) -> None:
            (calls, now), writer = state, CallWriter(connection.execute, self.statements)
            for settlement in settlements:
                calls.setdefault(settlement.call_key, Call(key=settlement.call_key))
            workers = {
                settle(calls[settlement.call_key], settlement, writer)
                for settlement in settlements
            }
            _note_activity(connection, {worker for worker in workers if worker is not None}, now)

        self._database.write(
            lambda c: self._timed(self._load_settled(c, settlements), c),
            change,
            is_idempotent=True,
        )

    @abstractmethod
    def answers(self, call_keys: Sequence[str]) -> dict[str, StoredAnswer]:
        """Return the stored ``done`` outcomes of these keys without claiming or writing.

        Answers of any age are included; each holds its time and the run that paid.
        """

    def totals(self, run_id: str, *, before_generation: int | None = None) -> CallTotals:
        """Return the totals of a run, optionally only of generations before ``before_generation``.

        ``active_s`` always covers the whole run.
        """
        earlier = "" if before_generation is None else " AND generation < ?"
        values = (run_id,) if before_generation is None else (run_id, before_generation)

        def read(connection: Connection) -> CallTotals:
            row = connection.execute(TOTALS_SQL + earlier, values).fetchone()
            return account(row, connection.execute(_ACTIVE, (run_id,)).fetchone()[0])

        return self._database.read(read)

    def abandon(self, run_id: str) -> list[LostCall]:
        """Release the claims of a run whose process is known to be dead; return the calls by age.

        Their attempts become ``failed`` with error type ``lost``; ``maybe_usd`` holds their
        worst-case cost.

        Raises:
            StoreDamagedError: a row of the run has changed since its writing; nothing was
                released.
            StoreWriteError: nothing was released, or that is unknown.
        """

        def lock(connection: Connection) -> Callable[[], list[tuple[Any, ...]]]:
            if self.lock_run is not None:
                connection.execute(self.lock_run, (run_id,))
            cursor = connection.execute(_IN_FLIGHT, (run_id,))
            return lambda: list(cursor.fetchall())

        def change(connection: Connection, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
            for statement in _ABANDON:
                connection.execute(statement, (run_id,))
            return rows

        self._database.read(lambda c: self._check(c, "run_id = ?", (run_id,)))
        if not self._database.read(lambda c: c.execute(_IN_FLIGHT, (run_id,)).fetchall()):
            return []
        rows = self._database.write(lock, change)
        return [LostCall(**dict(zip(LOST_COLUMNS, row, strict=True))) for row in rows]

    def attempts(
        self, run_id: str, *, generation: int | None, all_generations: bool = False
    ) -> list[Row]:
        """Return the ledger rows of one generation, by key; ``None`` selects those outside any.

        Raises:
            StoreDamagedError: a row has changed since its writing.
        """
        where = (
            "run_id = ?" if all_generations else "run_id = ? AND generation IS NOT DISTINCT FROM ?"
        )
        values = (run_id,) if all_generations else (run_id, generation)

        def read(connection: Connection) -> list[tuple[Any, ...]]:
            self._check(connection, where, values)
            sql = f"{LEDGER_SQL} WHERE {where} {LEDGER_ORDER}"
            return list(connection.execute(sql, values).fetchall())

        return [dict(zip(LEDGER, row, strict=True)) for row in self._database.read(read)]

    def service_days(self) -> dict[str, tuple[int, int]]:
        """Return the attempts of a service's runs, one run per day.

        The mapping is run → (attempts, attempts without an end).
        """
        sql = (
            "SELECT run_id, count(*), sum(CASE WHEN state = 'started' THEN 1 ELSE 0 END) "
            "FROM attempts WHERE run_id LIKE ? GROUP BY run_id ORDER BY run_id"
        )
        rows: Any = self._database.read(lambda c: c.execute(sql, (f"{ANSWERS}%",)).fetchall())
        return {run_id: (int(n), int(n_begun)) for run_id, n, n_begun in rows}

    def close(self) -> None:
        """Close the file or the connection; safe to call twice."""
        self._database.close()

    def _check(self, connection: Any, where: str, values: Sequence[Any]) -> None:
        if damaged := self._damaged(connection, where, values):
            raise damaged_error(damaged)

    def _timed(self, fetch: Loaded, connection: Any) -> Callable[[], tuple[dict[str, Call], int]]:
        """Request the time too; return a function that fetches the calls and the time."""
        clock = self._clock(connection)
        return lambda: (fetch(), clock())

    @abstractmethod
    def _clock(self, connection: Any) -> Callable[[], int]:
        """Return a function that reads the clock, in microseconds."""

    @abstractmethod
    def _damaged(self, connection: Any, where: str, values: Sequence[Any]) -> list[str]:
        """Return the names of attempts that have changed since their writing."""

    @abstractmethod
    def _load_claimed(self, connection: Any, intents: Sequence[CallIntent]) -> Loaded:
        """Lock the calls of these intents, creating missing ones; read their usable answers."""

    @abstractmethod
    def _load_settled(self, connection: Any, settlements: Sequence[Settlement]) -> Loaded:
        """Lock the calls of these settlements and read their attempts."""


def _note_activity(connection: Connection, workers: Iterable[tuple[str, str]], now: int) -> None:
    """Record until when each (run, owner) has worked, within an existing transaction."""
    for run_id, owner in sorted(workers):
        connection.execute(_SEEN, (run_id, owner, now, now))
