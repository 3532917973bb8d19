"""Tables of regrets and paired changes."""

import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import get_args

import numpy as np
from scipy import stats

from benchmarks.rlp.landscapes import LANDSCAPES
from benchmarks.rlp.runs import play, quickstart
from benchmarks.rlp.simulated import Kind, Way


def one(task: tuple[str, Way, Kind, int]) -> tuple[float, float]:
    """Return the regrets of one run; for worker processes."""
    name, way, kind, seed = task
    return (
        quickstart(way, seed) if name == "quickstart" else play(LANDSCAPES[name], way, kind, seed)
    )


def measure(name: str, n_seeds: int, n_processes: int) -> None:
    """Print the table of one landscape."""
    kinds: Sequence[Kind] = get_args(Kind) if name != "quickstart" else ("useless",)
    ways: list[tuple[Way, Kind]] = [("plain", "good")]
    ways += [(way, kind) for kind in kinds for way in ("trust", "rlp")]
    tasks = [(name, way, kind, seed) for way, kind in ways for seed in range(n_seeds)]
    with ProcessPoolExecutor(n_processes) as pool:
        found = list(pool.map(one, tasks, chunksize=1))
    rows = {key: np.array(found[i * n_seeds : (i + 1) * n_seeds]) for i, key in enumerate(ways)}
    plain = rows["plain", "good"]
    print(f"\n{name}: {n_seeds} seeds\n")
    print("| thinker | way | regret per cell | change, paired | final regret | change, paired |")
    print("|---|---|---|---|---|---|")
    for (way, kind), values in rows.items():
        thinker = "none" if way == "plain" else ("offline model" if name == "quickstart" else kind)
        cells: list[str] = [thinker, way]
        for column in (0, 1):
            cells.append(f"{values[:, column].mean():.4f}")
            cells.append("" if way == "plain" else change(values[:, column], plain[:, column]))
        print("| " + " | ".join(cells) + " |")


def change(values: np.ndarray, plain: np.ndarray) -> str:
    """Return the mean change in percent of the plain mean, with its interval."""
    gaps = (values - plain) / plain.mean()
    half = (
        float(stats.t.ppf(0.975, len(gaps) - 1)) * float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    )
    mean = 100.0 * float(gaps.mean())
    return f"{mean:+.1f} % [{mean - 100 * half:+.1f}, {mean + 100 * half:+.1f}]"
