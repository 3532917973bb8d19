"""Results of prompt optimizers: rows of a CSV file, and their table with intervals."""

import csv
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

FIELDS = ("optimizer", "seed", "n_calls", "gap_closed", "quality", "prompt")


def add_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Append rows to a file, which begins with their names."""
    is_new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


def read_rows(path: Path) -> dict[str, dict[int, float]]:
    """Return optimizer → seed → gap closed; of a seed that was run twice the last counts."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["optimizer"]][int(row["seed"])] = float(row["gap_closed"])
    return dict(found)


def table(found: Mapping[str, Mapping[int, float]], reference: str) -> str:
    """Return the table of gaps closed, and of the reference's paired lead over each other one."""
    lines = ["| | gap closed | seeds | ahead by, paired |", "|---|---|---|---|"]
    ours = found.get(reference, {})
    for name, by_seed in sorted(found.items(), key=lambda item: -np.mean([*item[1].values()])):
        lead = ""
        shared = [ours[seed] - gap for seed, gap in by_seed.items() if seed in ours]
        if name != reference and len(shared) > 1:
            lead = _told(shared, sign="+")
        lines.append(f"| `{name}` | {_told([*by_seed.values()])} | {len(by_seed)} | {lead} |")
    return "\n".join(lines)


def _told(values: Sequence[float], sign: str = "") -> str:
    """Return mean and half width of a 95 % interval."""
    n = len(values)
    half = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return f"{float(np.mean(values)):{sign}.3f} ± {half:.3f}"
