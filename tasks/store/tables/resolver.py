"""Visible files of the store, as an explicit list per table.

Markers are listed first: runs in ``final/runs``, then generations in ``live/generations``, then
the tables. A generation without its marker is invisible. Listing ``final`` before ``live`` avoids
gaps and duplicates while a run is being compacted.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks.store.layout import PART_FILE, final_row, folder_of, live_row, names_in, runs_in
from tasks.store.tables.tables import RUNTIME_TABLES, TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The store at one moment. Files never change, but live ones are deleted eventually."""

    files: Mapping[str, tuple[str, ...]]
    """Paths by table, in the order of runs and generations."""
    stamps: tuple[tuple[int, int], ...]
    """(inode, mtime in ns) of each live run's row, which is replaced. Day files of answers'
    attempts are also replaced.
    """


def resolve(root: Path) -> Resolution:
    """Return the visible files of all tables."""
    final_runs = [run for run in runs_in(root / "final" / "runs") if final_row(root, run).exists()]
    committed = {
        run: _names(folder_of(root, "live", "generations", run))
        for run in runs_in(root / "live" / "generations")
        if run not in final_runs
    }
    files: dict[str, tuple[str, ...]] = {}
    for runtime in RUNTIME_TABLES:
        files[runtime.name] = _by_day(root / "final" / runtime.name)
    for table in TABLES:
        if table in files:
            continue
        paths = [folder_of(root, "final", table, run) / PART_FILE for run in final_runs]
        final_files = [str(path) for path in paths if path.exists()]
        if table != "runs":
            for run, names in committed.items():
                folder = folder_of(root, "live", table, run)
                final_files.extend(f"{folder}{os.sep}{name}" for name in names & _names(folder))
        served = _by_day(root / "final" / table)  # a service's answers, which belong to no run
        files[table] = (*sorted(final_files, key=_order), *served)
    rows = [
        live_row(root, run) for run in runs_in(root / "live" / "runs") if run not in final_runs
    ]
    rows = [row for row in rows if row.exists()]
    files["runs"] = tuple(sorted((*files["runs"], *map(str, rows)), key=_order))
    stamps = [row.stat() for row in rows]
    return Resolution(files=files, stamps=tuple((s.st_ino, s.st_mtime_ns) for s in stamps))


def committed_files(root: Path, table: str, run_id: str) -> list[str]:
    """Return an unfinished run's visible files of one table, the final re-estimation last."""
    names = _names(folder_of(root, "live", "generations", run_id))
    folder = folder_of(root, "live", table, run_id)
    visible = [f"{folder}{os.sep}{name}" for name in names & _names(folder)]
    return sorted(visible, key=_order)


def _by_day(folder: Path) -> tuple[str, ...]:
    """Return the files of a table in folders by day, sorted."""
    days = sorted(name for name in names_in(folder) if name.startswith("day="))
    return tuple(
        f"{folder}{os.sep}{day}{os.sep}{name}"
        for day in days
        for name in sorted(_names(folder / day))
    )


def _names(folder: Path) -> set[str]:
    return {name for name in names_in(folder) if name.endswith(".parquet") and name[0] != "."}


def _order(path: str) -> tuple[str, bool, int, str]:
    folder, _, name = path.rpartition(os.sep)
    # Generation 100000 has one more digit than 99999, and `final` comes last.
    return folder.rpartition(os.sep)[2], name.startswith("final"), len(name), name
