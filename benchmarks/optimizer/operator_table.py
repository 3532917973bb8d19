"""Table of choosers of breeding operators against fixed shares, paired by task and seed.

    python -m benchmarks.optimizer.operator_table results/operators.csv

Tasks are what they are and seeds are drawn, so the error of a mean over T tasks is that of its strata,

    Var = 1 / T^2 sum_t s_t^2 / n_t                                                                (1)

with n_t seeds and variance s_t^2 of task t, and Welch and Satterthwaite's degrees of freedom. A seed counts
on a task where each chooser has run it.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.optimizer.regret import Runs
from benchmarks.optimizer.reporting import Results
from benchmarks.optimizer.train_operators import HELD_OUT, TRAINED_ON

LEVEL = 0.95
FIXED = "ours"
LABELS: Mapping[str, str] = {
    FIXED: "`fixed`",
    "ours:meta_optimizer=credit": "`credit`",
    "ours:meta_optimizer=uniform": "uniform emphasis",
    "ours:meta_optimizer=ppo": "emphasis by PPO",
}


def mean_with_half_width(by_task: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Return the mean over tasks, and half of its interval of ``LEVEL`` (eq. 1).

    Raises:
        ValueError: a task has fewer than two seeds.
    """
    few = [task for task, values in by_task.items() if len(values) < 2]
    if few or not by_task:
        raise ValueError(f"each task must have two seeds or more, but these have not: {few}")
    n_tasks = len(by_task)
    mean = float(np.mean([np.mean(values) for values in by_task.values()]))
    parts = [float(np.var(v, ddof=1)) / len(v) / n_tasks**2 for v in by_task.values()]
    variance = sum(parts)
    if variance == 0.0:
        return mean, 0.0
    within = sum(p**2 / (len(v) - 1) for p, v in zip(parts, by_task.values(), strict=True))
    quantile = float(stats.t.ppf((1.0 + LEVEL) / 2.0, variance**2 / within))
    return mean, quantile * math.sqrt(variance)


def differences(runs: Runs, fixed: Runs, tasks: Sequence[str]) -> dict[str, list[float]]:
    """Return task → regret x 100 less that of fixed shares, seed by seed."""
    found: dict[str, list[float]] = defaultdict(list)
    for task, seed in sorted(runs.keys() & fixed.keys()):
        if task in tasks:
            found[task].append(100.0 * (runs[task, seed] - fixed[task, seed]))
    return dict(found)


def table(results: Results, without: Collection[str] = ()) -> str:
    """Return the table in Markdown, some tasks left out."""
    (budget,) = results.budgets
    counted = [task for task in results.tasks if task not in without]
    everywhere = {name: results.runs(name, budget, counted) for name in LABELS}
    shared = set.intersection(*(set(runs) for runs in everywhere.values()))
    everywhere = {
        name: {run: runs[run] for run in runs.keys() & shared} for name, runs in everywhere.items()
    }
    halves = {
        "all": counted,
        "trained": [task for task in TRAINED_ON if task in counted],
        "held out": [task for task in HELD_OUT if task in counted],
    }
    columns = [f"less `fixed`, {name} {len(tasks)}" for name, tasks in halves.items()]
    lines = [f"| chooser | regret x 100 | {' | '.join(columns)} |", "|---|---|---|---|---|"]
    for name, label in LABELS.items():
        by_task: dict[str, list[float]] = defaultdict(list)
        for (task, _), regret in everywhere[name].items():
            by_task[task].append(100.0 * regret)
        mean = np.mean([np.mean(values) for values in by_task.values()])
        cells = ["-"] * 3
        if name != FIXED:
            found = [
                mean_with_half_width(differences(everywhere[name], everywhere[FIXED], tasks))
                for tasks in halves.values()
            ]
            cells = [f"{difference:+.1f} ± {half:.1f}" for difference, half in found]
        lines.append(f"| {label} | {mean:.1f} | {' | '.join(cells)} |")
    seeds = [len({s for t, s in shared if t == task}) for task in counted]
    n_seeds = " to ".join(str(n) for n in sorted({min(seeds), max(seeds)}))
    lines.append(
        f"\n{len(counted)} tasks, {n_seeds} seeds each, {budget} evaluations, ± half of the "
        f"{LEVEL:.0%} interval"
    )
    return "\n".join(lines)


def main() -> None:
    """Read the command line, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--without", nargs="+", default=[], help="tasks to leave out")
    options = parser.parse_args()
    print(table(Results.read(options.files), options.without))


if __name__ == "__main__":
    main()
