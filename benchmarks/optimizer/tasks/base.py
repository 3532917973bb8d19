"""What a task is. Every task maximises; what it answers is noisy, ``true`` is what is reported."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from benchmarks.optimizer.spaces import Point, Space

DATA = Path(__file__).parents[1] / "data"


class Task(ABC):
    """A function of a point, seen through noise."""

    suite: ClassVar[str]
    """Kind of task; reports show means per suite."""
    is_true_cheap: ClassVar[bool] = True
    """Whether the true value of every evaluated point may be computed."""
    unit: float = 1.0
    """Value worth one whole: 100 where accuracies are in per cent."""

    def __init__(self, name: str, space: Space) -> None:
        self.name, self.space = name, space

    @abstractmethod
    def evaluate(self, point: Point, rng: np.random.Generator) -> float:
        """Return what one evaluation shows."""

    @abstractmethod
    def true(self, point: Point) -> float:
        """Return the expectation of an evaluation."""


class CaseTask(Task):
    """A task whose evaluation is the mean over test cases, which an opponent may choose itself.

    A budget of B evaluations is worth B · ``cases_per_evaluation`` cells.
    """

    n_cases: int = 100
    cases_per_evaluation: ClassVar[int] = 20

    @abstractmethod
    def evaluate_cases(
        self, point: Point, cases: Sequence[int], rng: np.random.Generator
    ) -> list[float]:
        """Return one reward per case, in [0, 1]."""

    def draw_cases(self, rng: np.random.Generator) -> list[int]:
        """Draw the cases of an evaluation for opponents that do not choose them."""
        drawn = rng.choice(self.n_cases, size=self.cases_per_evaluation, replace=False)
        return [int(case) for case in drawn]

    def evaluate(self, point: Point, rng: np.random.Generator) -> float:
        """Return the mean over cases drawn at random."""
        return float(np.mean(self.evaluate_cases(point, self.draw_cases(rng), rng)))
