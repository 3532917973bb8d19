"""Result rows, one per opponent, task, seed and budget, in append-only CSV files."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

Job = tuple[str, str, int, int]
"""(opponent, task, seed, budget)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One recommendation and its cost; ``None`` means unknown."""

    opponent: str
    task: str
    suite: str
    seed: int
    budget: int
    true: float
    """True value of the recommended point."""
    true_best_seen: float | None
    """Highest true value among all evaluated points; ``None`` if too expensive to compute."""
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
    """CPU of the batch with the slowest ask and tell."""
    claimed: float | None = None
    claimed_low: float | None = None
    claimed_high: float | None = None
    level: float | None = None
    delta: float | None = None
    probability_within: float | None = None

    @property
    def job(self) -> Job:
        """Key of the run."""
        return self.opponent, self.task, self.seed, self.budget


_TEXTS = {"opponent", "task", "suite"}
_INTEGERS = {"seed", "budget", "n_points", "n_cells"}
_NAMES = [f.name for f in fields(Row)]


def parse(raw: dict[str, str]) -> Row:
    """Parse a line; empty cells become ``None``."""
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
    """Read rows and keep the last one of each job.

    Raises:
        FileNotFoundError: If a file does not exist.
    """
    rows: dict[Job, Row] = {}
    for path in paths:
        with path.open(encoding="utf-8", newline="") as file:
            for raw in csv.DictReader(file):
                row = parse(raw)
                rows[row.job] = row
    yield from rows.values()
