"""Cross-process rate limiter: a queue of send slots in the journal's database.

One row per endpoint holds the next free slot. A caller takes it and advances it by the reciprocal
of the rate. This is a token bucket of one token (J. Turner, "New Directions in Communications",
1986, "leaky bucket as a meter"). It allows no burst: a window of one second holds at most as many
slots as the rate, plus one at its edges.

An unused slot, e.g. of a killed process, is lost. Slots need not survive a power failure, and no
call waits in the database.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tasks.store.clock import wall_clock_us
from tasks.store.database import Closing, Schema
from tasks.store.journal.schema import POSTGRES_JOURNAL, RATES
from tasks.store.layout import ensure_store, store_root
from tasks.store.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from tasks.store.postgres import PostgresDatabase

RATES_FILE = "rates.sqlite"
MOST_AHEAD_S = 3600.0
"""Maximum distance of a slot in seconds; a slot further away means that a clock was set back."""
_MOST_US = round(MOST_AHEAD_S * 1e6)
_SCHEMA: Final = Schema(
    noun="rates",
    version=1,
    tables=(RATES,),
    loss="nothing is lost",
)
_TAKE = (
    "INSERT INTO rates AS r VALUES ({endpoint}, {now} + {gap}) ON CONFLICT (place) DO UPDATE SET "
    "next_us = CASE WHEN r.next_us > {now} + {most} OR r.next_us < {now} THEN {now} "
    "ELSE r.next_us END + {gap} RETURNING next_us - {gap} - {now}"
)
_TAKE_SQLITE = _TAKE.format(endpoint="?1", now="?2", gap="?3", most=_MOST_US)
# Read the clock after locking the row, since time passes while others hold it.
_NOW = "CAST(extract(epoch from clock_timestamp()) * 1e6 AS BIGINT)"
_TAKE_POSTGRES = _TAKE.format(endpoint="%(endpoint)s", now=_NOW, gap="%(gap)s", most=_MOST_US)


class Rates(Closing):
    """Send slots shared by all processes. Thread-safe; blocks."""

    def __init__(
        self,
        path: Path | str,
        url: str | None = None,
        *,
        now_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        """Open the send slots of a store, creating them if they are missing.

        Args:
            path: root folder of the store.
            url: URL of the journal's Postgres, whose clock is used; ``None`` means a file of the
                store, for one machine.
            now_us: clock of that machine.

        Raises:
            StoreError: the slots cannot be opened.
        """
        self._now_us = now_us
        self._shared = None if url is None else _shared(url)
        if url is None:
            root = store_root(path)
            ensure_store(root)
            self._database = SqliteDatabase(root / RATES_FILE, _SCHEMA)

    def take(self, endpoint: str, per_second: float) -> float:
        """Take the next slot of an endpoint; return the seconds until it, 0 for now.

        Args:
            endpoint: endpoint of the calls.
            per_second: calls per second of all processes together, which should agree on it.

        Raises:
            StoreError: the database cannot be used.
        """
        gap = round(1e6 / per_second)
        if self._shared is not None:
            values = {"endpoint": endpoint, "gap": gap}
            # A repetition after a dropped connection wastes a slot but never grants one twice.
            wait_us = self._shared.read(lambda c: c.execute(_TAKE_POSTGRES, values).fetchone()[0])
        else:
            with self._database.transaction() as connection:
                rows = connection.execute(_TAKE_SQLITE, (endpoint, self._now_us(), gap)).fetchall()
            ((wait_us,),) = rows
        return max(0.0, float(wait_us) / 1e6)

    def close(self) -> None:
        """Close the file or the connection; safe to call twice."""
        (self._shared or self._database).close()


def _shared(url: str) -> "PostgresDatabase":
    from tasks.store.postgres import PostgresDatabase  # noqa: PLC0415 - optional

    return PostgresDatabase(url, POSTGRES_JOURNAL)
