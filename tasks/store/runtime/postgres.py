"""The runtime state in Postgres: shared by machines, with the statements of the file.

The statements are SQLite's; ``translated`` gives tables a prefix, values their place, and rows that must
be read for a change (``/*lock*/``) a lock on their group. Numbers come from sequences, which are not handed out in the
order of commits. So writers hold one lock together while they write, and an export, which
must not pass over a number, takes it alone for the moment in which it looks for the last one. Rewards of
a group wait for each other, so theirs are in order.
"""

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from convergence_core.errors import StoreError, StoreFormatError, StoreWriteError
from tasks.store.journal.postgres import check_installed, secrets_of, settings_of
from tasks.store.runtime.schema import TABLES, VARIABLE, VERSION, upgrade
from tasks.store.runtime.writes import Cursor

if TYPE_CHECKING:
    import psycopg

LOCKS = "/*lock*/"
"""Ends a statement whose group nobody else may change until the transaction ends."""
_PREFIX = "convergence_"
_NAMES = re.compile(rf"\b({'|'.join((*TABLES, 'one_reward', 'one_request'))})\b")
_LOCK = 0x434F4E57
"""Held by writers together and by an export alone; any number that others do not lock."""
_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit TO on; "
    "SELECT pg_advisory_xact_lock{}({})"
)


@lru_cache(512)
def translated(sql: str) -> str:
    """Return a statement of SQLite as one of Postgres."""
    renamed = _NAMES.sub(lambda match: _PREFIX + match[1], sql)
    return renamed.replace("?", "%s")


def postgres_ddl(sqlite_ddl: str) -> str:
    """Return the tables' definition for Postgres; text sorts by its bytes, as in SQLite."""
    ddl = _NAMES.sub(lambda match: _PREFIX + match[1], sqlite_ddl)
    ddl = ddl.replace("INTEGER PRIMARY KEY", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
    ddl = ddl.replace(") WITHOUT ROWID", ")")
    ddl = re.sub(r"\bINTEGER\b", "BIGINT", ddl)
    ddl = re.sub(r"\bREAL\b", "DOUBLE PRECISION", ddl)
    return re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', ddl)


class PostgresRuntime:
    """The runtime state's tables in one database. Thread-safe: one connection, made again if it drops."""

    def __init__(self, url: str) -> None:
        """Connect, creating the tables or bringing them up to date.

        Raises:
            StoreError: the URL is none of Postgres, or ``psycopg`` is not installed.
            StoreFormatError: the tables are of a newer version.
            StoreWriteError: the server cannot be reached or written.
        """
        check_installed(VARIABLE)
        self._settings = settings_of(url, VARIABLE)
        self._secrets = secrets_of(url, self._settings)
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._is_closed = False
        try:
            with self._mutex, self._explained():
                self._prepare(self._connected())
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def reading(self) -> "Iterator[_Connection]":
        """Give the connection for SELECTs: no transaction, no lock."""
        self._check_usable()
        with self._mutex, self._explained():
            yield _Connection(self._connected())

    @contextlib.contextmanager
    def transaction(self, *, alone: bool = False) -> "Iterator[_Connection]":
        """Give one transaction, durable when the block has been left.

        Args:
            alone: wait for all that write, and let nobody write beside.

        Raises:
            StoreWriteError: nothing of it is kept, or that is unknown.
        """
        self._check_usable()
        with self._mutex, self._explained():
            connection = self._connected()
            connection.execute(_BEGIN.format("" if alone else "_shared", _LOCK).encode())
            try:
                yield _Connection(connection)
                connection.execute("COMMIT")
            except BaseException:
                if not connection.closed:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        with self._mutex:
            self._is_closed = True
            self._drop()

    def _connected(self) -> "psycopg.Connection[tuple[Any, ...]]":
        import psycopg  # noqa: PLC0415 - optional

        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(**self._settings, autocommit=True)
        return self._connection

    def _prepare(self, connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
        with connection.transaction():
            # Two at once would create the same table: IF NOT EXISTS alone is a race.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK + 1,))
            connection.execute(f"CREATE TABLE IF NOT EXISTS {_PREFIX}runtime(version BIGINT)")
            found = connection.execute(f"SELECT max(version) FROM {_PREFIX}runtime").fetchone()  # noqa: S608 - a constant
            version = None if found is None else found[0]
            if version is None or version < VERSION:
                connection.execute(postgres_ddl(upgrade(version or VERSION)).encode())
                connection.execute(f"INSERT INTO {_PREFIX}runtime VALUES (%s)", (VERSION,))  # noqa: S608 - as above
            elif version > VERSION:
                raise StoreFormatError(
                    f"the runtime state in the database of {VARIABLE} has version {version}, and "
                    f"this version reads {VERSION}. Upgrade convergence-optimizer, or name another "
                    "database."
                )

    def _drop(self) -> None:
        if self._connection is not None and os.getpid() == self._pid:
            self._connection.close()
        self._connection = None

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(
                f"the runtime state of {VARIABLE} was opened by process {self._pid} and this is a "
                "fork of it. Open it again here."
            )
        if self._is_closed:
            raise StoreError(f"the runtime state of {VARIABLE} is closed. Open it again.")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors into ours; raised outside of the handler, for psycopg's may hold the password."""
        import psycopg  # noqa: PLC0415 - optional

        refused: Exception | None = None
        try:
            yield
        except psycopg.DataError as error:
            refused = ValueError(f"a value cannot be stored: {self._scrubbed(error)}")
        except psycopg.Error as error:
            refused = StoreWriteError(
                f"cannot use the runtime state in the database of {VARIABLE}: "
                f"{self._scrubbed(error)}. Check that the server runs and that this user may write "
                "there. What was acknowledged is kept."
            )
            self._drop()
        if refused is not None:
            raise refused

    def _scrubbed(self, error: Exception) -> str:
        text = " ".join(line.strip() for line in str(error).splitlines()) or type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text.rstrip(".")


class _Connection:
    """A connection that takes SQLite's statements."""

    def __init__(self, connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
        self._connection = connection
        self._changes = 0

    def execute(self, statements: str, bindings: Any = (), /) -> Cursor:
        """Run a statement; one that locks is run again, to see what was committed meanwhile."""
        if LOCKS in statements:
            locking = translated(statements) + " FOR UPDATE OF g"
            self._connection.execute(locking.encode(), bindings or None)
        cursor = self._connection.execute(translated(statements).encode(), bindings or None)
        self._changes = max(cursor.rowcount, 0)
        return cursor

    def changes(self) -> int:
        """Return the rows that the last statement changed."""
        return self._changes
