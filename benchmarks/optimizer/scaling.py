"""What choosing costs: CPU of ask and tell against the number of observations."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from benchmarks.optimizer.opponents.base import Setup
from benchmarks.optimizer.opponents.registry import make_opponent
from benchmarks.optimizer.running import Progress, step
from benchmarks.optimizer.tasks import Task
from benchmarks.optimizer.tasks.synthetic import BowlCaseTask, BowlTask
from tasks.prefect_support.garbage_collection import collecting_rarely

CHECKPOINTS = (100, 200, 500, 1000, 2000, 5000)
"""Observations at which the table has a row."""
_WINDOW = 5
"""Batches, the last ones, whose median stands for a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCost:
    """One batch."""

    opponent: str
    n_parameters: int
    n_observations: int
    """Evaluations told before it."""
    ask_ms: float
    tell_ms: float


def measure(
    opponents: Sequence[str],
    n_parameters: Sequence[int],
    *,
    until: int,
    batch: int,
    has_cases: bool,
    limit_s: float,
) -> list[BatchCost]:
    """Run every opponent on a bowl of every size, batch by batch.

    Args:
        opponents: names.
        n_parameters: sizes of the space.
        until: observations of each run.
        batch: evaluations asked at once.
        has_cases: whether an evaluation is the mean over test cases.
        limit_s: CPU seconds of ask and tell after which a run ends early.
    """
    costs = []
    for n in n_parameters:
        task: Task = BowlCaseTask(n) if has_cases else BowlTask(n)
        for name in opponents:
            setup = Setup.of(task, seed=0, batch=batch, budget=until)
            # As the product's processes do: a look at all objects, of libraries too, takes 45 ms.
            with collecting_rarely():
                costs += _run(name, task, setup, n, limit_s)
    return costs


def _run(
    name: str, task: Task, setup: Setup, n_parameters: int, limit_s: float
) -> list[BatchCost]:
    opponent = make_opponent(name, setup)
    rng = np.random.default_rng(0)
    progress = Progress()
    costs = []
    for n_observations in range(0, setup.budget, setup.batch):
        step(opponent, task, setup.batch, rng, progress)
        costs.append(
            BatchCost(
                opponent=name,
                n_parameters=n_parameters,
                n_observations=n_observations,
                ask_ms=round(progress.ask_s[-1] * 1e3, 3),
                tell_ms=round(progress.tell_s[-1] * 1e3, 3),
            )
        )
        if sum(progress.ask_s) + sum(progress.tell_s) > limit_s:
            break
    return costs


def write(path: Path, costs: Sequence[BatchCost]) -> None:
    """Write all batches as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(BatchCost)])
        writer.writeheader()
        writer.writerows(asdict(cost) for cost in costs)


def table(costs: Sequence[BatchCost]) -> str:
    """Return a table: median of the last batches and worst so far, at each checkpoint."""
    lines = [
        "| parameters | opponent | observations | ask, ms | tell, ms | worst ask so far, ms |",
        "|---|---|---|---|---|---|",
    ]
    for n, name in dict.fromkeys((cost.n_parameters, cost.opponent) for cost in costs):
        run = [cost for cost in costs if (cost.n_parameters, cost.opponent) == (n, name)]
        for checkpoint in CHECKPOINTS:
            before = [cost for cost in run if cost.n_observations < checkpoint]
            if not before or (len(before) == len(run) and checkpoint > _end(run)):
                continue
            last = before[-_WINDOW:]
            lines.append(
                f"| {n} | {name} | {checkpoint} | {np.median([c.ask_ms for c in last]):.1f} "
                f"| {np.median([c.tell_ms for c in last]):.1f} "
                f"| {max(c.ask_ms for c in before):.1f} |"
            )
    return "\n".join(lines)


def _end(run: Sequence[BatchCost]) -> int:
    """Return the observations after the last batch."""
    step_size = run[1].n_observations if len(run) > 1 else 1
    return run[-1].n_observations + step_size
