"""Problems of any size, to measure the cost of ask and tell."""

from collections.abc import Sequence

import numpy as np

from benchmarks.optimizer.spaces import Parameter, Point, Space, categorical, real
from benchmarks.optimizer.tasks.base import CaseTask, Task

_NOISE = 0.05


def mixed_space(n_parameters: int) -> Space:
    """Return a space of real parameters, except that every third has four categories."""
    return Space(
        [
            categorical(f"c{i}", "a", "b", "c", "d") if i % 3 == 2 else real(f"x{i}", 0.0, 1.0)
            for i in range(n_parameters)
        ]
    )


def _loss(parameter: Parameter, point: Point) -> float:
    value = point[parameter.name]
    if parameter.kind == "categorical":
        return 0.1 * parameter.choices.index(value)
    return (float(value) - 0.3) ** 2


def worth(space: Space, point: Point) -> float:
    """Return the true value of a point, at most .9."""
    return 0.9 - sum(_loss(p, point) for p in space.parameters) / len(space.parameters)


class BowlTask(Task):
    """Quadratic bowl with normal noise."""

    suite = "synthetic"

    def __init__(self, n_parameters: int) -> None:
        super().__init__(f"synthetic:{n_parameters}", mixed_space(n_parameters))

    def true(self, point: Point) -> float:
        """Return the height of the bowl."""
        return worth(self.space, point)

    def evaluate(self, point: Point, rng: np.random.Generator) -> float:
        """Return the height with noise."""
        return self.true(point) + float(rng.normal(0.0, _NOISE))


class BowlCaseTask(CaseTask):
    """The same bowl as a case's probability of a right answer."""

    suite = "synthetic"

    def __init__(self, n_parameters: int) -> None:
        super().__init__(f"synthetic-cases:{n_parameters}", mixed_space(n_parameters))

    def true(self, point: Point) -> float:
        """Return the probability."""
        return worth(self.space, point)

    def evaluate_cases(
        self, point: Point, cases: Sequence[int], rng: np.random.Generator
    ) -> list[float]:
        """Return right (1) or wrong (0) for each case."""
        return [float(hit) for hit in rng.random(len(cases)) < self.true(point)]
