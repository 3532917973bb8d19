"""Parquet files, written and read through DuckDB.

A file is written under a temporary name, synced and renamed, and its folder is synced, because
``COPY`` neither syncs nor replaces whole files. Rows reach DuckDB as one JSON string. It is exact
for every type here, at a fortieth of the time of ``executemany``. Lists per column are a little
faster on DuckDB 2 and a hundred times slower on 1.5.
"""

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any

import duckdb
from pydantic import BeforeValidator, Field, StrictBool, TypeAdapter, ValidationError

from convergence_core.ports import Row
from tasks.store.layout import SCHEMA_VERSION, make_folder, whole_file, write_error, writing
from tasks.store.tables.columns import Column, ColumnType, Table, quoted
from tasks.store.tables.damage import (
    check_written,
    damaged_error,
    digests_sql,
    in_memory,
    past_signals,
    seal,
)
from tasks.store.tables.object_storage import Mirror


class _QuietEnd:
    """Redirection of standard error to the null device after every exit handler.

    It hides some forty lines of leak reports from DuckDB's bindings: running threads still hold
    connections or the contexts that they started in.
    """

    def __init__(self) -> None:
        self._nowhere, self._point_to = os.open(os.devnull, os.O_WRONLY), os.dup2

    def __del__(self) -> None:
        self._point_to(self._nowhere, 2)


# Python always clears this module last; threads can keep the globals of others alive.
vars(sys)["_convergence_quiet_end"] = _QuietEnd()


class ParquetFiles:
    """Writer and reader of single files of the registry's tables. Thread-safe.

    Args:
        mirror: receives each file before it gets its local name; ``None`` if there is no mirror.
    """

    def __init__(self, mirror: Mirror | None = None) -> None:
        self._mirror = mirror
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def write(
        self,
        table: Table,
        rows: Sequence[Row],
        final: Path,
        *,
        committed: Mapping[str, str] | None = None,
    ) -> None:
        """Write rows, in order, to a file that appears whole or not at all.

        Args:
            table: registry entry of the table.
            rows: values by column.
            final: path of the file.
            committed: table → digest of the files that a commit marker makes visible.

        Raises:
            ValueError: a row has an unknown column, or a value of the wrong type.
            StoreWriteError: the file cannot be written.
        """
        columns = ", ".join(_column_sql(column) for column in table.columns)
        select = (
            f"SELECT {columns} FROM (SELECT unnest(from_json($rows, '{_json_types(table)}')) AS r)"  # noqa: S608 - a registry's SQL
        )
        parameters: dict[str, object] = {"rows": _json_rows(table, rows)}
        self._copy(table, select, parameters, (), final, committed=committed or {})

    def merge(self, table: Table, sources: Sequence[str], final: Path) -> None:
        """Concatenate files of one table; payloads keep one row per key.

        Raises:
            StoreDamagedError: a source cannot be read.
            StoreWriteError: the file cannot be written.
        """
        check_written(sources)
        select = table.files_sql(sources)
        if table.name == "payloads":
            select = (
                "SELECT run_id, payload_sha256, min(kind) AS kind, min(text) AS text "  # noqa: S608 - a registry's SQL
                f"FROM ({select}) GROUP BY ALL ORDER BY ALL"
            )
        self._copy(table, select, {}, sources, final, committed={})

    def read(self, table: Table, files: Sequence[str], tail: str = "") -> list[dict[str, object]]:
        """Return rows in the format of ``write``, with times in microseconds.

        Args:
            table: table of the files.
            files: paths, in reading order.
            tail: SQL after the FROM, e.g. an ORDER BY.

        Raises:
            StoreDamagedError: a file cannot be read.
        """
        columns = ", ".join(
            f'epoch_us("{c.name}") AS "{c.name}"' if c.type == "ts" else f'"{c.name}"'
            for c in table.columns
        )
        sql = f"SELECT {columns} FROM ({table.files_sql(files)}) {tail}"  # noqa: S608 - a registry's SQL
        check_written(files)
        with self._lock:
            try:
                connection = self._connected()
                rows = past_signals(lambda: connection.execute(sql).fetchall(), connection)
            except duckdb.Error as error:
                raise (damaged_error(files) or error) from error
        names = [column.name for column in table.columns]
        return [dict(zip(names, row, strict=True)) for row in rows]

    @staticmethod
    def forget(path: Path) -> None:
        """Delete a local file if it exists; an uncommitted remote copy stays unread.

        Raises:
            StoreWriteError: it may still exist.
        """
        with writing(path):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Free DuckDB's memory; the next call reopens it."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _connected(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = in_memory()
        return self._connection

    def _copy(
        self,
        table: Table,
        select: str,
        parameters: dict[str, object],
        sources: Sequence[str],
        final: Path,
        *,
        committed: Mapping[str, str],
    ) -> None:
        with writing(final):
            make_folder(final.parent)
        with whole_file(final) as temporary:
            copy = (
                f"COPY ({select}) TO {quoted(str(temporary))} (FORMAT parquet, COMPRESSION zstd, "
                f"USE_TMP_FILE false, FIELD_IDS {table.field_ids_sql()}, KV_METADATA "
                f"{{convergence_table: '{table.name}', "
                f"convergence_schema_version: '{SCHEMA_VERSION}', {digests_sql(committed)}}})"
            )
            try:
                with self._lock:
                    connection = self._connected()
                    past_signals(lambda: connection.execute(copy, parameters or None), connection)
            except duckdb.Error as error:
                raise (damaged_error(sources) or write_error(final, str(error))) from error
            seal(temporary)
            if self._mirror is not None:
                self._mirror.put(temporary, final)


