"""Rows of results: one per opponent, task, seed and budget, in CSV files that only grow."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

Job = tuple[str, str, int, int]
"""(opponent, task, seed, budget)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One recommendation and what it cost; ``None``: not known."""

    opponent: str
    task: str
    suite: str
    seed: int
    budget: int
    true: float
    """True value of the recommended point."""
    true_best_seen: float | None
    """Highest true value among all evaluated points; ``None`` where it costs too much."""
    n_points: int
    """Different points evaluated."""
    n_cells: int
    """Cells used: evaluations, or their cases."""
    ask_ms: float
    """CPU per batch, mean."""
    tell_ms: float
    """CPU per batch, mean."""
    recommend_ms: float
    worst_batch_ms: float
    """CPU of the slowest ask and tell of one batch."""
    claimed: float | None = None
    claimed_low: float | None = None
    claimed_high: float | None = None
    level: float | None = None
    delta: float | None = None
    probability_within: float | None = None

    @property
    def job(self) -> Job:
        """What was done."""
        return self.opponent, self.task, self.seed, self.budget


_TEXTS = {"opponent", "task", "suite"}
_INTEGERS = {"seed", "budget", "n_points", "n_cells"}
_NAMES = [f.name for f in fields(Row)]


def parse(raw: dict[str, str]) -> Row:
    """Return the row of a line; empty cells are ``None``."""
    values: dict[str, object] = {}
    for name in _NAMES:
        text = raw[name]
        if name in _TEXTS:
            values[name] = text
        elif name in _INTEGERS:
            values[name] = int(text)
        else:
            values[name] = float(text) if text else None
    return Row(**values)  # type: ignore[arg-type]  # by name, as written


def read(paths: Iterable[Path]) -> Iterator[Row]:
    """Read rows; of rows of the same job the last one counts.

    Raises:
        FileNotFoundError: a file does not exist.
    """
    rows: dict[Job, Row] = {}
    for path in paths:
        with path.open(encoding="utf-8", newline="") as file:
            for raw in csv.DictReader(file):
                row = parse(raw)
                rows[row.job] = row
    yield from rows.values()
