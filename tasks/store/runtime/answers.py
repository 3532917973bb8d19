"""Export of served answers' calls from the journal to ``attempts``.

The answers of a system and a UTC day are one run of the ledger and one file, which is written again until
the day has been over for another one: by then its last call has ended or is lost.
"""

from datetime import date
from pathlib import Path
from typing import Final

from convergence_core.records import sha256_hex
from tasks.store.journal.sql_journal import Journal
from tasks.store.layout import writing
from tasks.store.tables.object_storage import mirror_of
from tasks.store.tables.parquet_files import ParquetFiles
from tasks.store.tables.tables import ATTEMPTS

_DAY_US: Final = 86_400 * 10**6
_EPOCH: Final = date(1970, 1, 1)


def export_answers(journal: Journal, root: Path, now_us: int) -> int:
    """Export the calls of served answers; return how many were written, known ones of a recent day too.

    Args:
        journal: the ledger.
        root: folder of the results store.
        now_us: the time, in microseconds since the epoch.

    Raises:
        StoreDamagedError: a row of the journal is not as it was written.
        StoreWriteError: a file could not be written; the next export writes it.
    """
    mirror, n_written = mirror_of(root), 0
    files = ParquetFiles(mirror)
    with writing(root):
        for run_id in journal.service_days():
            day = run_id[-len("2026-01-31") :]
            end_us = ((date.fromisoformat(day) - _EPOCH).days + 1) * _DAY_US
            path = root / "final" / ATTEMPTS.name / f"day={day}" / f"{sha256_hex(run_id)}.parquet"
            is_kept = path.exists() and path.stat().st_mtime_ns // 1_000 > end_us + _DAY_US
            if is_kept or (mirror is not None and now_us < end_us + _DAY_US):
                continue  # what another machine has fetched is not fetched again
            rows = journal.attempts(run_id, generation=None, all_generations=True)
            files.write(ATTEMPTS, rows, path)
            n_written += len(rows)
    files.close()
    return n_written
