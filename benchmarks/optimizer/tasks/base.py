"""Interface of tasks. Every task maximises; its answers are noisy, and reports use ``true``."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from benchmarks.optimizer.spaces import Point, Space

DATA = Path(__file__).parents[1] / "data"


class Task(ABC):
    """Noisy function of a point."""

    suite: ClassVar[str]
    """Kind of task. Reports show means per suite."""
    is_true_cheap: ClassVar[bool] = True
    """Whether computing the true value of every evaluated point is affordable."""
    unit: float = 1.0
    """Value that equals 1: 100 for accuracies in per cent."""

    def __init__(self, name: str, space: Space) -> None:
        self.name, self.space = name, space

    @abstractmethod
    def evaluate(self, point: Point, rng: np.random.Generator) -> float:
        """Return one noisy evaluation."""

    @abstractmethod
    def true(self, point: Point) -> float:
        """Return the expected evaluation."""


class CaseTask(Task):
    """Task whose evaluation is the mean over test cases, which an opponent may choose itself.

    A budget of B evaluations equals B · ``cases_per_evaluation`` cells.
    """

    n_cases: int = 100
    cases_per_evaluation: ClassVar[int] = 20

    @abstractmethod
    def evaluate_cases(
        self, point: Point, cases: Sequence[int], rng: np.random.Generator
    ) -> list[float]:
        """Return one reward per case, in [0, 1]."""

    def draw_cases(self, rng: np.random.Generator) -> list[int]:
        """Draw an evaluation's cases for opponents that do not choose them."""
        drawn = rng.choice(self.n_cases, size=self.cases_per_evaluation, replace=False)
        return [int(case) for case in drawn]

    def evaluate(self, point: Point, rng: np.random.Generator) -> float:
        """Return the mean over random cases."""
        return float(np.mean(self.evaluate_cases(point, self.draw_cases(rng), rng)))
