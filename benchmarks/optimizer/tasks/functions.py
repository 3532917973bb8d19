"""Test functions of global optimization, with noise of several kinds or none.

Values are scaled to [0, 1], with 1 at the optimum and 0 at the highest value on the domain, so .01 is one
per cent of the function's range. Definitions and domains: Surjanovic & Bingham 2013.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from benchmarks.optimizer.spaces import Point, Space, real
from benchmarks.optimizer.tasks.base import Task


def rastrigin(x: np.ndarray) -> float:
    """Return Rastrigin's function: a bowl with a minimum at every whole number."""
    return float(10.0 * len(x) + (x**2 - 10.0 * np.cos(2.0 * math.pi * x)).sum())


def ackley(x: np.ndarray) -> float:
    """Return Ackley's function: nearly flat with small waves, and a deep funnel."""
    bowl = -20.0 * math.exp(-0.2 * math.sqrt(float(np.mean(x**2))))
    return float(bowl - math.exp(float(np.mean(np.cos(2.0 * math.pi * x)))) + 20.0 + math.e)


_A = np.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8],
               [17, 8, 0.05, 10, 0.1, 14]])  # fmt: skip
_P = 1e-4 * np.array([[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
                      [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]])  # fmt: skip
HARTMANN = 3.32236802
"""Depth of Hartmann's minimum."""


def hartmann(x: np.ndarray) -> float:
    """Return Hartmann's six-variable function above its minimum: four peaks (Dixon & Szego 1978)."""
    inner = (_A * (x - _P) ** 2).sum(axis=1)
    return HARTMANN - float(np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-inner))


@dataclass(frozen=True, slots=True)
class Function:
    """Function to minimise, with minimum 0."""

    of: Callable[[np.ndarray], float]
    low: float
    high: float
    """Bounds of every coordinate."""
    highest: float
    """Highest value on the domain."""
    median: float
    """Value in [0, 1] of a median random point."""
    n_dims: int = 5


FUNCTIONS: Mapping[str, Function] = {
    "rastrigin": Function(rastrigin, -3.12, 7.12, 291.20691, median=0.6206),
    "ackley": Function(ackley, -20.0, 45.536, 22.33869, median=0.0433),
    "hartmann": Function(hartmann, 0.0, 1.0, HARTMANN, median=0.0306, n_dims=6),
}
NOISE_SD = 0.1
"""Standard deviation of normal noise: a tenth of the range."""
HEAVY_SCALE = 0.05
"""Scale of Student's t noise with two degrees of freedom, whose variance is infinite."""


class FunctionTask(Task):
    """One function, on a domain not centred on the optimum."""

    suite = "fn"
    kinds: ClassVar[tuple[str, ...]] = ("fn0", "fnN", "fnT")
    """Kind of noise: none, normal or heavy-tailed."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.function = kind, FUNCTIONS[name]
        low, high, n = self.function.low, self.function.high, self.function.n_dims
        super().__init__(f"{kind}:{name}-{n}", Space([real(f"x{i}", low, high) for i in range(n)]))

    def true(self, point: Point) -> float:
        """Return the value in [0, 1], 1 at the optimum."""
        f = self.function
        x = np.array([float(point[p.name]) for p in self.space.parameters])
        return 1.0 - f.of(x) / f.highest

    def evaluate(self, point: Point, rng: np.random.Generator) -> float:
        """Return the value with noise."""
        value = self.true(point)
        if self.kind == "fnN":
            value += NOISE_SD * float(rng.standard_normal())
        elif self.kind == "fnT":
            value += HEAVY_SCALE * float(rng.standard_t(2))
        return value
