"""Results of prompt optimizers: rows of a CSV file, and their table with intervals."""

import csv
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.tables import header, row, with_half


def read_rows(path: Path) -> dict[str, dict[int, float]]:
    """Return optimizer → seed → gap closed; of a seed that was run twice the last counts."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            found[line["optimizer"]][int(line["seed"])] = float(line["gap_closed"])
    return dict(found)


def table(found: Mapping[str, Mapping[int, float]], reference: str) -> str:
    """Return the table of gaps closed, and of the reference's paired lead over each other one."""
    lines = [header("", "gap closed", "seeds", "ahead by, paired")]
    ours = found.get(reference, {})
    for name, by_seed in sorted(found.items(), key=lambda item: -np.mean([*item[1].values()])):
        shared = [ours[seed] - gap for seed, gap in by_seed.items() if seed in ours]
        lead = with_half(shared, "+.3f") if name != reference and len(shared) > 1 else ""
        gap = with_half([*by_seed.values()])
        lines.append(row(f"`{name}`", gap, len(by_seed), lead))
    return "\n".join(lines)
