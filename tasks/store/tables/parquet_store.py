"""Immutable results as parquet files, read through views.

A published generation depends only on the run's settings, its seed and the journal. Its
``generations`` file is written last, and a generation without it is invisible. A process killed
while publishing therefore leaves nothing half done, and publishing again writes the same rows
under the same names. The final re-estimation (generation -1) has an empty ``generations`` file as
marker.
"""

import json
import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from convergence_core.errors import RunNotFoundError, StoreError
from convergence_core.ports import Checkpoint, Row, RunRecord
from tasks.store.journal.ledger import USAGE_COLUMNS
from tasks.store.layout import (
    FINAL_GENERATION,
    PART_FILE,
    check_format,
    check_run_id,
    day_folder,
    ensure_store,
    final_row,
    folder_of,
    generation_file,
    live_row,
    store_root,
)
from tasks.store.tables.columns import Table
from tasks.store.tables.damage import digest_in
from tasks.store.tables.integrity import check_store
from tasks.store.tables.object_storage import mirror_of
from tasks.store.tables.parquet_files import ParquetFiles
from tasks.store.tables.query import Reader
from tasks.store.tables.resolver import committed_files, resolve
from tasks.store.tables.retention import GRACE_US, sweep
from tasks.store.tables.tables import (
    AHEAD_TABLES,
    ATTEMPTS,
    GENERATION_TABLES,
    GENERATIONS,
    RUNS,
    TABLES,
)

_LOGGER = logging.getLogger(__name__)
_COLUMNS = {"started_us": "started_at", "ended_us": "ended_at", "tags": "tags_json"}
"""Field of a ``RunRecord`` → its column, if the names differ."""


