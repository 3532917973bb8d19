"""Runs whose process is gone: they are ``running`` in their row, for the dead write nothing.

Whoever runs holds the lease of the system. A run that is ``running`` in its row while no living
process holds that lease was interrupted; and who has just taken the lease knows it of all others.
"""

from collections.abc import Sequence
from dataclasses import replace

import apsw

from convergence_core.store.layout import JOURNAL_FILE
from convergence_core.store.lease import held_systems
from convergence_core.store.parquet_store import ParquetStore
from convergence_core.store.protocols import RunRecord


def as_they_are(store: ParquetStore, records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records, those of runs whose process is gone as ``interrupted``.

    Nothing is written. Where nobody can know it, because the store has no journal or it cannot be
    read, the records are returned as they are.
    """
    if not any(record.status == "running" for record in records):
        return list(records)
    journal = store.path / JOURNAL_FILE
    try:
        held = held_systems(journal)
    except (FileNotFoundError, apsw.Error):
        return list(records)
    # A run that ended since has freed its lease, but told before how it ended.
    latest = {record.run_id: record for record in store.runs()}
    return [
        _interrupted(now) if now.status == "running" and now.name not in held else now
        for now in (latest.get(record.run_id, record) for record in records)
    ]


def mark_interrupted(store: ParquetStore, holder: RunRecord) -> None:
    """Write ``interrupted`` into the rows of the system's other runs that are ``running``.

    Args:
        store: the store.
        holder: a run whose process holds the lease of its system.

    Raises:
        StoreWriteError: a row cannot be written.
    """
    for record in store.runs(holder.name):
        if record.status == "running" and record.run_id != holder.run_id:
            store.save_run(_interrupted(record))


def _interrupted(record: RunRecord) -> RunRecord:
    reason = (
        "its process ended without a word. Nothing paid is lost: "
        f"`convergence resume {record.label}` goes on."
    )
    return replace(record, status="interrupted", reason=reason)
