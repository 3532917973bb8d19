"""Tables, records and interfaces of a store's databases.

The declaration of a table yields its definition in both SQL dialects, its statements, and the
conversion between rows and records. Statements use SQLite's dialect with ``?`` for values;
``postgres.translated`` converts them.
"""

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cached_property
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Protocol,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from convergence_core.errors import StoreError, StoreFormatError
from convergence_core.records import canonical_json
from tasks.secrets.redaction import redact_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")
NUMBERED = "seq INTEGER PRIMARY KEY AUTOINCREMENT, *"
"""Definition of a table with a row number and the fields of a record."""
RANGES = (
    "table_name TEXT NOT NULL, lo INTEGER NOT NULL, hi INTEGER NOT NULL, is_done INTEGER NOT NULL, "
    "PRIMARY KEY (table_name, lo)"
)
"""Definition of the table of ranges exported to parquet; a range precedes its files."""
_COMMA = re.compile(r",\s*(?![^()]*\))")
_INDEX = re.compile(r"(UNIQUE )?(\w+)(.*)", re.DOTALL)
_TYPES = {str: "TEXT", int: "INTEGER", bool: "INTEGER", float: "REAL"}


class SqlTable:
    """Table, declared by the columns and constraints of its ``CREATE TABLE``."""

    def __init__(
        self, name: str, definition: str, *indexes: str, has_rowid: bool | None = None
    ) -> None:
        """Declare a table.

        Args:
            name: name of the table.
            definition: columns, then constraints.
            indexes: name and columns of each index, e.g. ``UNIQUE one_reward(decision_id)``.
            has_rowid: whether SQLite numbers the rows; by default if the primary key is an
                integer.
        """
        self.name = name
        self._definition = definition
        self._indexes = [match.groups("") for match in map(_INDEX.fullmatch, indexes) if match]
        is_numbered = "INTEGER PRIMARY KEY" in definition if has_rowid is None else has_rowid
        self._end = ";" if is_numbered else " WITHOUT ROWID;"
        self.names = name, *(index for _, index, _ in self._indexes)
        """Names of the table and its indexes."""

    @property
    def script(self) -> str:
        """Script that creates the table and its indexes."""
        lines = [f"CREATE TABLE {self.name}({self._definition}){self._end}"]
        for unique, index, rest in self._indexes:
            lines.append(f"CREATE {unique}INDEX {index} ON {self.name}{rest};")
        return "\n".join(lines)


class RecordTable(SqlTable, Generic[Record]):
    """Table whose rows are records.

    Mappings and tuples of a record are JSON in columns that end in ``_json``, flags are 0 and 1,
    and an optional field is a nullable column.

    Example:
        >>> CHAMPIONS = RecordTable("champions", Champion)
        >>> CHAMPIONS.add(connection, champion)
        >>> CHAMPIONS.find(connection, "ORDER BY seq", system="support_bot")
    """

    def __init__(
        self,
        name: str,
        record: type[Record],
        definition: str = NUMBERED,
        *indexes: str,
        columns: Mapping[str, str] | None = None,
        texts: Collection[str] = (),
    ) -> None:
        """Declare a table.

        Args:
            name: name of the table.
            record: dataclass of its rows.
            definition: as for ``SqlTable``; ``*`` expands to the columns of the record's fields.
                Columns after ``*`` are additional values of ``values``.
            indexes: as for ``SqlTable``.
            columns: field → differing name of its column, or an expression of it.
            texts: non-JSON fields that ``values`` redacts.
        """
        hints = get_type_hints(record)
        self._record, self._texts = record, frozenset(texts)
        self._fields = {field.name: _Kind.of(hints[field.name]) for field in fields(record)}
        ends = {field: f"{field}_json" for field, kind in self._fields.items() if kind.is_json}
        self._by_field = {field: field for field in self._fields} | ends | dict(columns or {})
        self.columns = tuple(self._by_field.values())
        """Columns of the record's fields, in field order."""
        added = [f"{self._by_field[field]} {kind.sql}" for field, kind in self._fields.items()]
        super().__init__(name, definition.replace("*", ", ".join(added)), *indexes)
        behind = _COMMA.split(definition.partition("*")[2].lstrip(", "))
        more = [words[0] for column in behind if (words := column.split()) and words[0].islower()]
        self.select = f"SELECT {', '.join(self.columns)} FROM {name}"  # noqa: S608 - declared names
        """SELECT of all rows, for ``record``."""
        self.insert = insert_sql(name, (*self.columns, *more))
        """INSERT of one row, for ``values``."""

    def columns_of(self, alias: str) -> str:
        """Return the columns of a table in a join, for ``record``."""
        return ", ".join(f"{alias}.{column}" for column in self.columns)

    def values(
        self, record: Record, *more: Any, clean: Callable[[str], str] | None = None
    ) -> tuple[Any, ...]:
        """Return the values of a row.

        Args:
            record: the record.
            more: values of the columns after the record's.
            clean: removes secrets from strings and JSON.
        """
        return *(
            self._value(field, kind, getattr(record, field), clean)
            for field, kind in self._fields.items()
        ), *more

    def record(self, row: Sequence[Any]) -> Record:
        """Convert a row of ``columns`` to a record."""
        return self._record(
            **{
                field: kind.read(value)
                for (field, kind), value in zip(self._fields.items(), row, strict=True)
            }
        )

    def find(self, connection: "Connection", order: str = "", **where: Any) -> list[Record]:
        """Return the records that have these values.

        Args:
            connection: an open transaction or reading.
            order: end of the statement, e.g. ``ORDER BY seq``.
            where: field or column → value; ``None`` leaves it out.
        """
        known = {name: value for name, value in where.items() if value is not None}
        places = (self._by_field.get(name, name) for name in known)
        condition = " AND ".join(f"{place} = ?" for place in places) or "TRUE"
        sql = f"{self.select} WHERE {condition} {order}"
        return [self.record(row) for row in connection.execute(sql, (*known.values(),)).fetchall()]

    def first(self, connection: "Connection", order: str = "", **where: Any) -> Record | None:
        """Return the first of the records that ``find`` returns; ``None`` if there is none."""
        return next(iter(self.find(connection, f"{order} LIMIT 1", **where)), None)

    def add(
        self,
        connection: "Connection",
        record: Record,
        *more: Any,
        clean: Callable[[str], str] | None = None,
    ) -> None:
        """Insert a record; the arguments are those of ``values``."""
        connection.execute(self.insert, self.values(record, *more, clean=clean))

    def _value(
        self, field: str, kind: "_Kind", value: Any, clean: Callable[[str], str] | None
    ) -> Any:
        if value is None or not (kind.is_json or kind.is_flag or field in self._texts):
            return value
        if kind.is_flag:
            return int(value)
        plain = _plain(value)
        if clean is not None:
            plain = redact_json(plain, clean)
        return canonical_json(plain) if kind.is_json else plain


