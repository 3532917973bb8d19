"""Upkeep of a store: sweep, retention, integrity.

It is safe while runs and readers are active.
"""

from dataclasses import dataclass
from pathlib import Path

from convergence_core.errors import StoreDamagedError
from tasks.store.clock import wall_clock_us
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.runtime.promotions import champion_runs
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.parquet_store import ParquetStore
from tasks.store.tables.retention import due, orphans, remove

DAY_US = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """Result of one maintenance, or of a dry run."""

    n_swept: int
    """Deleted live files of finished runs and leftovers of killed writers."""
    removed: tuple[str, ...]
    """Labels of runs whose tables were deleted, newest first."""
    adapters: tuple[str, ...]
    """Versions of stale and rejected adapters whose files were deleted."""
    damage: tuple[str, ...]
    """Damaged files, one line each."""
    n_runs: int
    n_bytes: int


def maintain_store(path: Path, *, keep_days: int | None = None, dry_run: bool = False) -> Upkeep:
    """Sweep a store, remove old tables, and check every file.

    The files of stale and rejected adapters are also removed.

    Args:
        path: folder of the store.
        keep_days: days after which finished runs lose their tables, except for the two latest of
            each system and those of champions; ``None`` keeps all. The journal keeps paid calls.
        dry_run: report what would be removed without changing anything.

    Raises:
        StoreDamagedError: there is no store.
        StoreError: the store cannot be read or written.
    """
    store = ParquetStore(path)
    if not store.exists:
        raise StoreDamagedError(
            f"a store must lie at {path}, but nothing does. Name its folder: `storage.path` of "
            "the configuration."
        )
    try:
        now = wall_clock_us()
        records = store.runs()
        old = []
        if keep_days is not None:
            before_us = now - keep_days * DAY_US
            old = due(records, before_us=before_us, protected=_champions(store.path))
        n_swept = 0
        if not dry_run:
            # Interrupted removals. At an age of an hour, no process is still writing them.
            half_removed = orphans(store.path, before_us=now - DAY_US // 24)
            for run_id in [*(record.run_id for record in old), *half_removed]:
                remove(store.path, run_id)
            n_swept = store.sweep(now)
        adapters = _useless_adapters(store.path, dry_run=dry_run)
        damage = tuple(f"{path}: {reason}" for path, reason in store.check().items())
        return Upkeep(
            n_swept=n_swept,
            removed=tuple(record.label for record in old),
            adapters=adapters,
            damage=damage,
            n_runs=len(records) - len(old),
            n_bytes=sum(file.stat().st_size for file in store.path.rglob("*") if file.is_file()),
        )
    finally:
        store.close()


def _useless_adapters(root: Path, *, dry_run: bool) -> tuple[str, ...]:
    if not FeedbackStore.exists_in(root):
        return ()
    with FeedbackStore(root) as feedback:
        return AdapterStore(feedback).remove_useless(dry_run=dry_run)


def _champions(root: Path) -> frozenset[str]:
    if not RuntimeStore.exists_in(root):
        return frozenset()
    with RuntimeStore(root) as state:
        return champion_runs(state)
