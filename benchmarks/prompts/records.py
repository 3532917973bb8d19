"""Results of prompt optimizers: CSV rows, and a table with intervals."""

import csv
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.tables import header, row, with_half

Found = dict[str, dict[int, tuple[float, float]]]


def read_rows(path: Path, world: str) -> Found:
    """Return optimizer → seed → gap closed and calls. A seed's last run counts."""
    found: Found = defaultdict(dict)
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if line["world"] == world:
                values = float(line["gap_closed"]), float(line["n_calls"])
                found[line["optimizer"]][int(line["seed"])] = values
    return dict(found)


def table(found: Mapping[str, Mapping[int, tuple[float, float]]], reference: str) -> str:
    """Return the table of gaps closed and of the reference's paired lead over each optimizer."""
    lines = [header("", "gap closed", "calls", "seeds", "ahead by, paired")]
    ours = found.get(reference, {})
    for name, by_seed in sorted(
        found.items(), key=lambda item: -np.mean([gap for gap, _ in item[1].values()])
    ):
        gaps, n_calls = zip(*by_seed.values(), strict=True)
        shared = [ours[seed][0] - gap for seed, (gap, _) in by_seed.items() if seed in ours]
        lead = with_half(shared, "+.3f") if name != reference and len(shared) > 1 else ""
        lines.append(
            row(f"`{name}`", with_half(gaps), f"{np.mean(n_calls):.0f}", len(by_seed), lead)
        )
    return "\n".join(lines)
