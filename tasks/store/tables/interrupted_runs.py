"""Interrupted runs: ``running`` in their row although their process is gone.

A running process holds the lease of its system, so a ``running`` run without such a process was
interrupted. A process that has just taken the lease knows this of all other runs.
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
    """Return the records, with ``interrupted`` for runs whose process is gone.

    Nothing is written. The records stay unchanged if the state is unknown: the journal is missing
    or unreadable, or the run may belong to another machine. That machine publishes to the same
    object storage and holds its lease in its own folder.
    """
    if not any(record.status == "running" for record in records):
        return list(records)
    journal = store.path / JOURNAL_FILE
    try:
        held, left = systems_of(journal)
    except (FileNotFoundError, apsw.Error):
        return list(records)
    # A run that has ended since has released its lease after writing its status.
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
    """Write the result of `with_current_status` into the rows, so that queries show it.

    Processes cannot take the system's lease meanwhile. Nothing is written on object storage, where
    the row may belong to another machine, or if the store is read-only.
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
    """Write ``interrupted`` into the rows of a system's other ``running`` runs.

    Args:
        store: the store.
        holder: a run whose process holds the lease of its system.

    Returns:
        The ids of all interrupted runs of the system, including earlier ones.

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
