"""The command line; see the package."""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from typing import get_args

import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.rlp.landscapes import LANDSCAPES
from benchmarks.rlp.tables import change
from benchmarks.sao.filtering import report
from benchmarks.sao.judging import Judge, play


def one(task: tuple[str, Judge, int]) -> tuple[float, float, float]:
    """Return what one run came to; for worker processes."""
    name, judge, seed = task
    return play(LANDSCAPES[name], judge, seed)


def ablation(name: str, n_seeds: int, n_processes: int) -> None:
    """Print the table of one landscape."""
    judges: tuple[Judge, ...] = get_args(Judge)
    tasks = [(name, judge, seed) for judge in judges for seed in range(n_seeds)]
    with ProcessPoolExecutor(n_processes) as pool:
        found = list(pool.map(one, tasks, chunksize=4))
    rows = {j: np.array(found[i * n_seeds : (i + 1) * n_seeds]) for i, j in enumerate(judges)}
    off = rows["off"]
    print(f"\n{name}: {n_seeds} seeds\n")
    print("| judge | regret per cell | change, paired | final regret | change, paired | weight |")
    print("|---|---|---|---|---|---|")
    for judge, values in rows.items():
        cells: list[str] = [judge]
        for column in (0, 1):
            cells.append(f"{values[:, column].mean():.4f}")
            cells.append("" if judge == "off" else change(values[:, column], off[:, column]))
        cells.append(f"{values[:, 2].mean():.3f}")
        print("| " + " | ".join(cells) + " |", flush=True)


def arms(n_seeds: int, first_seed: int) -> None:
    """Print the table of twenty Bernoulli arms, which is what the start weight was set by."""
    from tests.support.judged_arms import regrets  # noqa: PLC0415 - of a checkout alone

    off = regrets("off", n_seeds, first_seed=first_seed)
    print(f"\n20 Bernoulli arms, 60 judged pairs, 150 pulls: {n_seeds} seeds from {first_seed}\n")
    print("| judge | regret | change, paired |")
    print("|---|---|---|")
    print(f"| off | {off.mean():.2f} | |")
    for kind in ("good", "random", "adversarial"):
        values = regrets(kind, n_seeds, first_seed=first_seed)
        print(f"| {kind} | {values.mean():.2f} | {change(values, off)} |", flush=True)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="What preferences cost and bring.")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--landscapes", nargs="+", default=["mixed", "rugged"])
    parser.add_argument("--filters", action="store_true")
    parser.add_argument("--arms", action="store_true")
    parser.add_argument("--first-seed", type=int, default=0, help="Of --arms.")
    arguments = parser.parse_args()
    print(describe_machine())
    if arguments.filters:
        report()
        return
    if arguments.arms:
        arms(arguments.seeds, arguments.first_seed)
        return
    for name in arguments.landscapes:
        started = time.perf_counter()
        ablation(name, arguments.seeds, arguments.processes)
        print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
