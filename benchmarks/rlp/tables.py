"""Tables of regrets and paired changes."""

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from benchmarks.rlp.landscapes import LANDSCAPES
from benchmarks.rlp.runs import play
from benchmarks.rlp.simulated import Kind, Way
from benchmarks.tables import header, row, with_ends


def one(task: tuple[str, Way, Kind, int]) -> tuple[float, float]:
    """Return the regrets of one run, for worker processes."""
    name, way, thinker, seed = task
    outcome = play(LANDSCAPES[name], way, thinker, seed)
    return outcome.regret, outcome.final_regret


def measure(
    name: str,
    *,
    n_seeds: int,
    n_processes: int,
) -> None:
    """Print the table of one landscape.

    Args:
        name: Name of the landscape.
        n_seeds: Number of seeds, from 0.
        n_processes: Number of worker processes.
    """
    ways: list[tuple[Way, Kind]] = [("plain", "good")]
    ways += [
        (way, thinker) for thinker in ("good", "useless", "wrong") for way in ("trust", "rlp")
    ]
    tasks = [(name, way, thinker, seed) for seed in range(n_seeds) for way, thinker in ways]
    with ProcessPoolExecutor(n_processes, mp_context=get_context("fork")) as pool:
        regrets = list(pool.map(one, tasks, chunksize=1))
    show(name, {key: np.array(regrets[i :: len(ways)]) for i, key in enumerate(ways)})


def show(name: str, rows: Mapping[tuple[Way, Kind], np.ndarray]) -> None:
    """Print regrets of methods and thinkers, each (n_seeds, 2), with changes against plain search."""
    plain = rows["plain", "good"]
    print(f"\n{name}: {len(plain)} seeds\n")
    names = ("thinker", "way", "regret per cell", "change, paired", "final regret")
    print(header(*names, "change, paired"))
    for (way, thinker), values in rows.items():
        cells: list[str] = ["none" if way == "plain" else thinker, way]
        for column in (0, 1):
            cells.append(f"{values[:, column].mean():.4f}")
            cells.append("" if way == "plain" else change(values[:, column], plain[:, column]))
        print(row(*cells))


def change(values: np.ndarray, plain: np.ndarray) -> str:
    """Return the mean change in percent of the plain mean, with its interval."""
    return with_ends(100 * (values - plain) / plain.mean(), "+.1f", " %")