def _column_sql(column: Column) -> str:
    if column.type == "ts":
        return f'make_timestamptz(r."{column.name}") AS "{column.name}"'
    return f'r."{column.name}"'


def _json_types(table: Table) -> str:
    types = {c.name: "BIGINT" if c.type == "ts" else c.sql_type for c in table.columns}
    return json.dumps([types])


def _json_rows(table: Table, rows: Sequence[Row]) -> str:
    columns = {column.name: column for column in table.columns}
    if unknown := sorted({name for row in rows for name in row} - columns.keys()):
        raise ValueError(
            f"table {table.name} has no column {unknown[0]!r}. Its columns are {', '.join(columns)}."
        )
    return json.dumps([{name: _value(columns[name], row[name]) for name in row} for row in rows])


def _value(column: Column, value: object) -> object:
    try:
        return _CHECKED[column.type].validate_python(value)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"]
        raise ValueError(f"column {column.name} ({column.type}): {reason}") from None


def _text(value: object) -> object:
    # Parquet strings are UTF-8, which excludes lone surrogates.
    is_plain = not isinstance(value, str) or value.isascii()
    return value if is_plain else str(value).encode("utf-8", "replace").decode("utf-8")


_TEXT = Annotated[str, Field(strict=True), BeforeValidator(_text)]
_FLOAT = Annotated[float, BeforeValidator(lambda x: float(x) if isinstance(x, Real) else None)]
_INTEGER = Annotated[int, BeforeValidator(lambda n: int(n) if isinstance(n, Integral) else None)]
_LONG = Annotated[_INTEGER, Field(ge=-(2**63), lt=2**63)]
_VALUES: Mapping[ColumnType, Any] = {
    "text": _TEXT,
    "map": dict[_TEXT, _FLOAT | None],
    "i32": Annotated[_INTEGER, Field(ge=-(2**31), lt=2**31)],
    "i64": _LONG,
    "f64": _FLOAT,
    "bool": StrictBool,
    "ts": _LONG,
    "text[]": list[_TEXT | None],
}
_CHECKED = {kind: TypeAdapter[Any](value | None) for kind, value in _VALUES.items()}
