"""Sweep of live files of finished runs, and of what killed writers left."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tasks.store.layout import PART_FILE, folder_of, writing
from tasks.store.tables.object_storage import Mirror
from tasks.store.tables.tables import TABLES

GRACE_US = 24 * 3600 * 1_000_000
"""How long live files outlast their run, for readers that have listed them."""

_LEFTOVER_US = 3600 * 1_000_000
"""A ``.tmp`` file older than this has no writer any more."""


def sweep(root: Path, now_us: int, grace_us: int, mirror: Mirror | None = None) -> int:
    """Delete what is due; return the number of live files deleted.

    Args:
        root: folder of the store.
        now_us: the time it is.
        grace_us: how long live files outlast their run.
        mirror: where they are deleted as well.

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
            with contextlib.suppress(FileNotFoundError):  # its writer has just renamed it
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
    n_deleted = 0
    if mirror is not None:
        mirror.drop_folder(folder)  # first: while the folder is here, it is tried again
    for file in folder.iterdir():
        file.unlink(missing_ok=True)
        n_deleted += 1
    with contextlib.suppress(FileNotFoundError):  # another process sweeps as well
        folder.rmdir()
    return n_deleted
