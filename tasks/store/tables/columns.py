"""Tables as columns with field ids, and their SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

ColumnType = Literal["text", "i32", "i64", "f64", "bool", "ts", "map", "text[]"]
"""``ts`` is microseconds since the epoch, UTC; ``map`` maps names to numbers."""

SQL_TYPES: Mapping[ColumnType, str] = {
    "text": "VARCHAR",
    "i32": "INTEGER",
    "i64": "BIGINT",
    "f64": "DOUBLE",
    "bool": "BOOLEAN",
    "ts": "TIMESTAMP WITH TIME ZONE",
    "map": "MAP(VARCHAR, DOUBLE)",
    "text[]": "VARCHAR[]",
}


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table. All are nullable: NULL means unknown, never zero."""

    field_id: int
    name: str
    type: ColumnType
    meaning: str
    unit: str = ""

    @property
    def sql_type(self) -> str:
        """DuckDB's type."""
        return SQL_TYPES[self.type]


@dataclass(frozen=True, slots=True)
class Table:
    """Table of the store. File names and the writer keep its key unique, not an index."""

    name: str
    meaning: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """Return a column by name.

        Raises:
            KeyError: there is no such column.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"table {self.name} has no column {name!r}")

    def field_ids_sql(self) -> str:
        """Return the value of ``FIELD_IDS`` for COPY."""
        ids = ", ".join(f'"{column.name}": {_field_id_sql(column)}' for column in self.columns)
        return "{" + ids + "}"

    def schema_sql(self) -> str:
        """Return the value of ``schema`` for ``read_parquet``: columns by field id."""
        entries = ", ".join(
            f"{column.field_id}: {{name: '{column.name}', type: '{column.sql_type}', "
            "default_value: NULL}"
            for column in self.columns
        )
        return f"map {{{entries}}}"

    def empty_sql(self) -> str:
        """Return a SELECT of these columns without rows."""
        columns = ", ".join(
            f'NULL::{column.sql_type} AS "{column.name}"' for column in self.columns
        )
        return f"SELECT {columns} WHERE false"

    def files_sql(self, files: Sequence[str]) -> str:
        """Return a SELECT over parquet files of this table, of any schema version."""
        if not files:
            return self.empty_sql()
        names = ", ".join(quoted(file) for file in files)
        return f"SELECT * FROM read_parquet([{names}], schema={self.schema_sql()})"  # noqa: S608 - names are quoted, the rest is this registry


def table(text: str) -> Table:
    """Parse a table from its description.

    Args:
        text: name, key in parentheses and meaning of a row. Then one line per column: id, name
            (old name in parentheses), type, unit and meaning, separated by bars.
    """
    lines = text.strip().splitlines()
    rows = [[cell.strip() for cell in line.split("|", 4)] for line in lines if "|" in line]
    head, _, meaning = " ".join(lines[: len(lines) - len(rows)]).partition("): ")
    name, _, key = head.partition(" (")
    columns = []
    for number, name_of_column, kind, unit, description in rows:
        columns.append(
            Column(int(number), name_of_column, cast("ColumnType", kind), description, unit)
        )
    return Table(name, meaning, tuple(key.split(", ")), tuple(columns))


def quoted(text: str) -> str:
    """Return a string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _field_id_sql(column: Column) -> str:
    if column.type == "map":
        first = 1_000 + 10 * column.field_id
        return f"{{__duckdb_field_id: {column.field_id}, key: {first + 1}, value: {first + 2}}}"
    if column.type == "text[]":
        return f"{{__duckdb_field_id: {column.field_id}, element: {1_001 + 10 * column.field_id}}}"
    return str(column.field_id)
