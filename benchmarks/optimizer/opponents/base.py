"""Interface of opponents: batched ask and tell, and a recommendation.

``PointOpponent`` receives the value of each whole evaluation; ``CellOpponent`` chooses the test
cases itself. Values are maximised. An opponent with ``is_budget_aware`` plans for its budget, so
every scored budget needs a separate run.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.optimizer.spaces import Point, Space
from benchmarks.optimizer.tasks.base import CaseTask, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Information that an opponent receives at the start."""

    space: Space
    seed: int
    batch: int
    """Evaluations per batch."""
    budget: int
    """Total evaluations."""
    n_cases: int | None = None
    """Number of the task's test cases; ``None`` if it has none."""
    cases_per_evaluation: int = 1
    """Cells per evaluation; 1 without cases."""
    unit: float = 1.0
    """See ``Task.unit``."""

    @classmethod
    def of(cls, task: Task, *, seed: int, batch: int, budget: int) -> "Setup":
        """Describe a run on a task."""
        cases: dict[str, int] = {}
        if isinstance(task, CaseTask):
            per_evaluation = task.cases_per_evaluation
            cases = {"n_cases": task.n_cases, "cases_per_evaluation": per_evaluation}
        return cls(
            space=task.space, seed=seed, batch=batch, budget=budget, unit=task.unit, **cases
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Recommended candidate and the claims about it; ``None`` means no claim."""

    point: Point
    mean: float | None = None
    """Expected value."""
    low: float | None = None
    high: float | None = None
    """Bounds of the interval at ``level``."""
    level: float | None = None
    delta: float | None = None
    """Value that counts as a small gap."""
    probability_within: float | None = None
    """Probability that no evaluated candidate is better by more than ``delta``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A point and the cases to evaluate it on."""

    point: Point
    cases: tuple[int, ...]


class Opponent(ABC):
    """Base class of both kinds."""

    is_budget_aware: ClassVar[bool] = False

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def cpu_s(self) -> float:
        """Return CPU seconds spent so far. Reports use differences."""
        return time.process_time()

    @abstractmethod
    def recommend(self) -> Claim:
        """Return the current recommendation."""


class PointOpponent(Opponent):
    """Opponent that receives values of whole evaluations."""

    @abstractmethod
    def ask(self, n: int) -> list[Point]:
        """Return ``n`` points."""

    @abstractmethod
    def tell(self, points: Sequence[Point], values: Sequence[float]) -> None:
        """Learn the values of the last points returned by ``ask``, in order."""


class CellOpponent(Opponent):
    """Opponent that chooses cases. It runs only on tasks with cases."""

    cells_at_once: ClassVar[int | None] = None
    """Maximum cells between calls of ``tell_cells``; ``None`` means a batch."""

    @abstractmethod
    def ask_cells(self, n_cells: int) -> list[Asked]:
        """Return points to evaluate, on at most ``n_cells`` cases in total."""

    @abstractmethod
    def tell_cells(self, asked: Sequence[Asked], rewards: Sequence[Sequence[float]]) -> None:
        """Learn the rewards of the last ``ask_cells``, one per case."""


class BestSeen(PointOpponent):
    """Opponent that recommends the highest observation, as most libraries do."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._best: tuple[float, Point] | None = None

    def note(self, points: Sequence[Point], values: Sequence[float]) -> None:
        """Record an observation if it is the highest."""
        for point, value in zip(points, values, strict=True):
            if self._best is None or value > self._best[0]:
                self._best = (value, point)

    def recommend(self) -> Claim:
        """Return the point with the highest observation."""
        assert self._best is not None, "nothing was told yet"
        return Claim(point=self._best[1])
