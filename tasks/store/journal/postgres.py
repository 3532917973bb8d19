"""A connection to the journal's Postgres: whole transactions, schema, and errors without secrets.

A transaction is two round trips: one that locks and reads, one that writes and commits. A
connection that drops before the second has changed nothing, so all of it is done again on a new
connection; a drop during the second leaves it unknown whether it was committed. ``psycopg`` (the
extra ``postgres``) is imported when a journal is opened.
"""

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from convergence_core.errors import StoreError, StoreFormatError, StoreWriteError

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

SCHEMA = 1
"""Version of the tables; raised when an older version could not use them."""

CALLS, ATTEMPTS, ACTIVITY = "convergence_calls", "convergence_attempts", "convergence_activity"

# Text sorts by its bytes, as in SQLite. A call's latest attempt and the one whose answer is the
# call's are numbers; `outcome` holds every answer that was paid.
_DDL = """
CREATE TABLE IF NOT EXISTS convergence_journal(version int NOT NULL);
CREATE TABLE IF NOT EXISTS convergence_calls(
  call_key text COLLATE "C" PRIMARY KEY, state text NOT NULL, owner text NOT NULL,
  lease_us bigint NOT NULL, latest int NOT NULL, answer int, request_sha256 text NOT NULL
);
CREATE TABLE IF NOT EXISTS convergence_attempts(
  call_key text COLLATE "C", attempt int, run_id text COLLATE "C", eval_id text COLLATE "C",
  purpose text COLLATE "C", generation int, provider text NOT NULL, model text,
  state text NOT NULL, error_type text, error text, outcome text,
  tokens_in bigint, tokens_out bigint, cached_tokens bigint, cache_write_tokens bigint,
  reasoning_tokens bigint, cost_usd double precision, price_version text,
  max_usd double precision, max_tokens bigint, maybe_usd double precision NOT NULL DEFAULT 0,
  maybe_tokens bigint NOT NULL DEFAULT 0, payer_run_id text,
  started_us bigint NOT NULL, ended_us bigint,
  PRIMARY KEY (call_key, attempt, run_id, eval_id, purpose)
);
CREATE INDEX IF NOT EXISTS convergence_attempts_of_generation ON convergence_attempts(run_id, generation);
CREATE TABLE IF NOT EXISTS convergence_activity(
  run_id text COLLATE "C", owner text, started_us bigint NOT NULL, seen_us bigint NOT NULL,
  PRIMARY KEY (run_id, owner)
);
"""
_SCHEMA_LOCK = 0x434F4E56  # any number that others do not lock: "CONV"
_BEGIN = ("BEGIN ISOLATION LEVEL READ COMMITTED", "SET LOCAL synchronous_commit TO on")
_SETTINGS = {
    "connect_timeout": 10,
    "application_name": "convergence",
    "client_encoding": "utf8",
    # A peer that vanished without a word is noticed within a minute.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
"""What the URL does not say otherwise."""
_TRIES = 3

_Locked = TypeVar("_Locked")
_Result = TypeVar("_Result")


class PostgresDatabase:
    """One connection to the journal's tables, made again when it drops. Thread-safe."""

    def __init__(self, url: str) -> None:
        """Connect, creating the tables if need be.

        Raises:
            StoreError: the URL is none of Postgres, or ``psycopg`` is not installed.
            StoreFormatError: the tables are of a newer version, or the database is not UTF-8.
            StoreWriteError: the server cannot be reached or written.
        """
        check_installed()
        self._settings = settings_of(url)
        self._secrets = secrets_of(url, self._settings)
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._connection: Connection | None = None
        self._closed = False
        try:
            self._attempted(self._prepare, is_repeatable=lambda: True)
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> str:
        """Where the journal is, for people."""
        host = self._settings.get("host", "localhost")
        return f"{self._settings.get('dbname', '')} on {host}".strip()

    def read(self, work: "Callable[[Connection], _Result]") -> _Result:
        """Return what SELECTs of ``work`` find: no transaction, no lock."""
        return self._attempted(work, is_repeatable=lambda: True)

    def write(
        self,
        lock: "Callable[[Connection], Callable[[], _Locked]]",
        change: "Callable[[Connection, _Locked], _Result]",
        *,
        is_idempotent: bool = False,
    ) -> _Result:
        """Return what one durable transaction of two round trips gives.

        Args:
            lock: sends statements that lock and read, and returns how to fetch what they found.
            change: sends statements that write; it fetches nothing.
            is_idempotent: whether doing it twice is harmless, so that it may be done again when
                the connection dropped while it was committed.

        Raises:
            StoreWriteError: nothing of the transaction is kept, or that is unknown.
        """
        is_committing = False

        def transaction(connection: "Connection") -> _Result:
            nonlocal is_committing
            is_committing = False
            with connection.pipeline():
                for statement in _BEGIN:
                    connection.execute(statement)
                fetch = lock(connection)
            found = fetch()
            is_committing = True
            with connection.pipeline():
                result = change(connection, found)
                connection.execute("COMMIT")
            return result

        return self._attempted(
            transaction, is_repeatable=lambda: is_idempotent or not is_committing
        )

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        with self._mutex:
            self._closed = True
            self._drop()

    def _attempted(
        self, work: "Callable[[Connection], _Result]", *, is_repeatable: Callable[[], bool]
    ) -> _Result:
        """Do the work on a live connection, again if that drops or loses a race for locks.

        Errors are raised outside of the handler: those of psycopg may hold the password.
        """
        import psycopg  # noqa: PLC0415 - optional

        self._check_usable()
        reason = ""
        with self._mutex:
            for _ in range(_TRIES):
                connection = None
                try:
                    connection = self._connected()
                    return work(connection)
                except psycopg.Error as error:
                    reason = self._scrubbed(error)
                    is_dropped = connection is not None and connection.closed
                    is_race = isinstance(error, psycopg.errors.TransactionRollback)
                    self._drop()
                    if not is_race and not (is_dropped and is_repeatable()):
                        break
                except BaseException:
                    self._drop()  # the server rolls back what was begun
                    raise
        raise StoreWriteError(
            f"cannot use the journal in the Postgres database {self.place}: {reason}. Check that "
            "the server runs and that this user may write there, or set `storage.journal` to "
            "another one. Nothing that was paid is lost; `convergence resume` goes on from there."
        )

    def _connected(self) -> "Connection":
        import psycopg  # noqa: PLC0415 - optional

        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(**self._settings, autocommit=True)
        return self._connection

    def _prepare(self, connection: "Connection") -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreFormatError(
                f"the Postgres database {self.place} must have the encoding UTF8, but has "
                f"{encoding}. Create another with `CREATE DATABASE … ENCODING 'UTF8'`."
            )
        if not self._has_tables(connection):
            with connection.transaction():
                # Two at once would create the same table: IF NOT EXISTS alone is a race.
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
                connection.execute(_DDL)
                connection.execute(
                    "INSERT INTO convergence_journal SELECT %s "
                    "WHERE NOT EXISTS (SELECT FROM convergence_journal)",
                    (SCHEMA,),
                )

    def _has_tables(self, connection: "Connection") -> bool:
        known = connection.execute("SELECT to_regclass('convergence_journal')").fetchall()
        if known == [(None,)]:
            return False
        found = connection.execute("SELECT max(version) FROM convergence_journal").fetchall()[0][0]
        if found > SCHEMA:
            raise StoreFormatError(
                f"the journal in the Postgres database {self.place} has version {found}, and this "
                f"version reads up to {SCHEMA}. Upgrade convergence-optimizer, or set "
                "`storage.journal` to another database."
            )
        return True

    def _drop(self) -> None:
        if self._connection is not None and os.getpid() == self._pid:
            self._connection.close()
        self._connection = None

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError(
                f"the journal in the Postgres database {self.place} was opened by process "
                f"{self._pid} and this is a fork of it. Open it again here."
            )
        if self._closed:
            raise StoreError(
                f"the journal in the Postgres database {self.place} is closed. Open it again."
            )

    def _scrubbed(self, error: Exception) -> str:
        lines = [line.strip() for line in str(error).splitlines()]
        # libpq asks whether the server runs; our own message says to check it.
        text = " ".join(line for line in lines if line and not line.endswith("?"))
        text = text or type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text.rstrip(".")


def check_installed(key: str = "storage.journal") -> None:
    """Refuse to go on without ``psycopg``; ``key`` is what asks for it.

    Raises:
        StoreError: it cannot be imported.
    """
    try:
        import psycopg  # noqa: F401, PLC0415 - optional
    except ImportError as error:
        raise StoreError(
            f"`{key}` is in Postgres, which needs the package psycopg, and that cannot "
            f"be imported ({error}). Install it: pip install 'convergence-optimizer[postgres]'."
        ) from None


def settings_of(url: str, key: str = "storage.journal") -> dict[str, Any]:
    """Return what a URL says of a connection; ``key`` is what holds it.

    Raises:
        StoreError: it is no URL of Postgres.
    """
    import psycopg  # noqa: PLC0415 - optional
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - optional

    settings: dict[str, Any] | None = None
    if url.startswith(("postgresql://", "postgres://")):
        try:
            settings = conninfo_to_dict(url)
        except psycopg.Error:
            settings = None
    if settings is None:  # raised out here: psycopg's error holds the whole URL
        raise StoreError(
            f"`{key}` must name a variable that holds a URL of Postgres, and its value "
            "is none. Set it to postgresql://USER:PASSWORD@HOST:5432/DATABASE, characters like "
            "`@` and `/` in the password written as %40 and %2F."
        )
    return {**_SETTINGS, **settings}


def secrets_of(url: str, settings: dict[str, Any]) -> list[str]:
    """Return what no message may hold, the longest first."""
    password = settings.get("password")
    found = {url} if password is None else {url, str(password), quote(str(password), safe="")}
    return sorted(found - {""}, key=len, reverse=True)
