"""SQLite with durable commits, shared by many processes.

Recipe: take the file lock (a fair queue, which the kernel releases on kill -9), BEGIN IMMEDIATE,
statements, COMMIT with ``synchronous=NORMAL``, release the lock, ``fsync`` the ``-wal``, return.
The commit survives kill -9, and the sync a power loss. The sync happens outside the lock, so
others commit meanwhile and one sync serves many.

SQLite comes from apsw. The versions of many systems (3.7.0 to 3.51.2) can lose committed
transactions in WAL mode when writes and checkpoints race, so they are rejected.
"""

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import apsw

from convergence_core.errors import StoreDamagedError, StoreError
from tasks.store.database import Closing, Schema, check_usable
from tasks.store.layout import sync_folder, write_error, writing

_Locked = TypeVar("_Locked")
_Result = TypeVar("_Result")

_REFUSALS = (
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.PermissionsError,
    apsw.BusyError,
)
"""SQLite's errors on files that cannot be written."""
_BUSY_MS = 30_000
_CACHE_KIB = 16_384
_STATEMENTS = 512
"""Size of the cache of prepared statements. The cache is a ring: at the default of 100, a
statement used in one of ten requests is parsed each time.
"""


def checked_version() -> str:
    """Return the version of the SQLite library.

    Raises:
        StoreError: this version can lose committed transactions.
    """
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split("."))) < (3, 51, 3):
        raise StoreError(
            f"SQLite must be of version 3.51.3 or later, but is {version}, which can lose commits in "
            'WAL mode. Install one: pip install --force-reinstall "apsw>=3.51.3"'
        )
    return version


