"""How fast all processes together may ask one place: a queue of moments in the journal's database.

One row per place holds the earliest moment at which the next call may leave. Whoever wants to call
takes that moment and moves it on by the reciprocal of the rate: a token bucket that holds one token
(J. Turner, "New Directions in Communications", 1986, "leaky bucket as a meter"), so that there is no
burst and every window of a second holds at most as many moments as the rate, and one for its edges.

A moment nobody uses, e.g. of a process that was killed, is lost. Nothing here has to outlive a power
failure, and no call waits in the database.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import apsw

from tasks.store.clock import wall_clock_us
from tasks.store.journal.sqlite import Closing, DurableDatabase, Schema
from tasks.store.tables.layout import ensure_store, store_root

if TYPE_CHECKING:
    from tasks.store.journal.postgres import Connection

RATES_FILE = "rates.sqlite"
MOST_AHEAD_S = 3600.0
"""A moment further away than this was not meant: a clock was set back."""

_TAKE = (
    "INSERT INTO rates(place, next_us) VALUES (:place, :now + :gap) "
    "ON CONFLICT(place) DO UPDATE SET next_us = "
    "CASE WHEN next_us > :now + :most THEN :now ELSE max(next_us, :now) END + :gap "
    "RETURNING next_us - :gap - :now"
)
_SCHEMA_LOCK = 0x434F4E57
"""Beside the journal's own."""
_DDL_POSTGRES = (
    "CREATE TABLE IF NOT EXISTS convergence_rates("
    'place text COLLATE "C" PRIMARY KEY, next_us bigint NOT NULL)'
)
_NOW = "(extract(epoch from clock_timestamp()) * 1e6)::bigint"
# The clock is read once the row is locked: time passes while others hold it.
_TAKE_POSTGRES = (
    f"INSERT INTO convergence_rates AS r VALUES (%(place)s, {_NOW} + %(gap)s) "  # noqa: S608 - constants
    f"ON CONFLICT (place) DO UPDATE SET next_us = CASE WHEN r.next_us > {_NOW} + %(most)s "
    f"THEN {_NOW} ELSE greatest(r.next_us, {_NOW}) END + %(gap)s "
    f"RETURNING next_us - %(gap)s - {_NOW}"
)


class Rates(Protocol):
    """Moments to call at, given to all processes in turn. Thread-safe; both methods block."""

    def take(self, place: str, per_second: float) -> float:
        """Take the next moment of a place; return in how many seconds it is, 0 for now.

        Args:
            place: who is asked.
            per_second: calls per second of all processes together; all should say the same.

        Raises:
            StoreError: the database cannot be used.
        """
        ...

    def close(self) -> None:
        """Free what is held; safe to call twice."""
        ...


def open_rates(path: Path | str, url: str | None = None) -> Rates:
    """Open the moments of a store.

    Args:
        path: root folder of the store.
        url: of the journal's Postgres; ``None``: a file of the store, for one machine.

    Raises:
        StoreError: they cannot be opened.
    """
    return SqliteRates(path) if url is None else PostgresRates(url)


def _make(connection: apsw.Connection, _: int) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS rates(place text PRIMARY KEY, next_us int NOT NULL) "
        "WITHOUT ROWID; PRAGMA user_version = 1"
    )


class SqliteRates(Closing):
    """The ``Rates`` of the processes of one machine."""

    def __init__(
        self,
        path: Path | str,
        *,
        now_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        """Open the file of a store, creating it if need be.

        Raises:
            StoreError: it cannot be created or written.
        """
        root = store_root(path)
        ensure_store(root)
        schema = Schema(noun="rates", version=1, bring_up_to_date=_make, loss="nothing is lost")
        self._database = DurableDatabase(root / RATES_FILE, schema)
        self._now_us = now_us

    def take(self, place: str, per_second: float) -> float:
        """Take the next moment of a place; see ``Rates``."""
        with self._database.transaction() as connection:
            values = {
                "place": place,
                "gap": round(1e6 / per_second),
                "now": self._now_us(),
                "most": round(MOST_AHEAD_S * 1e6),
            }
            ((wait_us,),) = connection.execute(_TAKE, values).fetchall()
        assert isinstance(wait_us, int)  # noqa: S101 - of integers
        return wait_us / 1e6

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._database.close()


class PostgresRates(Closing):
    """The ``Rates`` of several machines, by the server's clock."""

    def __init__(self, url: str) -> None:
        """Connect to the journal's database, creating the table if need be.

        Raises:
            StoreError: the server cannot be reached or written.
        """
        from tasks.store.journal.postgres import PostgresDatabase  # noqa: PLC0415 - optional

        self._database = PostgresDatabase(url)
        try:
            self._database.read(_make_in_postgres)
        except BaseException:
            self.close()
            raise

    def take(self, place: str, per_second: float) -> float:
        """Take the next moment of a place; see ``Rates``."""
        values = {
            "place": place,
            "gap": round(1e6 / per_second),
            "most": round(MOST_AHEAD_S * 1e6),
        }

        def work(connection: "Connection") -> float:
            ((wait_us,),) = connection.execute(_TAKE_POSTGRES, values).fetchall()
            return max(0.0, float(wait_us) / 1e6)

        # Done twice after a dropped connection, it loses a moment, and gives none twice.
        return self._database.read(work)

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        self._database.close()


def _make_in_postgres(connection: "Connection") -> None:
    if connection.execute("SELECT to_regclass('convergence_rates')").fetchall() != [(None,)]:
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
        connection.execute(_DDL_POSTGRES)
