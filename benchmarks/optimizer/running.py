"""One run: batches of ask and tell with the same noise for all opponents, scored at each budget."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.optimizer.opponents.base import CellOpponent, PointOpponent, Setup
from benchmarks.optimizer.opponents.registry import AnyOpponent, make_opponent
from benchmarks.optimizer.records import Job, Row
from benchmarks.optimizer.spaces import Point
from benchmarks.optimizer.tasks import CaseTask, Task
from convergence_core.records import fields_of

NOISE_SEED = 1000
"""Offset of the noise's seed, which keeps noise independent of an opponent's draws."""


@dataclass(slots=True)
class Progress:
    """Evaluations so far, and the CPU time spent choosing them."""

    points: list[Point] = field(default_factory=list)
    n_cells: int = 0
    ask_s: list[float] = field(default_factory=list)
    """CPU seconds per batch."""
    tell_s: list[float] = field(default_factory=list)

    def add(self, point: Point, n_cells: int) -> None:
        """Record an evaluation."""
        self.points.append(point)
        self.n_cells += n_cells


def run(
    name: str,
    task: Task,
    *,
    seed: int,
    budgets: Sequence[int],
    batch: int,
) -> list[Row]:
    """Run an opponent and score it at every budget. Budget-aware opponents run once per budget.

    Args:
        name: Name of the opponent; see ``registry``.
        task: Task to optimize.
        seed: Seed of the opponent and, separately, of the noise.
        budgets: Numbers of evaluations, ascending.
        batch: Evaluations per batch.

    Raises:
        RuntimeError: If an opponent exceeds its batch.
    """
    setup = Setup.of(task, seed=seed, batch=batch, budget=budgets[-1])
    opponent = make_opponent(name, setup)
    if opponent.is_budget_aware and len(budgets) > 1:
        return [
            row
            for budget in budgets
            for row in run(name, task, seed=seed, budgets=[budget], batch=batch)
        ]
    rng = np.random.default_rng(NOISE_SEED + seed)
    progress = Progress()
    rows, n_done = [], 0
    for budget in budgets:
        while n_done < budget:
            n = min(batch, budget - n_done)
            step(opponent, task, n, rng, progress)
            n_done += n
        job = (name, task.name, seed, budget)
        rows.append(_score(opponent, task, progress, job))
    return rows


def step(
    opponent: AnyOpponent, task: Task, n: int, rng: np.random.Generator, progress: Progress
) -> None:
    """Ask, evaluate and tell one batch worth ``n`` evaluations."""
    if isinstance(opponent, CellOpponent):
        assert isinstance(task, CaseTask)
        n_cells = n * task.cases_per_evaluation
        at_once = opponent.cells_at_once or n_cells
        for n_done in range(0, n_cells, at_once):
            _step_cells(opponent, task, min(at_once, n_cells - n_done), rng, progress)
    else:
        _step_points(opponent, task, n, rng, progress)


def _step_cells(
    opponent: CellOpponent,
    task: CaseTask,
    n_cells: int,
    rng: np.random.Generator,
    progress: Progress,
) -> None:
    began = opponent.cpu_s()
    asked = opponent.ask_cells(n_cells)
    progress.ask_s.append(opponent.cpu_s() - began)
    if sum(len(cells.cases) for cells in asked) > n_cells:
        raise RuntimeError(f"{type(opponent).__name__} asked more than {n_cells} cells")
    rewards = [task.evaluate_cases(cells.point, cells.cases, rng) for cells in asked]
    began = opponent.cpu_s()
    opponent.tell_cells(asked, rewards)
    progress.tell_s.append(opponent.cpu_s() - began)
    for cells, row in zip(asked, rewards, strict=True):
        progress.add(cells.point, len(row))


def _step_points(
    opponent: PointOpponent, task: Task, n: int, rng: np.random.Generator, progress: Progress
) -> None:
    began = opponent.cpu_s()
    points = opponent.ask(n)
    progress.ask_s.append(opponent.cpu_s() - began)
    if len(points) > n:
        raise RuntimeError(f"{type(opponent).__name__} asked more than {n} points")
    if isinstance(task, CaseTask):
        cases = [task.draw_cases(rng) for _ in points]
        pairs = zip(points, cases, strict=True)
        rewards = [task.evaluate_cases(point, drawn, rng) for point, drawn in pairs]
    else:
        rewards = [[task.evaluate(point, rng)] for point in points]
    values = [float(np.mean(row)) for row in rewards]
    began = opponent.cpu_s()
    opponent.tell(points, values)
    progress.tell_s.append(opponent.cpu_s() - began)
    for point, row in zip(points, rewards, strict=True):
        progress.add(point, len(row))


def _score(opponent: AnyOpponent, task: Task, progress: Progress, job: Job) -> Row:
    name, _, seed, budget = job
    began = opponent.cpu_s()
    claim = opponent.recommend()
    recommend_s = opponent.cpu_s() - began
    unique = {task.space.key(point): point for point in progress.points}
    best = max(map(task.true, unique.values())) if task.is_true_cheap else None
    batch_s = np.add(progress.ask_s, progress.tell_s)
    return Row(
        opponent=name,
        task=task.name,
        suite=task.suite,
        seed=seed,
        budget=budget,
        true=task.true(claim.point),
        true_best_seen=best,
        n_points=len(unique),
        n_cells=progress.n_cells,
        ask_ms=_ms(float(np.mean(progress.ask_s))),
        tell_ms=_ms(float(np.mean(progress.tell_s))),
        recommend_ms=_ms(recommend_s),
        worst_batch_ms=_ms(float(batch_s.max())),
        claimed=claim.mean,
        claimed_low=claim.low,
        claimed_high=claim.high,
        **fields_of(claim, "level", "delta", "probability_within"),
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
