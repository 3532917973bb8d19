"""Three synthetic landscapes with known true mean rewards."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.optimizer.tasks.functions import HARTMANN, hartmann
from convergence_core.config import parse_mapping
from convergence_core.records import Params


@dataclass(frozen=True)
class Landscape:
    """A space and its true mean reward."""

    parameters: dict[str, Any]
    value: Callable[[Params], float]
    optimum: float
    """Highest value."""

    def configuration(self, seed: int) -> Any:
        """Return a configuration with this space."""
        return parse_mapping(
            {
                "api": {"name": "landscape", "function": "m:f"},
                "search_space": {"parameters": self.parameters},
                "evaluation": {
                    "test_cases": {"path": "cases.json"},
                    "metrics": {"exact_match": {"weight": 1}},
                },
                "optimization": {"algorithm": "mab_evolution", "seed": seed},
            }
        )


def _mixed(params: Params) -> float:
    height, warm = {
        "mini": (0.45, 0.3),
        "base": (0.6, 0.5),
        "large": (0.7, 0.9),
        "turbo": (0.65, 0.2),
    }[str(params["model"])]
    prompt = {"plain": 0.0, "cot": 0.1, "fewshot": 0.07}[str(params["prompt"])]
    loss = 0.35 * (float(params["temperature"]) - warm) ** 2
    loss += 0.25 * (float(params["top_p"]) - 0.85) ** 2
    return max(0.0, height + prompt - loss)


def _hartmann(params: Params) -> float:
    """Return Hartmann's function of six variables, scaled to [0, 1]."""
    return 1.0 - hartmann(np.array([float(params[f"x{i}"]) for i in range(6)])) / HARTMANN


def _rugged(params: Params) -> float:
    x = np.array([float(params[f"x{i}"]) for i in range(3)]) - 0.62
    wave = float(np.mean(1.0 - np.cos(6.0 * math.pi * x)))
    lift = {"a": 0.0, "b": 0.15, "c": 0.05}[str(params["kind"])]
    return max(0.0, 0.85 + lift - 1.2 * float(np.mean(np.abs(x))) - 0.12 * wave)


def _floats(n: int) -> dict[str, Any]:
    return {f"x{i}": {"type": "float", "min": 0.0, "max": 1.0} for i in range(n)}


def _choice(*values: str) -> dict[str, Any]:
    return {"type": "categorical", "choices": list(values)}


LANDSCAPES: Mapping[str, Landscape] = {
    "mixed": Landscape(
        {
            "model": _choice("mini", "base", "large", "turbo"),
            "prompt": _choice("plain", "cot", "fewshot"),
            "temperature": {"type": "float", "min": 0.0, "max": 1.5},
            "top_p": {"type": "float", "min": 0.1, "max": 1.0},
        },
        _mixed,
        0.8,
    ),
    "hartmann": Landscape(_floats(6), _hartmann, 1.0),
    "rugged": Landscape({**_floats(3), "kind": _choice("a", "b", "c")}, _rugged, 1.0),
}