class SqliteDatabase(Closing):
    """One connection to a file. Thread-safe; must not cross a fork."""

    def __init__(self, path: Path, schema: Schema) -> None:
        """Open the file, creating it if it is missing.

        Raises:
            StoreDamagedError: the file is not an SQLite database.
            StoreError: the SQLite library can lose commits.
            StoreFormatError: a newer version wrote the file.
            StoreWriteError: the file cannot be created or written.
        """
        checked_version()
        self.path = path
        self._schema = schema
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._wal_path = f"{path}-wal"
        self._wal_descriptor = -1
        self._wal_inode = -1
        self._sync_mutex = threading.Lock()
        self._failure: str | None = None
        self._explained = _Explained(path, self._schema)
        with writing(path):
            with contextlib.suppress(FileExistsError):
                # The file is new, so closing it releases no lock of this process.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            self._lock_descriptor = os.open(
                path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        try:
            with self._explained:
                self._connection = apsw.Connection(str(path), statementcachesize=_STATEMENTS)
        except BaseException:
            os.close(self._lock_descriptor)
            raise
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        with self._explained, self._file_lock():
            self._connection.set_busy_timeout(_BUSY_MS)
            self._connection.pragma("cache_size", -_CACHE_KIB)
            version = self._connection.pragma("user_version")
            updates = self._schema.updates(
                version,
                database=f"the {self._schema.noun} {self.path}",
                setting="`storage.path` to another folder",
            )
            self._connection.pragma("journal_mode", "wal")
            self._connection.pragma("synchronous", "normal")
            if updates:
                with self._connection:
                    for script in updates:
                        self._connection.execute(script)
                    self._connection.pragma("user_version", self._schema.version)
        with writing(self.path):
            sync_folder(self.path.parent)
            self._sync()

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Yield the connection for SELECTs, without lock or commit."""
        self._check_usable()
        with self._mutex, self._explained:
            yield self._connection

    @contextlib.contextmanager
    def transaction(self, *, alone: bool = False) -> Iterator[apsw.Connection]:  # noqa: ARG002
        """Yield the connection for one transaction, durable after the block.

        Args:
            alone: no effect, since every transaction here runs alone.

        Raises:
            StoreWriteError: nothing of the transaction is kept, or its durability is unknown.
        """
        self._check_usable()
        connection = self._connection
        with self._mutex, self._explained:
            # Without ``_file_lock``, which would add a generator to each commit.
            fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX)
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                fcntl.flock(self._lock_descriptor, fcntl.LOCK_UN)
        try:
            self._sync()
        except OSError as error:
            # The kernel may have dropped the pages, so a later sync would succeed without them.
            self._failure = error.strerror or str(error)
            raise write_error(self.path, self._failure) from error

    def read(self, work: Callable[[apsw.Connection], _Result]) -> _Result:
        """Return the result of SELECTs in ``work``."""
        with self.reading() as connection:
            return work(connection)

    def write(
        self,
        lock: Callable[[apsw.Connection], Callable[[], _Locked]],
        change: Callable[[apsw.Connection, _Locked], _Result],
        *,
        is_idempotent: bool = False,  # noqa: ARG002 - a file's connection does not drop
    ) -> _Result:
        """Run one transaction and return its result; see ``PostgresDatabase.write``."""
        with self.transaction() as connection:
            return change(connection, lock(connection)())

    def scrub(self) -> None:
        """Rewrite the file and empty its log, so that deleted rows leave no trace.

        Raises:
            StoreWriteError: another process reads for too long; call again.
        """
        self._check_usable()
        with self._mutex, self._explained, self._file_lock():
            self._connection.execute("VACUUM")
            (is_busy, _, _), *_ = self._connection.execute(
                "PRAGMA wal_checkpoint(TRUNCATE)"
            ).fetchall()
            if is_busy:
                raise write_error(self.path, "another process reads it")

    def close(self) -> None:
        """Close the connection and its descriptors; safe to call twice."""
        with self._mutex:
            if self._lock_descriptor < 0:
                return
            if os.getpid() == self._pid:
                with self._explained, self._file_lock():
                    self._connection.close()
            if self._wal_descriptor >= 0:
                os.close(self._wal_descriptor)
            os.close(self._lock_descriptor)
            self._lock_descriptor = self._wal_descriptor = -1

    def _check_usable(self) -> None:
        name = f"the {self._schema.noun} {self.path}"
        check_usable(name, opened_by=self._pid, is_closed=self._lock_descriptor < 0)
        if self._failure is not None:
            raise write_error(self.path, self._failure)

    @contextlib.contextmanager
    def _file_lock(self) -> Iterator[None]:
        fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock_descriptor, fcntl.LOCK_UN)

    def _sync(self) -> None:
        with self._sync_mutex:
            # The -wal file is new after the last connection was closed.
            try:
                inode = os.stat(self._wal_path).st_ino  # noqa: PTH116 - for each commit, and a tenth as long
            except FileNotFoundError:
                return  # nothing was written since the opening
            if inode != self._wal_inode:
                if self._wal_descriptor >= 0:
                    os.close(self._wal_descriptor)
                self._wal_descriptor = os.open(self._wal_path, os.O_RDWR | os.O_CLOEXEC)
                self._wal_inode = os.fstat(self._wal_descriptor).st_ino
                sync_folder(self.path.parent)
            descriptor = self._wal_descriptor
        os.fsync(descriptor)


class _Explained:
    """Context manager that turns SQLite's errors into ours; reusable for each transaction."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self._path, self._schema = path, schema

    def __enter__(self) -> None:
        """Enter the block."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Raise our error instead of SQLite's."""
        is_torn = isinstance(error, apsw.NotADBError | apsw.CorruptError | UnicodeDecodeError)
        if is_torn or (isinstance(error, apsw.SQLError) and "no such" in str(error)):
            raise StoreDamagedError(
                f"the {self._schema.noun} {self._path} is damaged: {error}. Restore it from a "
                f"backup, or move it away: {self._schema.loss}."
            ) from error
        if isinstance(error, _REFUSALS):
            raise write_error(self._path, str(error)) from error


def rows_read_only(path: Path, sql: str, bindings: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the rows of a SELECT from a file without creating or writing it.

    Raises:
        FileNotFoundError: there is no such file.
        apsw.Error: the file cannot be read, stays locked, or has another version.
    """
    if not path.is_file():
        raise FileNotFoundError(path)
    # Without a log no process has the file open, and SQLite would create one to read.
    has_log = path.with_name(f"{path.name}-wal").exists()
    uri = path.as_uri() + ("" if has_log else "?immutable=1")
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with contextlib.closing(apsw.Connection(uri, flags=flags)) as connection:
        connection.set_busy_timeout(1_000)
        return connection.execute(sql, bindings).fetchall()
