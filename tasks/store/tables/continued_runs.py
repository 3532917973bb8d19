"""Generations of a finished run as those of a run that continues it.

The finished run keeps every file and row. Its final re-estimation is not copied: the new run makes
its own. Calls that were paid stand in the new run's ledger as answers used again, at no cost, so
that sums over all runs count them once.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from convergence_core.ports import Row
from tasks.store.layout import PART_FILE, folder_of
from tasks.store.tables.parquet_files import ParquetFiles
from tasks.store.tables.tables import ATTEMPTS, GENERATION_TABLES

_NOTHING = {
    "tokens_in": 0,
    "tokens_out": 0,
    "cached_tokens": 0,
    "cache_write_tokens": 0,
    "reasoning_tokens": 0,
    "cost_usd": 0.0,
    "maybe_usd": 0.0,
    "maybe_tokens": 0,
}
"""What an answer used again has used."""

Generations = Mapping[int, Mapping[str, list[Row]]]
"""Rows by generation and table."""


def generations_for(root: Path, files: ParquetFiles, source_id: str, run_id: str) -> Generations:
    """Return what a finished run has committed, as rows of another run.

    Args:
        root: folder of the store.
        files: reads single files.
        source_id: a finished run.
        run_id: the run whose rows these are to be.

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
            # Payloads are kept once per run, so the first generation may hold them all.
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
    """Return an attempt as a use of its answer; ``None``: it has none, and another run's books."""
    if row["state"] not in {"done", "cached"}:
        return None
    return {
        **row,
        **_NOTHING,
        "run_id": run_id,
        "state": "cached",
        "payer_run_id": row["payer_run_id"] or source_id,
    }
