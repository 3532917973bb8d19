"""Test functions of global optimization, with noise of several kinds or none.

Values are mapped to [0, 1], 1 at the optimum and 0 at the highest value on the domain, so a hundredth is
one per cent of the function's range (Surjanovic & Bingham 2013 have definitions and domains).
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


def levy(x: np.ndarray) -> float:
    """Return Lévy's function: waves across a valley."""
    w = 1.0 + (x - 1.0) / 4.0
    first = math.sin(math.pi * w[0]) ** 2
    waves = (w[:-1] - 1.0) ** 2 * (1.0 + 10.0 * np.sin(math.pi * w[:-1] + 1.0) ** 2)
    last = (w[-1] - 1.0) ** 2 * (1.0 + math.sin(2.0 * math.pi * w[-1]) ** 2)
    return float(first + waves.sum() + last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function to minimise, whose least value is 0."""

    of: Callable[[np.ndarray], float]
    low: float
    high: float
    """Ends of the domain of each coordinate."""
    highest: float
    """Of the domain, in five dimensions."""


FUNCTIONS: Mapping[str, Function] = {
    "rastrigin": Function(of=rastrigin, low=-3.12, high=7.12, highest=291.20691),
    "ackley": Function(of=ackley, low=-20.0, high=45.536, highest=22.33869),
    "levy": Function(of=levy, low=-10.0, high=10.0, highest=334.65624),
}
N_DIMS = 5
NOISE_SD = 0.1
"""Of normal noise: a tenth of the range."""
HEAVY_SCALE = 0.05
"""Of noise by Student's t with two degrees of freedom, whose variance is infinite."""


class FunctionTask(Task):
    """One function in five dimensions, on a domain whose centre is not the optimum."""

    suite = "fn"
    kinds: ClassVar[tuple[str, ...]] = ("fn0", "fnN", "fnT")
    """No noise, normal noise, heavy-tailed noise."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.function = kind, FUNCTIONS[name]
        low, high = self.function.low, self.function.high
        space = Space([real(f"x{i}", low, high) for i in range(N_DIMS)])
        super().__init__(f"{kind}:{name}-{N_DIMS}", space)

    def true(self, point: Point) -> float:
        """Return the value in [0, 1], 1 at the optimum."""
        f = self.function
        x = np.array([float(point[p.name]) for p in self.space.parameters])
        return 1.0 - f.of(x) / f.highest

    def evaluate(self, point: Point, rng: np.random.Generator) -> float:
        """Return the value with noise of the kind."""
        value = self.true(point)
        if self.kind == "fnN":
            value += NOISE_SD * float(rng.standard_normal())
        elif self.kind == "fnT":
            value += HEAVY_SCALE * float(rng.standard_t(2))
        return value