class ParquetStore(Reader):
    """Immutable tables of runs on a local disk.

    The first write creates the folder. Thread-safe.
    """

    def __init__(self, path: Path | str) -> None:
        """Open the store at ``path``, or prepare to create it.

        Raises:
            StoreFormatError: the path holds `*`, `?` or `[`, or is not a store.
            StoreWriteError: the path is a file, or the folder cannot be read.
        """
        super().__init__(store_root(path))
        self._exists = check_format(self.path)
        self.mirror = mirror_of(self.path)
        """Mirror of the tables on object storage; ``None`` if there is none."""
        self._files = ParquetFiles(self.mirror)

    @property
    def exists(self) -> bool:
        """Whether the store has been created."""
        self._exists = self._exists or check_format(self.path)
        return self._exists

    # -- writing

    def publish(self, run_id: str, generation: int, tables: Mapping[str, Sequence[Row]]) -> None:
        """Publish a generation durably, the commit marker last.

        A committed generation is never written a second time, so a repetition is harmless.

        Args:
            run_id: id of the run.
            generation: number from 0, or -1 for the final re-estimation.
            tables: rows by table name; ``generations`` holds exactly one row, none for -1.

        Raises:
            ValueError: rows belong to another run or generation, or the marker is missing.
            StoreWriteError: the write failed; nothing of this generation is visible.
        """
        name = generation_file(generation)
        late = [table for table in GENERATION_TABLES if table not in AHEAD_TABLES]
        _check_rows(check_run_id(run_id), generation, tables, late)
        n_markers = len(tables.get(GENERATIONS.name, ()))
        if n_markers != (generation != FINAL_GENERATION):
            raise ValueError(
                "a generation must have one row in generations, the final re-estimation none, but "
                f"{generation} has {n_markers}"
            )
        self._ensure()
        marker = folder_of(self.path, "live", GENERATIONS.name, run_id) / name
        if marker.exists() or final_row(self.path, run_id).exists():
            return
        for table in late:
            rows = tables.get(table.name, ())
            path = folder_of(self.path, "live", table.name, run_id) / name
            if table is GENERATIONS:
                self._files.write(table, rows, path, committed=self._digests(path))
            elif rows:
                self._files.write(table, rows, path)
            else:
                self._files.forget(path)  # left by an earlier attempt with such rows

    def write_ahead(
        self, run_id: str, generation: int, tables: Mapping[str, Sequence[Row]]
    ) -> None:
        """Write rows that are fixed before a generation's evaluation; they appear with it.

        Planning a generation again replaces them until it is published.

        Args:
            run_id: id of the run.
            generation: number from 0, not yet committed.
            tables: rows by table name, of ``AHEAD_TABLES``.

        Raises:
            ValueError: the table is not in ``AHEAD_TABLES``, or a row belongs to another run or
                generation.
            StoreWriteError: the write failed; the earlier file is unchanged.
        """
        _check_rows(check_run_id(run_id), generation, tables, AHEAD_TABLES)
        self._ensure()
        for name, rows in tables.items():
            folder = folder_of(self.path, "live", name, run_id)
            self._files.write(TABLES[name], rows, folder / generation_file(generation))

    def save_run(self, record: RunRecord) -> None:
        """Create or replace the run's row atomically; sweep old files at a run's start and end.

        Raises:
            ValueError: the run is finished.
            StoreWriteError: the write failed; the old row is unchanged.
        """
        self._ensure()
        if final_row(self.path, check_run_id(record.run_id)).exists():
            raise ValueError(f"run {record.run_id} is finished: its row cannot change")
        path = live_row(self.path, record.run_id)
        is_new = not path.exists()
        self._files.write(RUNS, [_row_of(record)], path)
        if is_new or record.status != "running":
            self._tidy(record)

    def add_rows(self, table: Table, rows: Sequence[Row], now_us: int) -> None:
        """Add rows that belong to no run, all or none; they never change.

        Args:
            table: one of ``ADDED_TABLES``.
            rows: rows to add; without any, nothing is written.
            now_us: current time, in microseconds since the epoch.

        Raises:
            StoreWriteError: the write failed; nothing is added.
        """
        if not rows:
            return
        self._ensure()
        name = f"seq-{now_us:016d}-{uuid.uuid4().hex[:8]}.parquet"
        self._files.write(table, rows, day_folder(self.path, table.name, now_us) / name)

    def finish_run(self, record: RunRecord) -> None:
        """Save a ``done`` run's row and compact its generations into one file per table.

        The run's file in ``final`` is written last and decides which set of files is read. Live
        files stay for a day, for readers that have listed them.

        Raises:
            ValueError: the run is not done.
            StoreWriteError: the write failed; the run is unfinished, and all its rows are visible.
        """
        if record.status != "done":
            raise ValueError(f"only a done run is finished, but got status {record.status!r}")
        self._ensure()
        if final_row(self.path, check_run_id(record.run_id)).exists():
            return
        for table in GENERATION_TABLES:
            sources = committed_files(self.path, table.name, record.run_id)
            path = folder_of(self.path, "final", table.name, record.run_id) / PART_FILE
            if sources:
                self._files.merge(table, sources, path)
        path = final_row(self.path, record.run_id)
        self._files.write(RUNS, [_row_of(record)], path, committed=self._digests(path))
        self._tidy(record)

    def continue_run(self, source_id: str, run_id: str) -> None:
        """Publish a finished run's generations under the id of a new run.

        The finished run stays unchanged. Its final re-estimation is not copied. A repetition is
        harmless.

        Args:
            source_id: id of a finished run.
            run_id: id of an unfinished run with a row.

        Raises:
            StoreDamagedError: a file of the finished run cannot be read.
            StoreWriteError: a write failed; the generations before it are visible.
        """
        folder = folder_of(self.path, "live", GENERATIONS.name, check_run_id(run_id))
        ahead = {table.name for table in AHEAD_TABLES}
        generations = generations_for(self.path, self._files, check_run_id(source_id), run_id)
        for generation, tables in sorted(generations.items()):
            if (folder / generation_file(generation)).exists():
                continue
            early = {name: rows for name, rows in tables.items() if name in ahead}
            self.write_ahead(run_id, generation, early)
            late = {name: rows for name, rows in tables.items() if name not in ahead}
            self.publish(run_id, generation, late)

    def sweep(self, now_us: int, grace_us: int = GRACE_US) -> int:
        """Delete live files of runs that finished before the grace period; return their number."""
        if not self.exists:
            return 0
        return sweep(self.path, now_us, grace_us, self.mirror)

    # -- reading

    def run(self, name: str) -> RunRecord:
        """Find one run by id, label or unambiguous part of its id.

        Raises:
            RunNotFoundError: no run matches, or several do.
        """
        records = self.runs()
        exact = [r for r in records if r.run_id == name] or [r for r in records if r.label == name]
        part = name.upper()
        matches = exact or [r for r in records if part and part in r.run_id.upper()]
        if len(matches) == 1:
            return matches[0]
        shown = ", ".join(r.label for r in (matches or records)[:5]) or "none"
        if matches:
            raise RunNotFoundError(
                f"{len(matches)} runs of the store {self.path} answer to {name!r}: {shown}. "
                f"Give a whole id, e.g. {matches[0].run_id}."
            )
        raise RunNotFoundError(
            f"the store {self.path} holds no run {name!r}. Its latest runs: {shown}."
        )

    def runs(self, system: str | None = None) -> list[RunRecord]:
        """Return all runs or those of one optimized system, latest first.

        Raises:
            StoreDamagedError: a file cannot be read.
        """
        files = resolve(self.path).files[RUNS.name]
        rows = self._files.read(RUNS, files, "ORDER BY started_at DESC, run_id DESC")
        records = [_record_of(row) for row in rows]
        return [record for record in records if system is None or record.name == system]

    def checkpoint(self, run_id: str) -> Checkpoint | None:
        """Return the last committed generation's checkpoint; ``None`` before the first.

        Raises:
            StoreDamagedError: its file cannot be read.
        """
        final = folder_of(self.path, "final", GENERATIONS.name, check_run_id(run_id)) / PART_FILE
        files = [str(final)]
        if not final_row(self.path, run_id).exists():
            committed = committed_files(self.path, GENERATIONS.name, run_id)
            files = [file for file in committed if not file.endswith("final.parquet")][-1:]
        rows = self._files.read(GENERATIONS, files, "ORDER BY generation DESC LIMIT 1")
        if not rows:
            return None
        values: dict[str, Any] = {field.name: rows[0][field.name] for field in fields(Checkpoint)}
        return Checkpoint(**values)

    def check(self) -> dict[Path, str]:
        """Read every visible file and the journal; return each damaged one with its problem."""
        return check_store(self.path) if self.exists else {}

    def close(self) -> None:
        """Free DuckDB's memory; safe to call twice, and the store stays usable."""
        self._files.close()
        super().close()

    # -- helpers

    def _ensure(self) -> None:
        if not self._exists:
            ensure_store(self.path)
            self._exists = True

    def _tidy(self, record: RunRecord) -> None:
        """Sweep old files; a failure must not stop the run."""
        try:
            sweep(self.path, record.ended_us or record.started_us, GRACE_US, self.mirror)
        except StoreError as error:
            _LOGGER.warning("%s", error)

    def _digests(self, marker: Path) -> dict[str, str]:
        """Return table → digest of the files that a commit marker will make visible."""
        digests = {}
        for table in GENERATION_TABLES:
            path = marker.parents[2] / table.name / marker.parent.name / marker.name
            if path != marker and path.exists():
                digests[table.name] = digest_in(path) or ""
        return digests


