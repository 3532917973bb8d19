"""Databases of a store: a file of the store or a shared PostgreSQL."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tasks.store.clock import wall_clock_us
from tasks.store.database import Closing, Database, Record, RecordTable, Schema
from tasks.store.layout import ensure_store, store_root
from tasks.store.runtime.schema import VARIABLE
from tasks.store.sqlite import SqliteDatabase


class SharedStore(Closing):
    """Base class of databases that processes share, in a file or in PostgreSQL.

    Thread-safe; blocks.
    """

    file: ClassVar[str]
    """File name in the store's folder."""
    schema: ClassVar[Schema]

    def __init__(
        self,
        path: Path | str,
        *,
        url: str | None = None,
        now_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        """Open the database of a store and create both if necessary.

        Args:
            path: root folder of the store.
            url: ``postgresql://`` URL of a database that several machines share; by default the
                value of ``CONVERGENCE_RUNTIME``, else a file of the store.
            now_us: clock.

        Raises:
            StoreFormatError: the folder is not a store, or has a newer format.
            StoreDamagedError: the file is not a database.
            StoreWriteError: the file cannot be created or written.
        """
        self.root = store_root(path)
        ensure_store(self.root)
        self.now_us = now_us
        url = url or os.environ.get(VARIABLE)
        self.database: Database
        if not url:
            self.database = SqliteDatabase(self.root / self.file, self.schema)
        else:
            from tasks.store.postgres import PostgresDatabase  # noqa: PLC0415 - optional

            self.database = PostgresDatabase(url, self.schema)

    @classmethod
    def exists_in(cls, path: Path | str) -> bool:
        """Return whether a store has this database, or shares it."""
        return bool(os.environ.get(VARIABLE)) or (store_root(path) / cls.file).is_file()

    def fetch(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of a SELECT."""
        with self.database.reading() as connection:
            return list(connection.execute(sql, values).fetchall())

    def find(self, table: RecordTable[Record], order: str = "", **where: Any) -> list[Record]:
        """Return the records of a table with these values; see ``RecordTable.find``."""
        with self.database.reading() as connection:
            return table.find(connection, order, **where)

    def close(self) -> None:
        """Close the database; safe to call twice."""
        self.database.close()
