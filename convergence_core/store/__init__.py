"""Persistence: parquet tables, the journal of paid calls and leases on optimized systems.

Names are loaded at first use, so that the protocols can be imported without DuckDB or SQLite.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from convergence_core.store.checking import Damage
    from convergence_core.store.ids import label_of, new_run_id
    from convergence_core.store.journal import SqliteJournal, open_journal
    from convergence_core.store.lease import Lease
    from convergence_core.store.parquet_store import ParquetStore
    from convergence_core.store.postgres_journal import PostgresJournal
    from convergence_core.store.query import QueryResult

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
    "Damage": "checking",
    "Lease": "lease",
    "ParquetStore": "parquet_store",
    "PostgresJournal": "postgres_journal",
    "QueryResult": "query",
    "SqliteJournal": "journal",
    "label_of": "ids",
    "new_run_id": "ids",
    "open_journal": "journal",
}


def __getattr__(name: str) -> object:
    """Load a public name at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
