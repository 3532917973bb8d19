"""Read-only SQL over the views.

Three checks protect the store's files and the rest of the disk from a query. The statement must be
one SELECT, its plan must not write (DuckDB 2 accepts ``WITH x AS (COPY … TO …)``), and the
connection has access to the parquet folders only.
"""

import itertools
import re
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from convergence_core.errors import QueryError
from tasks.store.layout import whole_file, write_error, writing
from tasks.store.tables.columns import quoted
from tasks.store.tables.damage import check_files, damaged_error, in_memory, past_signals
from tasks.store.tables.resolver import Resolution, resolve
from tasks.store.tables.views import VIEW_NAMES, view_statements, views_for

if TYPE_CHECKING:
    import numpy as np

_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?", re.IGNORECASE)
_LINE = re.compile(r"^LINE (\d+):", re.MULTILINE)
_WRITING_PLAN = re.compile(r'"name":\s*"[^"]*(COPY|INSERT|UPDATE|DELETE|EXPORT)[^"]*"')
_CHECKED_SQL: set[str] = set()
"""SQL that has passed the check, since the store repeats a few queries."""
_MOST_CHECKED_SQL = 1_000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """Result of a query."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    """DuckDB's type names, e.g. ``DOUBLE``."""
    rows: list[tuple[object, ...]]


