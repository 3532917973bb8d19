"""Export of served answers' calls from the journal to ``attempts``.

The answers of a system and a UTC day are one run of the ledger and one file. The export rewrites
the file until a day after the day's end, and later if the file lacks a call or the end of a call.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Final

import duckdb

from convergence_core.records import sha256_hex
from tasks.store.journal.sql_journal import Journal
from tasks.store.layout import writing
from tasks.store.tables.damage import find_damaged, in_memory
from tasks.store.tables.object_storage import mirror_of
from tasks.store.tables.parquet_files import ParquetFiles
from tasks.store.tables.tables import ATTEMPTS

_DAY_US: Final = 86_400 * 10**6
_EPOCH: Final = date(1970, 1, 1)


def export_answers(journal: Journal, root: Path, now_us: int) -> int:
    """Export the calls of served answers; return the number of rows written.

    The number includes rewritten rows of recent days.

    Args:
        journal: the ledger.
        root: folder of the results store.
        now_us: current time, in microseconds since the epoch.

    Raises:
        StoreDamagedError: a row of the journal has changed since its writing.
        StoreWriteError: a file could not be written; the next export writes it.
    """
    mirror, n_written = mirror_of(root), 0
    files = ParquetFiles(mirror)
    with writing(root):
        days = journal.service_days()
        paths = {run_id: _path(root, run_id) for run_id in days}
        written = _written(paths)
        for run_id, path in paths.items():
            end_us = ((date.fromisoformat(_day(run_id)) - _EPOCH).days + 1) * _DAY_US
            is_recent = now_us < end_us + _DAY_US
            is_whole = written.get(run_id) == days[run_id]
            if (is_recent and mirror is not None) or (is_whole and not is_recent):
                continue  # other machines do not fetch a file twice
            rows = journal.attempts(run_id, generation=None, all_generations=True)
            files.write(ATTEMPTS, rows, path)
            n_written += len(rows)
    files.close()
    return n_written


def _day(run_id: str) -> str:
    return run_id[-len("2026-01-31") :]


def _path(root: Path, run_id: str) -> Path:
    folder = root / "final" / ATTEMPTS.name / f"day={_day(run_id)}"
    return folder / f"{sha256_hex(run_id)}.parquet"


def _written(paths: Mapping[str, Path]) -> dict[str, tuple[int, int]]:
    """Return the counts of ``Journal.service_days``, from the readable files."""
    there = [str(path) for path in paths.values() if path.exists()]
    try:
        return _counts(there)
    except duckdb.Error:
        damaged = {file for file, _ in find_damaged(there)}
        if not damaged:
            raise
        return _counts([file for file in there if file not in damaged])


def _counts(files: Sequence[str]) -> dict[str, tuple[int, int]]:
    sql = (
        "SELECT run_id, count(*), count(*) FILTER (state = 'started') "  # noqa: S608 - a registry's SQL
        f"FROM ({ATTEMPTS.files_sql(files)}) GROUP BY run_id"
    )
    with closing(in_memory()) as connection:
        return {run: (n, n_begun) for run, n, n_begun in connection.execute(sql).fetchall()}
