"""Errors of DuckDB that name the damaged file."""

from collections.abc import Sequence
from typing import Any

import duckdb

from convergence_core.errors import StoreDamagedError
from tasks.store.tables.columns import quoted

_OFFLINE = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


def in_memory(*, threads: int | None = 1) -> duckdb.DuckDBPyConnection:
    """Return a connection of DuckDB that never reaches for the network."""
    limit: dict[str, Any] = {} if threads is None else {"threads": threads}
    return duckdb.connect(":memory:", config={**_OFFLINE, **limit})


def find_damaged(files: Sequence[str]) -> list[tuple[str, str]]:
    """Return (path, reason) of each file that cannot be read to its last page."""
    damaged = []
    with in_memory() as connection:
        for file in files:
            try:
                connection.execute(
                    f"SELECT bit_xor(hash(t)) FROM read_parquet([{quoted(file)}]) t"  # noqa: S608 - quoted
                ).fetchall()
            except duckdb.Error as error:
                damaged.append((file, str(error).splitlines()[0]))
    return damaged


def damaged_error(files: Sequence[str]) -> StoreDamagedError | None:
    """Return the error that names the damaged ones among these files, ``None`` if all are whole."""
    damaged = find_damaged(files)
    if not damaged:
        return None
    named = "; ".join(f"{file} ({reason})" for file, reason in damaged[:3])
    return StoreDamagedError(
        f"{len(damaged)} file(s) of the store cannot be read: {named}. Restore them from a "
        "backup, or move their run's folders out of the store."
    )