class Reader:
    """Reader that runs queries over the current store. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """Absolute root folder of the store."""
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._resolution: Resolution | None = None
        self._views: set[str] = set()
        """Views of the connection, created as queries need them."""

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> QueryResult:
        """Run one SELECT over the views; return column names, types and rows.

        Raises:
            QueryError: the SQL is wrong or not a SELECT.
            StoreDamagedError: a file of the store cannot be read.
        """
        return self._run(sql, parameters, _fetched)

    def rows(
        self, sql: str, parameters: Mapping[str, object] | None = None
    ) -> list[dict[str, Any]]:
        """Run one SELECT over the views and return rows as dictionaries; see ``query``."""
        result = self.query(sql, parameters)
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]

    def columns(
        self, sql: str, parameters: Mapping[str, object] | None = None
    ) -> dict[str, "np.ndarray"]:
        """Run one SELECT and return its columns as arrays, masked at NULL; see ``query``."""
        return self._run(sql, parameters, lambda result: result.fetchnumpy())

    def _run(
        self,
        sql: str,
        parameters: Mapping[str, object] | None,
        fetch: Callable[[duckdb.DuckDBPyConnection], _T],
    ) -> _T:
        cursor, resolution = self._cursor(views_for(sql))

        def run() -> _T:
            if sql not in _CHECKED_SQL:
                check_reads_only(cursor, sql, parameters)
                if len(_CHECKED_SQL) < _MOST_CHECKED_SQL:
                    _CHECKED_SQL.add(sql)
            return fetch(cursor.execute(sql, dict(parameters) if parameters else None))

        try:
            return _translated(run, cursor, resolution)
        finally:
            cursor.close()

    def export(
        self,
        sql: str,
        path: Path | str,
        parameters: Mapping[str, object] | None = None,
    ) -> None:
        """Write the result of one SELECT to a parquet file atomically.

        Raises:
            QueryError: the SQL is wrong or not a SELECT.
            StoreDamagedError: a file of the store cannot be read.
            StoreWriteError: the file cannot be written, or lies within the store.
        """
        path = Path(path).absolute()
        if path.resolve().is_relative_to(self.path.resolve()):
            raise write_error(path, "an export must not lie within the store itself")
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise write_error(path, "it is not a regular file, and would be replaced by one")
        resolution = resolve(self.path)
        with whole_file(path) as temporary:
            connection = open_views(self.path, resolution, views_for(sql), writable=temporary)
            mode = (path if path.exists() else temporary).stat().st_mode

            def copy() -> None:
                check_reads_only(connection, sql, parameters)
                body = sql.strip().rstrip(";")
                connection.execute(
                    f"COPY ({body}\n) TO {quoted(str(temporary))} "
                    "(FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)",
                    dict(parameters) if parameters else None,
                )

            try:
                _translated(copy, connection, resolution)
            except QueryError as error:
                if isinstance(error.__cause__, duckdb.IOException):
                    raise write_error(path, str(error.__cause__)) from error
                raise
            finally:
                connection.close()
        with writing(path):
            path.chmod(mode & 0o777)

    def close(self) -> None:
        """Free DuckDB's memory; the next query reopens it."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            self._resolution = None

    def _cursor(self, views: frozenset[str]) -> tuple[duckdb.DuckDBPyConnection, Resolution]:
        """Return a cursor with these views, and the files behind them."""
        resolution = resolve(self.path)
        with self._lock:
            if self._connection is None or self._resolution != resolution:
                self._connection = open_views(self.path, resolution, frozenset())
                self._resolution, self._views = resolution, set()
            missing = views - self._views
            if missing:
                create_views(self._connection, resolution, missing)
                self._views |= missing
            return self._connection.cursor(), resolution


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return unique column names: repeated ones get ``_1``, ``_2`` …, as elsewhere in DuckDB."""
    distinct: list[str] = []
    for name in names:
        if name not in distinct:
            distinct.append(name)
            continue
        numbered = (f"{name}_{n}" for n in itertools.count(1))
        distinct.append(next(text for text in numbered if text not in {*distinct, *names}))
    return tuple(distinct)


def _fetched(result: duckdb.DuckDBPyConnection) -> QueryResult:
    description = result.description or []
    return QueryResult(
        columns=_distinct([column[0] for column in description]),
        types=tuple(str(column[1]) for column in description),
        rows=result.fetchall(),
    )


def open_views(
    root: Path,
    resolution: Resolution,
    views: Set[str] = frozenset(VIEW_NAMES),
    *,
    writable: Path | None = None,
    memory: str | None = None,
) -> duckdb.DuckDBPyConnection:
    """Return an in-memory connection with these views and access to the store only.

    Args:
        root: folder of the store.
        resolution: its files.
        views: names of the views to create, including those that they use.
        writable: one file outside the store that the connection may also write.
        memory: memory limit, e.g. ``200MB``; ``None`` means DuckDB's default, most of the
            machine's.

    Raises:
        StoreDamagedError: a file is gone. Only queries open the others.
    """
    connection = in_memory(threads=None)
    try:
        # GLOBAL, since each cursor is a separate session.
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        create_views(connection, resolution, views)
    except BaseException:
        connection.close()
        raise
    folders = ", ".join(quoted(f"{root / stage}/") for stage in ("live", "final"))
    connection.execute(f"SET allowed_directories = [{folders}]")
    if memory is not None:
        connection.execute(f"SET memory_limit = {quoted(memory)}")
    if writable is not None:
        connection.execute(f"SET allowed_paths = [{quoted(str(writable))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def create_views(
    connection: duckdb.DuckDBPyConnection, resolution: Resolution, views: Set[str]
) -> None:
    """Create views that the connection lacks.

    Args:
        connection: an open connection.
        resolution: the store's files.
        views: their names, including missing views that they use.

    Raises:
        StoreDamagedError: a file is gone or has changed.
    """
    check_files(resolution.files, views & resolution.files.keys())

    def create() -> None:
        for statement in view_statements(resolution.files, views).values():
            connection.execute(statement)

    _translated(create, connection, resolution)


def check_reads_only(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Mapping[str, object] | None,
) -> None:
    """Check that the SQL is one statement that only reads.

    Raises:
        QueryError: the statement is not.
    """
    inner = _EXPLAIN.sub("", sql, count=1)
    statements = duckdb.extract_statements(inner)
    if len(statements) != 1:
        raise QueryError(
            f"a query must be one SELECT, but got {len(statements)} statements. "
            "Run them one at a time; PIVOT needs its values, as in `ON model IN ('a', 'b')`."
        )
    if statements[0].type != duckdb.StatementType.SELECT:
        kind = str(statements[0].type).rpartition(".")[2]
        raise QueryError(
            f"a query must be a SELECT, but got {kind}. The store is read-only for queries; "
            "`--format` writes a result to a file."
        )
    try:
        # On a separate line, so that the markers below an error's lines stay aligned.
        plan = connection.execute(
            f"EXPLAIN (FORMAT json)\n{inner}", dict(parameters) if parameters else None
        ).fetchall()
    except duckdb.Error as error:
        raise type(error)(_LINE.sub(_line_before, str(error))) from error
    if any(_WRITING_PLAN.search(str(row[1])) for row in plan):
        raise QueryError(
            "a query must only read, but this one writes. The store is read-only for queries; "
            "`--format` writes a result to a file."
        )


def _line_before(match: re.Match[str]) -> str:
    """Replace ``LINE 2:`` by ``LINE 1:`` at the same width."""
    return f"LINE {int(match[1]) - 1}:".ljust(len(match[0]))


def _translated(
    action: Callable[[], _T], connection: duckdb.DuckDBPyConnection, resolution: Resolution
) -> _T:
    """Run an action on DuckDB and turn its errors into ours."""
    try:
        return past_signals(action, connection)
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        raise QueryError(_advice(error)) from error
    except duckdb.Error as error:
        damaged = damaged_error([file for files in resolution.files.values() for file in files])
        if damaged is not None:
            raise damaged from error
        raise QueryError(str(error)) from error


def _advice(error: Exception) -> str:
    text = str(error)
    if "does not exist" in text and "Table" in text:
        # DuckDB may suggest one of its system tables.
        lines = [line for line in text.splitlines() if not line.startswith("Did you mean")]
        return "\n".join(lines).rstrip() + f"\nThere are: {', '.join(VIEW_NAMES)}."
    return text
