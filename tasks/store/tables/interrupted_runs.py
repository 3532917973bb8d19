"""Interrupted runs: ``running`` in their row, while their process is gone.

A running process holds the lease of its system. A run that is ``running`` in its row while no
process holds that lease was interrupted; a process that has just taken the lease knows it of all others.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

import apsw

from convergence_core.errors import StoreError
from convergence_core.ports import RunRecord
from tasks.store.journal.lease import systems_of, while_unheld
from tasks.store.layout import JOURNAL_FILE
from tasks.store.tables.parquet_store import ParquetStore

_LOGGER = logging.getLogger(__name__)


def with_current_status(store: ParquetStore, records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the records, those of runs whose process is gone as ``interrupted``.

    Nothing is written. Where that cannot be known, the records are returned as they are: the store has
    no journal, or it cannot be read; or the run may be another machine's, which publishes at the same
    address of object storage and holds its lease in its own folder.
    """
    if not any(record.status == "running" for record in records):
        return list(records)
    journal = store.path / JOURNAL_FILE
    try:
        held, left = systems_of(journal)
    except (FileNotFoundError, apsw.Error):
        return list(records)
    # A run that ended since has freed its lease, but has written before how it ended.
    latest = {record.run_id: record for record in store.runs()}
    return [
        _interrupted(now)
        if now.status == "running"
        and now.name not in held
        and (store.mirror is None or now.name in left)
        else now
        for now in (latest.get(record.run_id, record) for record in records)
    ]


def settle_interrupted(store: ParquetStore) -> None:
    """Write what `with_current_status` finds into the rows, so that queries show it.

    A process that is about to take a lease waits meanwhile. Nothing is written at an address of object
    storage, where the row may be another machine's, nor where the store can only be read.
    """
    if store.mirror is not None:
        return
    interrupted = [
        record
        for record in with_current_status(store, store.runs())
        if record.status == "interrupted"
    ]
    for system in sorted(
        {record.name for record in interrupted if store.run(record.run_id).status == "running"}
    ):
        try:
            with while_unheld(store.path, system) as is_free:
                if is_free:
                    _mark(store, system)
        except StoreError as error:
            _LOGGER.info("runs of %s whose process is gone stay as they are: %s", system, error)


def mark_interrupted(store: ParquetStore, holder: RunRecord) -> list[str]:
    """Write ``interrupted`` into the rows of the system's other runs that are ``running``.

    The ids of all its interrupted runs are returned, also of those marked before.

    Args:
        store: the store.
        holder: a run whose process holds the lease of its system.

    Raises:
        StoreWriteError: a row cannot be written.
    """
    _mark(store, holder.name, but=holder.run_id)
    return [run.run_id for run in store.runs(holder.name) if run.status == "interrupted"]


def _mark(store: ParquetStore, system: str, *, but: str | None = None) -> None:
    for record in store.runs(system):
        if record.status == "running" and record.run_id != but:
            store.save_run(_interrupted(record))


def _interrupted(record: RunRecord) -> RunRecord:
    reason = (
        "its process ended without a reason. Paid answers are kept; "
        f"`convergence resume {record.label}` continues."
    )
    return replace(record, status="interrupted", reason=reason)