@dataclass(frozen=True, slots=True)
class _Kind:
    """Type of a field, in SQL and in JSON."""

    sql: str
    is_json: bool
    is_flag: bool
    is_tuple: bool
    item: "type[DataclassInstance] | None"
    """Class of the records in a tuple."""

    @classmethod
    def of(cls, hint: Any) -> "_Kind":
        """Return the kind of a type hint."""
        options = [option for option in get_args(hint) if option is not NoneType]
        is_optional = len(options) < len(get_args(hint))
        plain = options[0] if is_optional else hint
        if get_origin(plain) is Literal:
            plain = type(get_args(plain)[0])
        is_tuple = get_origin(plain) is tuple
        item = get_args(plain)[0] if is_tuple else None
        return cls(
            sql=_TYPES.get(plain, "TEXT") + ("" if is_optional else " NOT NULL"),
            is_json=plain not in _TYPES,
            is_flag=plain is bool,
            is_tuple=is_tuple,
            item=item if isinstance(item, type) and is_dataclass(item) else None,
        )

    def read(self, value: Any) -> Any:
        """Convert a column's value to the value of the field."""
        if value is None or not self.is_json:
            return bool(value) if self.is_flag else value
        value = json.loads(value)
        if self.item is not None:
            value = [self.item(**item) for item in value]
        return tuple(value) if self.is_tuple else value


def _plain(value: Any) -> Any:
    """Convert mappings, tuples and nested records to JSON types."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return [asdict(item) if is_dataclass(item) else item for item in value]  # type: ignore[arg-type]
    return value


def insert_sql(table: str, columns: Sequence[str]) -> str:
    """Return the INSERT of a row with these columns."""
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table}({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - declared names


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Tables of a database."""

    noun: str
    """Database name for messages."""
    version: int
    """Version of the tables. A database with another version cannot be opened."""
    tables: tuple[SqlTable, ...]
    loss: str = ""
    """Sentence part on what losing the file costs."""
    kept: str = ""
    """Sentence on what survives if the server is unreachable."""
    key: str = "storage.path"
    """Setting that locates the database."""
    versions: str = ""
    """Table that holds the version in PostgreSQL."""
    added: tuple[str, ...] = ()
    """Statements that upgrade the tables from the previous version."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of tables and indexes, prefixed in PostgreSQL; the first holds the version."""
        return self.versions, *(name for table in self.tables for name in table.names)

    def updates(self, version: int, *, database: str, setting: str) -> Sequence[str]:
        """Return the scripts that upgrade a database from a version.

        Args:
            version: version of its tables; 0 if it has none.
            database: name of the database in messages.
            setting: setting that selects another database.

        Raises:
            StoreFormatError: tables of this version cannot be read.
        """
        if version == 0:
            return [table.script for table in self.tables]
        if version == self.version:
            return ()
        if self.added and version == self.version - 1:
            return self.added
        raise StoreFormatError(
            f"{database} has version {version}, and this version reads {self.version}. Use the "
            f"convergence-optimizer that wrote it, or set {setting}."
        )


class Connection(Protocol):
    """Open transaction for reading or writing."""

    def execute(self, statements: str, bindings: Any = (), /) -> Any:
        """Run SQL with ``?`` as the placeholder of a value."""

    def changes(self) -> int:
        """Return the number of rows that the last statement changed."""


class Database(Protocol):
    """Durable database. Thread-safe; blocks."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Return a context manager of a connection for SELECTs."""

    def transaction(self, *, alone: bool = False) -> AbstractContextManager[Connection]:
        """Return a context manager of a transaction, durable after the block.

        Args:
            alone: whether the transaction waits for all others and excludes new ones.
        """

    def scrub(self) -> None:
        """Rewrite the file or the tables, so that deleted rows leave no trace."""

    def close(self) -> None:
        """Close the database; safe to call twice."""


def check_usable(name: str, *, opened_by: int, is_closed: bool) -> None:
    """Check that a database is open and belongs to this process.

    Raises:
        StoreError: the database is closed, or the process forked after opening it.
    """
    if os.getpid() != opened_by:
        raise StoreError(
            f"{name} was opened by process {opened_by} and this is a fork of it. Open it again here."
        )
    if is_closed:
        raise StoreError(f"{name} is closed. Open it again.")


class Closing(ABC):
    """Base class that supports ``with`` through ``close``."""

    @abstractmethod
    def close(self) -> None:
        """Release what the object holds."""

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close this object."""
        self.close()
