"""Lease on an optimized system, held by at most one process.

It is a row with an expiry in the journal's file, which a thread renews. A claimant replaces a
holder that is known to be dead (same machine and boot, process gone) immediately, and any other
after the expiry.
"""

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from convergence_core.errors import LeaseHeldError, StoreError
from tasks.store.clock import moment, wall_clock_us
from tasks.store.database import Closing
from tasks.store.journal.process_marks import ProcessMark, is_dead, this_process
from tasks.store.journal.schema import SQLITE_JOURNAL
from tasks.store.layout import JOURNAL_FILE, ensure_store, store_root
from tasks.store.sqlite import SqliteDatabase, rows_read_only

LEASE_S = 60.0
"""Seconds until an unrenewed lease expires."""

_HOLDER = "pid, host, machine, pid_started, expires_us, acquired_us"
_HOLDER_OF = f"SELECT {_HOLDER} FROM leases WHERE system = ?"  # noqa: S608 - constants


class Lease(Closing):
    """The right to optimize one system of one store.

    ``with Lease(path, name).acquire(): …`` holds it for the block.
    """

    def __init__(
        self,
        path: Path | str,
        system: str,
        *,
        lease_s: float = LEASE_S,
        now_us: Callable[[], int] = wall_clock_us,
        mark: ProcessMark | None = None,
    ) -> None:
        """Prepare a lease without acquiring it.

        Args:
            path: root folder of the store.
            system: name of the optimized system.
            lease_s: seconds until an unrenewed lease expires.
            now_us: clock.
            mark: the holder; this process by default.
        """
        self._root = store_root(path)
        self._system = system
        self._lease_us = int(lease_s * 1e6)
        self._now_us = now_us
        self._mark = mark
        self._owner = uuid.uuid4().hex
        self._database: SqliteDatabase | None = None
        self._renewer: threading.Thread | None = None
        self._released = threading.Event()
        self.lost = False
        """Whether another process took the lease, e.g. after a sleep longer than its expiry."""

    def acquire(self) -> "Lease":
        """Acquire the lease, start renewing it and return this object.

        Raises:
            LeaseHeldError: another live process holds it.
            StoreError: the store cannot be used.
        """
        ensure_store(self._root)
        database = SqliteDatabase(self._root / JOURNAL_FILE, SQLITE_JOURNAL)
        try:
            self._take(database)
        except BaseException:
            database.close()
            raise
        self._database = database
        self._released.clear()
        self._renewer = threading.Thread(
            target=self._renew_until_released, name=f"lease-{self._system}", daemon=True
        )
        self._renewer.start()
        return self

    def close(self) -> None:
        """Release the lease; safe to call twice."""
        self._released.set()
        if self._renewer is not None:
            self._renewer.join()
            self._renewer = None
        if self._database is None:
            return
        try:
            with self._database.transaction() as connection:
                connection.execute(
                    "DELETE FROM leases WHERE system = ? AND owner = ?",
                    (self._system, self._owner),
                )
        finally:
            self._database.close()
            self._database = None

    def renew(self) -> bool:
        """Extend the expiry; return whether this process still holds the lease.

        Raises:
            StoreWriteError: the row could not be written; the old expiry stands.
        """
        assert self._database is not None, "renewed without having been acquired"  # noqa: S101
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE leases SET expires_us = ? WHERE system = ? AND owner = ?",
                (self._now_us() + self._lease_us, self._system, self._owner),
            )
            self.lost = connection.changes() == 0
        return not self.lost

    def _take(self, database: SqliteDatabase) -> None:
        mark = self._mark or this_process()
        now = self._now_us()
        with database.transaction() as connection:
            row = connection.execute(_HOLDER_OF, (self._system,)).fetchone()
            holder = _holder(row, now)
            if row is not None and holder is not None:
                raise LeaseHeldError(
                    f"process {holder.pid} on {holder.host} has optimized {self._system!r} in the "
                    f"store {self._root} since {moment(row[5])}; its lease expires at "
                    f"{moment(row[4])} unless it is renewed. Wait for it or stop it, or give this "
                    "system another `api.name` or `storage.path`."
                )
            connection.execute(
                "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (self._system, self._owner, mark.pid, mark.host, mark.machine, mark.started, now,
                 now + self._lease_us),
            )  # fmt: skip
        self.lost = False

    def _renew_until_released(self) -> None:
        while not self._released.wait(self._lease_us / 3e6):
            try:
                if not self.renew():
                    return
            except StoreError:
                # The disk may be full temporarily. The row stands until its expiry, and the run's
                # own writes report the problem.
                continue


def systems_of(journal: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return the systems that a process optimizes, and those with an abandoned lease.

    The holder of a system in the first set is not known to be dead.

    Args:
        journal: the journal's file, opened read-only; a read-only disk is enough.

    Raises:
        FileNotFoundError: there is no such file.
        apsw.Error: it cannot be read, or has another version.
    """
    rows = rows_read_only(journal, f"SELECT system, {_HOLDER} FROM leases")  # noqa: S608 - constants
    now = wall_clock_us()
    held = frozenset(row[0] for row in rows if _holder(row[1:], now) is not None)
    return held, frozenset(row[0] for row in rows) - held


def holder_of(journal: Path, system: str) -> ProcessMark | None:
    """Return the process that optimizes a system; ``None`` if none does.

    Raises:
        FileNotFoundError: there is no such file.
        apsw.Error: it cannot be read, or has another version.
    """
    rows = rows_read_only(journal, _HOLDER_OF, (system,))
    return _holder(rows[0] if rows else None, wall_clock_us())


@contextlib.contextmanager
def while_unheld(root: Path, system: str) -> Iterator[bool]:
    """Block acquisition of a system's lease for the block; yield whether it is free.

    Raises:
        StoreError: the journal cannot be used.
    """
    database = SqliteDatabase(root / JOURNAL_FILE, SQLITE_JOURNAL)
    try:
        with database.transaction() as connection:
            row = connection.execute(_HOLDER_OF, (system,)).fetchone()
            yield _holder(row, wall_clock_us()) is None
    finally:
        database.close()


def _holder(row: Sequence[Any] | None, now_us: int) -> ProcessMark | None:
    """Return the live holder of a lease from a row of ``_HOLDER``; ``None`` if there is none."""
    if row is None:
        return None
    pid, host, machine, started, expires_us, _ = row
    mark = ProcessMark(pid=pid, host=host, machine=machine, started=started)
    return None if expires_us <= now_us or is_dead(mark) else mark
