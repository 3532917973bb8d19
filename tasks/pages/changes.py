"""Changes of a store: its active runs, cheap enough to check every second."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import apsw

from tasks.store.feedback.schema import FEEDBACK_FILE
from tasks.store.layout import JOURNAL_FILE, RUN_FILE, folder_of, names_in, runs_in
from tasks.store.runtime.schema import RUNTIME_FILE, VARIABLE
from tasks.store.sqlite import rows_read_only

ChangeKind = Literal["begun", "generation", "cells", "ended", "production", "feedback"]
_SHARED_S = 5.0
"""Seconds after which a shared database counts as changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChange:
    """A change of one run, of production or of the feedback."""

    kind: ChangeKind
    run_id: str | None
    """Id of the run; ``None`` for production and feedback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreMark:
    """State of a store for comparison. Equal marks show the same."""

    live: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Unfinished run → its number of committed generations, and the mtime of its row in ns."""
    final: frozenset[str] = frozenset()
    call: tuple[int, str] = (0, "")
    """Number of the journal's last attempt, and its run."""
    production: tuple[int, int] = (0, 0)
    """Last modification of the runtime state in ns, and its size with its log in bytes."""
    feedback: tuple[int, int] = (0, 0)
    """Same values for the feedback."""

    @classmethod
    def of(cls, root: Path, now_s: float | None = None) -> "StoreMark":
        """Return the current mark of a store.

        Args:
            root: folder of the store.
            now_s: clock in seconds; ``None`` means the wall clock. Changes of a shared database
                are invisible, so it counts as changed every few seconds.
        """
        production, feedback = (_written(root / file) for file in (RUNTIME_FILE, FEEDBACK_FILE))
        if os.environ.get(VARIABLE):
            production = feedback = (int((now_s or time.time()) / _SHARED_S), 0)
        return cls(
            live=dict(_live(root)),
            final=frozenset(runs_in(root / "final" / "runs")),
            call=_last_call(root / JOURNAL_FILE),
            production=production,
            feedback=feedback,
        )

    def changes_to(self, now: "StoreMark") -> list[StoreChange]:
        """Return the changes up to a later mark."""
        changes = [StoreChange(kind="ended", run_id=run) for run in sorted(now.final - self.final)]
        for run, (n, stamp) in sorted(now.live.items()):
            before = self.live.get(run)
            if run in now.final:
                continue
            if before is None:
                changes.append(StoreChange(kind="begun", run_id=run))
            elif n > before[0]:
                changes.append(StoreChange(kind="generation", run_id=run))
            elif stamp != before[1]:
                changes.append(StoreChange(kind="ended", run_id=run))
        if now.call != self.call and now.call[1]:
            changes.append(StoreChange(kind="cells", run_id=now.call[1]))
        shared: tuple[ChangeKind, ...] = ("production", "feedback")
        changes += [
            StoreChange(kind=kind, run_id=None)
            for kind in shared
            if getattr(now, kind) != getattr(self, kind)
        ]
        return changes


def _live(root: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for run in runs_in(root / "live" / "runs"):
        with contextlib.suppress(OSError):
            stamp = (folder_of(root, "live", "runs", run) / RUN_FILE).stat().st_mtime_ns
            markers = names_in(folder_of(root, "live", "generations", run))
            yield run, (sum(name.endswith(".parquet") for name in markers), stamp)


def _last_call(journal: Path) -> tuple[int, str]:
    last = "SELECT id, run_id FROM attempts ORDER BY id DESC LIMIT 1"
    with contextlib.suppress(OSError, apsw.Error):
        for number, run in rows_read_only(journal, last):
            return int(number), str(run)
    return 0, ""


def _written(database: Path) -> tuple[int, int]:
    """Return a database's last modification in ns, and its size with its log in bytes."""
    stamp = (0, 0)
    for file in (database, database.with_name(f"{database.name}-wal")):
        with contextlib.suppress(OSError):
            stat = file.stat()
            stamp = (max(stamp[0], stat.st_mtime_ns), stamp[1] + stat.st_size)
    return stamp
