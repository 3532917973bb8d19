"""Databases of a store, in a file of it or shared in PostgreSQL."""

import os
from pathlib import Path

from tasks.store.database import Database, Schema
from tasks.store.layout import ensure_store, store_root
from tasks.store.runtime.schema import VARIABLE
from tasks.store.sqlite import SqliteDatabase


def open_shared(path: Path | str, file: str, schema: Schema, url: str | None) -> Database:
    """Open a database of the store whose root folder is ``path``, creating both.

    Args:
        path: root folder of the store.
        file: its name in that folder, where it is not shared.
        schema: of the database.
        url: ``postgresql://`` URL; ``None``: that of the environment variable ``CONVERGENCE_RUNTIME``, and
            without it the file.

    Raises:
        StoreFormatError: the folder is no store, or of a newer version.
        StoreDamagedError: the file is no database.
        StoreWriteError: it cannot be created or written.
    """
    root = store_root(path)
    ensure_store(root)
    url = url or os.environ.get(VARIABLE)
    if not url:
        return SqliteDatabase(root / file, schema)
    from tasks.store.postgres import PostgresDatabase  # noqa: PLC0415 - optional

    return PostgresDatabase(url, schema)


def has_shared(path: Path | str, file: str) -> bool:
    """Return whether a store has such a database already, or shares one."""
    return bool(os.environ.get(VARIABLE)) or (store_root(path) / file).is_file()
