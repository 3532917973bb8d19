"""PostgreSQL connection that reconnects and hides secrets.

Statements are SQLite's. ``translated`` prefixes tables and converts placeholders, and ``execute``
locks the group of statements that end in ``/*lock*/``.

The journal writes in two round trips: one locks and reads, one writes and commits. If the
connection drops before the second, nothing has changed and both are repeated on a new connection.
A drop during the second leaves it unknown whether the commit happened.

Row numbers of the runtime state come from sequences, whose order differs from that of the commits.
Writers therefore share a lock while they write. An export takes it exclusively while it reads the
last number, so that it skips none. Rewards of a group wait for each other, so their numbers are in
order.

``psycopg`` (the extra ``postgres``) is imported when a database is opened.
"""

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from convergence_core.errors import StoreError, StoreFormatError, StoreWriteError
from tasks.store.database import Closing, Schema, check_usable
from tasks.version import install_command

if TYPE_CHECKING:
    import psycopg

    Driver = psycopg.Connection[tuple[Any, ...]]

LOCKS = "/*lock*/"
"""End of a statement whose group stays locked until the transaction ends."""
PREFIX = "convergence_"
_SCHEMA_LOCK = 0x434F4E56
"""Advisory lock held while tables are created; the arbitrary number spells "CONV"."""
_WRITERS_LOCK = _SCHEMA_LOCK + 1
"""Advisory lock that writers of the runtime state share and an export holds alone."""
_BEGIN = ("BEGIN ISOLATION LEVEL READ COMMITTED", "SET LOCAL synchronous_commit TO on")
_SETTINGS = {
    "connect_timeout": 10,
    "application_name": "convergence",
    "client_encoding": "utf8",
    # Detects a silently vanished peer within a minute.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
"""Connection settings, unless the URL overrides them."""
_TRIES = 3
_TYPES = (
    (
        r"\bINTEGER PRIMARY KEY( AUTOINCREMENT)?\b",
        "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    ),
    (r"\) WITHOUT ROWID\b", ")"),
    (r"\bINTEGER\b", "BIGINT"),
    (r"\bREAL\b", "DOUBLE PRECISION"),
    # Text sorts by bytes, as in SQLite.
    (r"\bTEXT\b", 'TEXT COLLATE "C"'),
)

_NAMED = re.compile(r"(?<![:\w]):([a-z]\w*)")
"""A named placeholder of SQLite, as opposed to a cast of PostgreSQL."""
_Locked = TypeVar("_Locked")
_Result = TypeVar("_Result")


@lru_cache(512)
def translated(sql: str, tables: tuple[str, ...]) -> str:
    """Translate a statement from SQLite to PostgreSQL, given the names of its tables."""
    named = re.sub(rf"\b({'|'.join(tables)})\b", rf"{PREFIX}\1", sql).replace("?", "%s")
    return _NAMED.sub(r"%(\1)s", named)


def translated_ddl(sqlite_ddl: str, tables: tuple[str, ...]) -> str:
    """Translate table definitions from SQLite to PostgreSQL."""
    ddl = translated(sqlite_ddl, tables)
    for pattern, replacement in _TYPES:
        ddl = re.sub(pattern, replacement, ddl)
    return ddl


class PostgresConnection:
    """PostgreSQL connection that accepts SQLite's statements."""

    def __init__(self, driver: "Driver", tables: tuple[str, ...]) -> None:
        self.driver = driver
        self._tables = tables
        self._changes = 0

    def execute(self, statements: str, bindings: Any = (), /) -> Any:
        """Run a statement; a locking one runs again to see concurrent commits."""
        sql = translated(statements, self._tables)
        if LOCKS in sql:
            self.driver.execute(f"{sql} FOR UPDATE OF g".encode(), bindings or None)
        cursor = self.driver.execute(sql.encode(), bindings or None)
        self._changes = max(cursor.rowcount, 0)
        return cursor

    def changes(self) -> int:
        """Return the number of rows that the last statement changed."""
        return self._changes


class PostgresDatabase(Closing):
    """Tables of one schema. Thread-safe: one connection, which reconnects after a drop."""

    def __init__(self, url: str, schema: Schema) -> None:
        """Connect, creating the tables if they are missing.

        Raises:
            StoreError: the URL is not a Postgres URL, or ``psycopg`` is not installed.
            StoreFormatError: the tables have a newer version, or the database is not UTF-8.
            StoreWriteError: the server cannot be reached or written.
        """
        check_installed(schema.key)
        self._schema = schema
        self._settings = settings_of(url, schema.key)
        password = str(self._settings.get("password") or "")
        # Removed from messages, longest first.
        self._secrets = sorted({url, password, quote(password, safe="")} - {""}, key=len)[::-1]
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._driver: Driver | None = None
        self._is_closed = False
        host = self._settings.get("host", "localhost")
        database = f"{self._settings.get('dbname', '')} on {host}".strip()
        self._name = f"the {schema.noun} in the Postgres database {database}"
        try:
            self.read(self._prepare)
        except BaseException:
            self.close()
            raise

    def read(self, work: Callable[[PostgresConnection], _Result]) -> _Result:
        """Return the result of SELECTs in ``work``, without transaction or lock."""
        return self._attempted(work, is_repeatable=lambda: True)

    def write(
        self,
        lock: Callable[[PostgresConnection], Callable[[], _Locked]],
        change: Callable[[PostgresConnection, _Locked], _Result],
        *,
        is_idempotent: bool = False,
    ) -> _Result:
        """Run one durable transaction of two round trips and return its result.

        Args:
            lock: sends statements that lock and read; returns a function that fetches their rows.
            change: sends statements that write; it fetches nothing.
            is_idempotent: whether a repetition is harmless, so that the transaction is retried
                after a drop during the commit.

        Raises:
            StoreWriteError: nothing of the transaction is kept, or that is unknown.
        """
        is_committing = False

        def transaction(connection: PostgresConnection) -> _Result:
            nonlocal is_committing
            is_committing = False
            with connection.driver.pipeline():
                for statement in _BEGIN:
                    connection.execute(statement)
                fetch = lock(connection)
            fetched = fetch()
            is_committing = True
            with connection.driver.pipeline():
                result = change(connection, fetched)
                connection.execute("COMMIT")
            return result

        return self._attempted(
            transaction, is_repeatable=lambda: is_idempotent or not is_committing
        )

    @contextlib.contextmanager
    def reading(self) -> Iterator[PostgresConnection]:
        """Yield the connection for SELECTs, without transaction or lock."""
        import psycopg  # noqa: PLC0415 - optional

        self._check_usable()
        raised: Exception
        with self._mutex:
            try:
                yield self._connected()
                return
            except psycopg.DataError as error:
                raised = ValueError(f"a value cannot be stored: {self._scrubbed(error)}")
            except psycopg.Error as error:
                raised = self._failure(self._scrubbed(error))
                self._drop()
        raise raised  # outside the handler, since psycopg's error may hold the password

    @contextlib.contextmanager
    def transaction(self, *, alone: bool = False) -> Iterator[PostgresConnection]:
        """Yield the connection for one transaction, durable after the block.

        Args:
            alone: whether the transaction waits for all writers and excludes new ones.

        Raises:
            StoreWriteError: nothing of the transaction is kept, or that is unknown.
        """
        shared = "" if alone else "_shared"
        lock = f"SELECT pg_advisory_xact_lock{shared}({_WRITERS_LOCK})"
        with self.reading() as connection:
            connection.execute("; ".join((*_BEGIN, lock)))
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if not connection.driver.closed:
                    connection.execute("ROLLBACK")
                raise

    def scrub(self) -> None:
        """Rewrite the tables, so that deleted rows leave no trace in their files."""
        with self.reading() as connection:
            for (name,) in connection.driver.execute(
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname = ANY(%s) "
                "AND pg_table_is_visible(oid)",
                ([f"{PREFIX}{name}" for name in self._schema.names],),
            ).fetchall():
                connection.driver.execute(f"VACUUM FULL {name}".encode())  # a name from the schema

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        with self._mutex:
            self._is_closed = True
            self._drop()

    def _attempted(
        self, work: Callable[[PostgresConnection], _Result], *, is_repeatable: Callable[[], bool]
    ) -> _Result:
        """Run ``work``, again after a dropped connection or a lost race for locks."""
        import psycopg  # noqa: PLC0415 - optional

        self._check_usable()
        reason = ""
        with self._mutex:
            for _ in range(_TRIES):
                try:
                    return work(self._connected())
                except psycopg.Error as error:
                    reason = self._scrubbed(error)
                    is_dropped = self._driver is not None and self._driver.closed
                    is_race = isinstance(error, psycopg.errors.TransactionRollback)
                    self._drop()
                    if not is_race and not (is_dropped and is_repeatable()):
                        break
                except BaseException:
                    self._drop()  # the server rolls the transaction back
                    raise
        raise self._failure(reason)  # outside the handler, as above

    def _connected(self) -> PostgresConnection:
        import psycopg  # noqa: PLC0415 - optional

        if self._driver is None or self._driver.closed:
            self._driver = None
            self._driver = psycopg.connect(**self._settings, autocommit=True)
        return PostgresConnection(self._driver, self._schema.names)

    def _prepare(self, connection: PostgresConnection) -> None:
        schema, versions, driver = self._schema, self._schema.names[0], connection.driver
        known = connection.execute(f"SELECT to_regclass('{versions}')").fetchone()
        if known != (None,) and self._version(connection) == schema.version:
            return
        encoding = driver.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreFormatError(
                f"{self._name} must have the encoding UTF8, but has {encoding}. Create another "
                "database with `CREATE DATABASE … ENCODING 'UTF8'`."
            )
        with driver.transaction():
            # IF NOT EXISTS alone is a race between two processes that create the same table.
            connection.execute("SELECT pg_advisory_xact_lock(?)", (_SCHEMA_LOCK,))
            connection.execute(f"CREATE TABLE IF NOT EXISTS {versions}(version int NOT NULL)")
            updates = schema.updates(
                self._version(connection),
                database=self._name,
                setting=f"`{schema.key}` to another database",
            )
            for script in updates:
                driver.execute(translated_ddl(script, schema.names).encode())
            if updates:
                connection.execute(f"INSERT INTO {versions} VALUES (?)", (schema.version,))  # noqa: S608 - a constant

    def _version(self, connection: PostgresConnection) -> int:
        """Return the version of the tables; 0 if there are none."""
        versions = f"SELECT coalesce(max(version), 0) FROM {self._schema.names[0]}"  # noqa: S608 - a constant
        return int(connection.execute(versions).fetchone()[0])

    def _drop(self) -> None:
        if self._driver is not None and os.getpid() == self._pid:
            self._driver.close()
        self._driver = None

    def _check_usable(self) -> None:
        check_usable(self._name, opened_by=self._pid, is_closed=self._is_closed)

    def _failure(self, reason: str) -> StoreWriteError:
        return StoreWriteError(
            f"cannot use {self._name}: {reason}. Check that the server runs and that this user may "
            f"write there, or set `{self._schema.key}` to another one. {self._schema.kept}"
        )

    def _scrubbed(self, error: Exception) -> str:
        lines = [line.strip() for line in str(error).splitlines()]
        # libpq asks whether the server runs; our own message covers that.
        text = " ".join(line for line in lines if line and not line.endswith("?"))
        text = text or type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text.rstrip(".")


def check_installed(key: str) -> None:
    """Check that ``psycopg`` is installed; ``key`` is the setting that needs it.

    Raises:
        StoreError: ``psycopg`` cannot be imported.
    """
    try:
        import psycopg  # noqa: F401, PLC0415 - optional
    except ImportError as error:
        raise StoreError(
            f"`{key}` is in Postgres, which needs the package psycopg, and that cannot "
            f"be imported ({error}). Install it: {install_command('postgres')}"
        ) from None


def settings_of(url: str, key: str) -> dict[str, Any]:
    """Return the connection settings of a URL; ``key`` is the setting that holds it.

    Raises:
        StoreError: it is not a Postgres URL.
    """
    import psycopg  # noqa: PLC0415 - optional
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - optional

    settings: dict[str, Any] | None = None
    if url.startswith(("postgresql://", "postgres://")):
        with contextlib.suppress(psycopg.Error):
            settings = conninfo_to_dict(url)
    if settings is None:  # raised outside, since psycopg's error holds the whole URL
        raise StoreError(
            f"`{key}` must name a variable that holds a Postgres URL, but its value "
            "is not one. Set it to postgresql://USER:PASSWORD@HOST:5432/DATABASE, characters like "
            "`@` and `/` in the password written as %40 and %2F."
        )
    return {**_SETTINGS, **settings}
