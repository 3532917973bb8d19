"""Neutral description of mixed, conditional search spaces for all opponents.

A point holds only the active parameters. Parents precede the parameters they switch on.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

Value: TypeAlias = bool | int | float | str
Point: TypeAlias = dict[str, Value]
"""Active parameters by name."""
Key: TypeAlias = tuple[tuple[str, Value], ...]
"""Identity of a point."""
Kind = Literal["float", "int", "ordered", "categorical"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One dimension."""

    name: str
    kind: Kind
    low: float = 0.0
    """Minimum of kinds ``float`` and ``int``."""
    high: float = 1.0
    """Maximum of kinds ``float`` and ``int``."""
    log: bool = False
    choices: tuple[Value, ...] = ()
    """Values of kinds ``ordered`` (numbers, ascending) and ``categorical``."""
    parent: str | None = None
    """Parameter that switches this one on; ``None`` means always active."""
    parent_values: tuple[Value, ...] = ()
    """Parent values that activate this one."""

    def place(self, value: Value) -> float:
        """Return the position of a number or ordered value in [0, 1].

        Raises:
            ValueError: If the parameter is categorical.
        """
        if self.kind == "ordered":
            return self.choices.index(value) / max(1, len(self.choices) - 1)
        if self.kind == "categorical":
            raise ValueError(f"`{self.name}` is categorical and has no places")
        if self.high == self.low:
            return 0.0
        number = float(value)
        if self.log:
            return (math.log(number) - math.log(self.low)) / (
                math.log(self.high) - math.log(self.low)
            )
        return (number - self.low) / (self.high - self.low)

    def sample(self, rng: np.random.Generator) -> Value:
        """Draw a value, uniform on the parameter's scale."""
        if self.kind == "float":
            if self.log:
                return math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
            return float(rng.uniform(self.low, self.high))
        if self.kind == "int":
            if self.log:
                low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
                number = round(math.exp(rng.uniform(low, high)))
                return int(min(max(number, self.low), self.high))
            return int(rng.integers(int(self.low), int(self.high) + 1))
        return self.choices[int(rng.integers(len(self.choices)))]

    def cast(self, value: Value) -> Value:
        """Clip and round a number.

        Raises:
            ValueError: If a value is not among the choices.
        """
        if self.kind == "float":
            return min(max(float(value), self.low), self.high)
        if self.kind == "int":
            return int(min(max(round(float(value)), self.low), self.high))
        if value not in self.choices:
            raise ValueError(f"`{self.name}`: {value!r} is not one of its choices")
        return value


class Space:
    """Parameters in order."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = tuple(parameters)
        self.by_name: Mapping[str, Parameter] = {p.name: p for p in parameters}

    @property
    def is_conditional(self) -> bool:
        """Whether some parameter may be inactive."""
        return any(p.parent is not None for p in self.parameters)

    def is_active(self, parameter: Parameter, point: Mapping[str, Value]) -> bool:
        """Return whether a parameter is active, given a point with all earlier ones."""
        return parameter.parent is None or (
            parameter.parent in point and point[parameter.parent] in parameter.parent_values
        )

    def canonical(self, raw: Mapping[str, Value]) -> Point:
        """Drop inactive parameters; clip and cast the others, which must be present."""
        return self.fill(lambda parameter: parameter.cast(raw[parameter.name]))

    def sample(self, rng: np.random.Generator) -> Point:
        """Draw a point, uniform per parameter."""
        return self.fill(lambda parameter: parameter.sample(rng))

    def fill(self, value_of: Callable[[Parameter], Value]) -> Point:
        """Build a point by requesting a value for each active parameter, in order."""
        point: Point = {}
        for parameter in self.parameters:
            if self.is_active(parameter, point):
                point[parameter.name] = value_of(parameter)
        return point

    def key(self, point: Mapping[str, Value]) -> Key:
        """Return a point's identity."""
        return tuple(
            (p.name, round(value, 12) if isinstance(value, float) else value)
            for p in self.parameters
            if (value := point.get(p.name)) is not None
        )

    def size(self) -> float:
        """Return the number of points: infinite with a float, an upper bound with conditions."""
        n = 1.0
        for p in self.parameters:
            if p.kind == "float":
                return math.inf
            n *= p.high - p.low + 1 if p.kind == "int" else len(p.choices)
        return n

    def points(self, limit: int) -> list[Point] | None:
        """Return all points of a finite space, or ``None`` if there are more than ``limit``."""
        points: list[Point] = [{}]
        for p in self.parameters:
            values: Sequence[Value]
            values = range(int(p.low), int(p.high) + 1) if p.kind == "int" else p.choices
            points = [
                longer
                for point in points
                for longer in (
                    [{**point, p.name: value} for value in values]
                    if self.is_active(p, point)
                    else [point]
                )
            ]
            if len(points) > limit:
                return None
        return points

    def to_json(self) -> list[dict[str, Any]]:
        """Return a JSON value that ``from_json`` turns into an equal space."""
        return [asdict(p) for p in self.parameters]

    @classmethod
    def from_json(cls, rows: Sequence[Mapping[str, Any]]) -> "Space":
        """Rebuild a space from ``to_json``."""
        parameters = []
        for row in rows:
            values: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in row.items()
            }
            parameters.append(Parameter(**values))
        return cls(parameters)


def real(name: str, low: float, high: float, *, log: bool = False) -> Parameter:
    """Return a real parameter."""
    return Parameter(name=name, kind="float", low=low, high=high, log=log)


def integer(name: str, low: int, high: int, *, log: bool = False) -> Parameter:
    """Return an integer parameter."""
    return Parameter(name=name, kind="int", low=low, high=high, log=log)


def ordered(name: str, *values: float) -> Parameter:
    """Return a parameter with ascending numbers."""
    return Parameter(name=name, kind="ordered", choices=values)


def categorical(name: str, *values: Value) -> Parameter:
    """Return a parameter with unordered values."""
    return Parameter(name=name, kind="categorical", choices=values)
