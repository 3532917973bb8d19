"""Integrity check of every visible file.

The digests detect any changed bit.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb

from tasks.store.journal.sqlite_journal import journal_damage
from tasks.store.layout import JOURNAL_FILE
from tasks.store.tables.columns import Table
from tasks.store.tables.damage import (
    FLIPPED,
    committed,
    digest_in,
    in_memory,
    is_flipped,
    missing_files,
    past_signals,
)
from tasks.store.tables.resolver import Resolution, resolve
from tasks.store.tables.tables import GENERATIONS, RUNS, TABLES


def check_store(root: Path) -> dict[Path, str]:
    """Return each torn, changed, empty, foreign or missing file with its problem."""
    resolution = resolve(root)
    damaged: dict[Path, str] = {}
    with in_memory() as connection:
        for table in TABLES.values():
            for file in resolution.files[table.name]:
                reason = past_signals(partial(_problem, connection, table, file), connection)
                if reason is not None:
                    damaged[Path(file)] = reason
        for path, reason in _not_as_committed(resolution):
            damaged.setdefault(path, reason)
    journal = root / JOURNAL_FILE
    reason = journal_damage(journal) if journal.exists() else None
    if reason is not None:
        damaged[journal] = reason
    return damaged


def _problem(connection: duckdb.DuckDBPyConnection, table: Table, file: str) -> str | None:
    if not Path(file).stat().st_size:
        return "the file is empty"
    if is_flipped(file):
        return FLIPPED
    run_id = Path(file).parent.name.removeprefix("run_id=")
    is_of_run = "run_id" in table.key and not run_id.startswith("day=")
    is_foreign = "run_id IS DISTINCT FROM $run" if is_of_run else "$run IS NULL"
    try:
        kinds = connection.execute(
            "SELECT decode(value) FROM parquet_kv_metadata($file) "
            "WHERE decode(key) = 'convergence_table'",
            {"file": file},
        ).fetchall()
        if kinds != [(table.name,)]:
            return f"the file does not say that it belongs to table {table.name}"
        _, n_foreign = connection.execute(
            f"SELECT bit_xor(hash(t)), count(*) FILTER (WHERE {is_foreign}) "  # noqa: S608 - a registry's SQL
            f"FROM ({table.files_sql([file])}) t",
            {"run": run_id},
        ).fetchall()[0]
    except duckdb.Error as error:
        return str(error).splitlines()[0]
    if n_foreign:
        return f"{n_foreign} rows are not of run {run_id}"
    return None


def _not_as_committed(resolution: Resolution) -> Iterator[tuple[Path, str]]:
    """Compare the files with those that the commit markers name."""
    for marker in (*resolution.files[RUNS.name], *resolution.files[GENERATIONS.name]):
        path = Path(marker)
        for table, digest in committed(marker):
            file = path.parents[2] / table / path.parent.name / path.name
            if file.exists() and digest_in(file) != digest:
                yield file, f"{path} committed another file"
    for name, reason in missing_files(resolution.files, TABLES):
        yield Path(name), reason
