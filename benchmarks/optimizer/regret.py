"""Arithmetic of reports: normalised regret, means per suite, paired differences.

Normalised regret is (best - true) / (best - median), clipped to [0, 1]: 0 is the best known point
of a task and 1 a median random one. ``best`` and ``median`` are true values, from ``scales.json``.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from benchmarks.optimizer.tasks.base import DATA
from benchmarks.optimizer.tasks.functions import FUNCTIONS, FunctionTask
from benchmarks.optimizer.tasks.simulated import KINDS, SimulatedTask
from benchmarks.tables import error_of

_EQUAL = 1e-12
"""Largest difference of means that counts as rounding."""

Runs = Mapping[tuple[str, int], float]
"""(task, seed) → normalised regret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Two true values of a task."""

    best: float
    """Highest known value."""
    median: float
    """Median value of random points."""

    def regret(self, true: float) -> float:
        """Return the normalised regret of a true value."""
        return min(1.0, max(0.0, (self.best - true) / (self.best - self.median)))


def read_scales() -> dict[str, Scale]:
    """Return the scales of all tasks."""
    rows = json.loads((DATA / "scales.json").read_text(encoding="utf-8"))
    rows = {name: row for name, row in rows.items() if not name.startswith("fn")}
    scales = {n: Scale(best=row["best"], median=row["median"]) for n, row in rows.items()}
    for kind in KINDS:
        best, median = SimulatedTask(kind).best_and_median
        scales[f"sim:{kind}"] = Scale(best=best, median=median)
    for kind, (name, f) in product(FunctionTask.kinds, FUNCTIONS.items()):
        scales[f"{kind}:{name}-{f.n_dims}"] = Scale(best=1.0, median=f.median)
    return scales


def raise_scales(
    scales: Mapping[str, Scale], true_values: Iterable[tuple[str, float]]
) -> dict[str, Scale]:
    """Return scales whose best is at least every observed true value.

    Args:
        scales: Task → scale.
        true_values: Pairs of a task and a true value.
    """
    raised = dict(scales)
    for task, true in true_values:
        if true > raised[task].best:
            raised[task] = replace(raised[task], best=true)
    return raised


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Mean with its standard error over seeds."""

    mean: float
    error: float
    """Standard error; NaN with a single seed."""
    n_seeds: int


def over_seeds(runs: Runs) -> Estimate:
    """Return the mean over tasks and its variation between seeds.

    Only seeds with runs of every task count, so that all tasks weigh the same.

    Raises:
        ValueError: If no seed has all tasks.
    """
    complete = _complete(runs.keys())
    tasks = sorted({task for task, _ in complete})
    seeds = sorted({seed for _, seed in complete})
    means = np.array([np.mean([runs[task, seed] for task in tasks]) for seed in seeds])
    return Estimate(mean=float(means.mean()), error=error_of(means), n_seeds=len(seeds))


def _complete(runs: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the runs of seeds that have all tasks, sorted.

    Raises:
        ValueError: If there is no such seed.
    """
    tasks_of: dict[int, set[str]] = defaultdict(set)
    for task, seed in runs:
        tasks_of[seed].add(task)
    tasks = set().union(*tasks_of.values())
    seeds = [seed for seed, done in tasks_of.items() if done == tasks]
    if not seeds:
        raise ValueError(f"no seed was run on all of {len(tasks)} tasks")
    return sorted((task, seed) for task in tasks for seed in seeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Opponent against a reference, on the seeds for which both have all shared tasks."""

    own: Estimate
    reference: Estimate
    difference: Estimate
    """Opponent minus reference, paired by task and seed; negative favors the opponent."""
    n_wins: int
    """Number of tasks with lower mean regret than the reference."""
    n_clear_wins: int
    """Number of tasks lower by two standard errors; none with a single seed."""
    n_clear_losses: int
    """Number of tasks higher by two standard errors."""
    n_tasks: int
    by_suite: Mapping[str, float]
    """Suite → mean difference."""


def compare(runs: Runs, reference: Runs, suite_of: Mapping[str, str]) -> Comparison:
    """Compare two opponents.

    Args:
        runs: Runs of the opponent.
        reference: Runs of the reference.
        suite_of: Task → suite.

    Raises:
        ValueError: If they share no run, or no seed with all shared tasks.
    """
    if not runs.keys() & reference.keys():
        raise ValueError("they share no task and seed")
    shared = _complete(runs.keys() & reference.keys())
    differences = {run: runs[run] - reference[run] for run in shared}
    by_task = {
        task: over_seeds({run: d for run, d in differences.items() if run[0] == task})
        for task, _ in shared
    }
    by_suite: dict[str, list[float]] = defaultdict(list)
    for task, found in by_task.items():
        by_suite[suite_of[task]].append(found.mean)
    return Comparison(
        own=over_seeds({run: runs[run] for run in shared}),
        reference=over_seeds({run: reference[run] for run in shared}),
        difference=over_seeds(differences),
        n_wins=sum(one.mean < -_EQUAL for one in by_task.values()),
        n_clear_wins=sum(one.mean < -2.0 * one.error - _EQUAL for one in by_task.values()),
        n_clear_losses=sum(one.mean > 2.0 * one.error + _EQUAL for one in by_task.values()),
        n_tasks=len(by_task),
        by_suite={suite: float(np.mean(values)) for suite, values in by_suite.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Accuracy of the claims about recommendations."""

    bias: float
    """Mean of claimed minus true value, in the task's units."""
    error: float
    """Its standard error over runs."""
    coverage: float
    """Share of intervals that contain the true value."""
    n: int


def calibrate(claims: Sequence[tuple[float, float, float, float]]) -> Calibration:
    """Return the calibration of claims.

    Args:
        claims: (mean, low, high, true) of each run, in its task's units.

    Raises:
        ValueError: If there are no claims.
    """
    if not claims:
        raise ValueError("no claim was made")
    mean, low, high, true = np.array(claims, dtype=float).T
    bias = mean - true
    # Rounding of equal floats must not count as a miss.
    slack = 1e-9
    is_covered = (low <= true + slack) & (true <= high + slack)
    return Calibration(
        bias=float(bias.mean()),
        error=error_of(bias),
        coverage=float(is_covered.mean()),
        n=len(bias),
    )