def _check_rows(
    run_id: str,
    generation: int,
    tables: Mapping[str, Sequence[Row]],
    known: Iterable[Table],
) -> None:
    names = [table.name for table in known]
    if unknown := sorted(tables.keys() - {*names}):
        raise ValueError(f"{unknown[0]!r} must be one of the tables {', '.join(names)}")
    expected = None if generation == FINAL_GENERATION else generation
    for name, rows in tables.items():
        has_generation = any(column.name == "generation" for column in TABLES[name].columns)
        for row in rows:
            owner = row.get("run_id"), row.get("generation", None if has_generation else expected)
            if owner != (run_id, expected):
                raise ValueError(
                    f"a row of {name} must be of run {run_id} and generation {expected}, but is of "
                    f"run {owner[0]} and generation {owner[1]}"
                )


def _row_of(record: RunRecord) -> Row:
    row = {
        _COLUMNS.get(field.name, field.name): getattr(record, field.name)
        for field in fields(record)
    }
    tags = json.dumps(dict(record.tags), sort_keys=True, ensure_ascii=False)
    return {**row, "tags_json": tags}


def _record_of(row: Mapping[str, Any]) -> RunRecord:
    values = {field.name: row[_COLUMNS.get(field.name, field.name)] for field in fields(RunRecord)}
    return RunRecord(**{**values, "tags": json.loads(row["tags_json"] or "{}")})


_NOTHING = {
    **dict.fromkeys((*USAGE_COLUMNS, "maybe_tokens"), 0),
    **dict.fromkeys(("cost_usd", "maybe_usd"), 0.0),
}
"""Tokens and cost of a reused answer."""

Generations = Mapping[int, Mapping[str, list[Row]]]


def generations_for(root: Path, files: ParquetFiles, source_id: str, run_id: str) -> Generations:
    """Return the committed rows of a finished run, as rows of another run.

    Args:
        root: folder of the store.
        files: reader of single files.
        source_id: id of a finished run.
        run_id: id of the run that receives the rows.

    Raises:
        StoreDamagedError: a file cannot be read.
    """
    generations: dict[int, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for table in GENERATION_TABLES:
        part = folder_of(root, "final", table.name, source_id) / PART_FILE
        if not part.exists():
            continue
        has_generation = any(column.name == "generation" for column in table.columns)
        for row in files.read(table, [str(part)]):
            # Payloads are stored once per run, so the first generation may hold them all.
            generation = row["generation"] if has_generation else 0
            if not isinstance(generation, int):
                continue  # the final re-estimation
            copied: Row | None = {**row, "run_id": run_id}
            if table is ATTEMPTS:
                copied = _used_again(row, source_id, run_id)
            if copied is not None:
                generations[generation][table.name].append(copied)
    return generations


def _used_again(row: Row, source_id: str, run_id: str) -> Row | None:
    """Return an attempt as a cache hit of the new run; ``None`` if it has no answer."""
    if row["state"] not in {"done", "cached"}:
        return None
    return {
        **row,
        **_NOTHING,
        "run_id": run_id,
        "state": "cached",
        "payer_run_id": row["payer_run_id"] or source_id,
    }
