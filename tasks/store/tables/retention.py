"""Retention of runs: expired runs, their removal, and the sweep of live files.

Readers see a run if it has a row in ``runs``, so that row is deleted first. Files left by a kill
are invisible, and the next maintenance removes them. Decisions, rewards, the state of production
and the journal stay untouched, so paid answers remain known.
"""

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from convergence_core.ports import RunRecord
from tasks.store.layout import PART_FILE, final_row, folder_of, live_row, writing
from tasks.store.tables.object_storage import Mirror, mirror_of
from tasks.store.tables.tables import TABLES

KEPT_OF_EACH_SYSTEM = 2
"""Latest finished runs per system that stay at any age, since warm starts read them."""
_STAGES = ("live", "final")


def due(
    records: Sequence[RunRecord], *, before_us: int, protected: frozenset[str] = frozenset()
) -> list[RunRecord]:
    """Return the finished runs that may be deleted, except their system's latest.

    Args:
        records: all runs of a store, latest first.
        before_us: microseconds since the epoch; runs that started earlier are old.
        protected: ids of runs that stay, e.g. those of champions.
    """
    kept: Counter[str] = Counter()
    due_files = []
    for record in records:
        if record.status != "done":
            continue
        kept[record.name] += 1
        is_late = kept[record.name] <= KEPT_OF_EACH_SYSTEM
        if record.started_us < before_us and not is_late and record.run_id not in protected:
            due_files.append(record)
    return due_files


def remove(root: Path, run_id: str) -> None:
    """Delete all files of a run's tables.

    Raises:
        StoreWriteError: a file cannot be deleted; the run may already be invisible.
    """
    mirror = mirror_of(root)
    with writing(root):
        for row in (final_row(root, run_id), live_row(root, run_id)):
            if mirror is not None and row.exists():
                mirror.drop(row)
            row.unlink(missing_ok=True)
        for folder in _folders(root, run_id):
            if mirror is not None:
                mirror.drop_folder(folder)
            shutil.rmtree(folder)


def orphans(root: Path, *, before_us: int) -> list[str]:
    """Return the ids of partly removed runs, which have files but no row.

    Args:
        root: folder of the store.
        before_us: microseconds since the epoch; a process may still be writing later files, so
            they are skipped.
    """
    newest: dict[str, int] = {}
    for stage in _STAGES:
        for folder in (root / stage).glob("*/run_id=*"):
            if folder.parent.name in TABLES:
                run_id = folder.name.removeprefix("run_id=")
                changed_us = folder.stat().st_mtime_ns // 1_000
                newest[run_id] = max(newest.get(run_id, 0), changed_us)
    return sorted(
        run_id
        for run_id, changed_us in newest.items()
        if changed_us < before_us
        and not any(row.exists() for row in (final_row(root, run_id), live_row(root, run_id)))
    )


def _folders(root: Path, run_id: str) -> Iterator[Path]:
    for stage in _STAGES:
        for table in TABLES:
            folder = folder_of(root, stage, table, run_id)
            if folder.is_dir():
                yield folder


GRACE_US = 24 * 3600 * 1_000_000
"""Microseconds for which live files outlast their run, for readers that have listed them."""

_LEFTOVER_US = 3600 * 1_000_000
"""Age in microseconds from which a ``.tmp`` file has no writer."""


def sweep(root: Path, now_us: int, grace_us: int, mirror: Mirror | None = None) -> int:
    """Delete expired live files and leftovers; return the number of live files deleted.

    Args:
        root: folder of the store.
        now_us: current time, in microseconds since the epoch.
        grace_us: microseconds for which live files outlast their run.
        mirror: object storage to delete from as well.

    Raises:
        StoreWriteError: a file cannot be deleted.
    """
    n_deleted = 0
    with writing(root):
        for marker in (root / "final" / "runs").glob(f"run_id=*/{PART_FILE}"):
            if marker.stat().st_mtime_ns // 1_000 + grace_us <= now_us:
                run_id = marker.parent.name.removeprefix("run_id=")
                n_deleted += sum(_delete_live(root, table, run_id, mirror) for table in TABLES)
        for leftover in _leftovers(root):
            with contextlib.suppress(FileNotFoundError):  # its writer may have just renamed it
                if leftover.stat().st_mtime_ns // 1_000 + _LEFTOVER_US <= now_us:
                    leftover.unlink()
    return n_deleted


def _leftovers(root: Path) -> Iterator[Path]:
    for pattern in (".*.tmp", "live/*/*/.*.tmp", "final/*/*/.*.tmp"):
        yield from root.glob(pattern)


def _delete_live(root: Path, table: str, run_id: str, mirror: Mirror | None) -> int:
    folder = folder_of(root, "live", table, run_id)
    if not folder.is_dir():
        return 0
    if mirror is not None:
        mirror.drop_folder(folder)  # first, since the local folder triggers a retry
    files = [*folder.iterdir()]
    for file in files:
        file.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):  # another process may sweep, too
        folder.rmdir()
    return len(files)
