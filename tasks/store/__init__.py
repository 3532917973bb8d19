"""Persistence of results, paid calls and the runtime state.

Names load on first use, so that importing the protocols loads neither DuckDB nor SQLite.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.store.journal.lease import Lease
    from tasks.store.journal.postgres_journal import PostgresJournal
    from tasks.store.journal.sqlite_journal import SqliteJournal, open_journal
    from tasks.store.layout import label_of, new_run_id
    from tasks.store.tables.integrity import Damage
    from tasks.store.tables.parquet_store import ParquetStore
    from tasks.store.tables.query import QueryResult

__all__ = [
    "Damage",
    "Lease",
    "ParquetStore",
    "PostgresJournal",
    "QueryResult",
    "SqliteJournal",
    "label_of",
    "new_run_id",
    "open_journal",
]

_HOMES = {
    "Damage": "tables.integrity",
    "Lease": "journal.lease",
    "ParquetStore": "tables.parquet_store",
    "PostgresJournal": "journal.postgres_journal",
    "QueryResult": "tables.query",
    "SqliteJournal": "journal.sqlite_journal",
    "label_of": "layout",
    "new_run_id": "layout",
    "open_journal": "journal.sqlite_journal",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
