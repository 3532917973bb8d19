"""What every opponent is: ask and tell in batches, and a candidate to hand over.

``PointOpponent`` is told the value of each whole evaluation; ``CellOpponent`` chooses the test
cases itself. Values are maximised. An opponent whose ``is_budget_aware`` is set plans for its
budget, so it is run anew for every budget that is scored.
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
    """What an opponent knows before it starts."""

    space: Space
    seed: int
    batch: int
    """Evaluations asked at once."""
    budget: int
    """Evaluations in all."""
    n_cases: int | None = None
    """Test cases of the task; ``None``: it has none."""
    cases_per_evaluation: int = 1
    """Cells that one evaluation is worth; 1 without cases."""
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
    """The candidate handed over, and what is said of it; ``None``: nothing is."""

    point: Point
    mean: float | None = None
    """Expected value."""
    low: float | None = None
    high: float | None = None
    """Ends of the interval of ``level``."""
    level: float | None = None
    delta: float | None = None
    """Value that counts as a small gap."""
    probability_within: float | None = None
    """Probability that nothing evaluated is worth more than ``delta`` more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A point and the cases it is asked."""

    point: Point
    cases: tuple[int, ...]


class Opponent(ABC):
    """What both kinds share."""

    is_budget_aware: ClassVar[bool] = False

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def cpu_s(self) -> float:
        """Return CPU seconds spent so far; differences of it are what is reported."""
        return time.process_time()

    @abstractmethod
    def recommend(self) -> Claim:
        """Return the candidate to hand over now."""


class PointOpponent(Opponent):
    """An opponent that is told values of whole evaluations."""

    @abstractmethod
    def ask(self, n: int) -> list[Point]:
        """Return ``n`` points."""

    @abstractmethod
    def tell(self, points: Sequence[Point], values: Sequence[float]) -> None:
        """Learn the values of the points last asked, in their order."""


class CellOpponent(Opponent):
    """An opponent that chooses cases; on a task without cases it is not run."""

    cells_at_once: ClassVar[int | None] = None
    """Most cells it wants between two tellings; ``None``: those of a batch."""

    @abstractmethod
    def ask_cells(self, n_cells: int) -> list[Asked]:
        """Return what to evaluate: at most ``n_cells`` cases in all."""

    @abstractmethod
    def tell_cells(self, asked: Sequence[Asked], rewards: Sequence[Sequence[float]]) -> None:
        """Learn the rewards of what was last asked, one per case."""


class BestSeen(PointOpponent):
    """An opponent that hands over the highest observation, as most libraries do."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._best: tuple[float, Point] | None = None

    def note(self, points: Sequence[Point], values: Sequence[float]) -> None:
        """Remember the highest value."""
        for point, value in zip(points, values, strict=True):
            if self._best is None or value > self._best[0]:
                self._best = (value, point)

    def recommend(self) -> Claim:
        """Return the point with the highest observation."""
        assert self._best is not None, "nothing was told yet"
        return Claim(point=self._best[1])
