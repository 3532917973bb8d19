"""How rewards vary with one parameter: marginal means over the candidates asked, descriptive."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from convergence_core.records import Params, ParamValue
from convergence_core.result import Effect, EffectPoint
from convergence_core.space import Choice, Float, Integer, Parameter, Space

MAX_BINS = 6
"""Ranges that the values of a number are sorted into."""

_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One candidate and its posterior mean reward."""

    params: Params
    mean: float


def parameter_effects(space: Space, seen: Sequence[Seen]) -> tuple[Effect, ...]:
    """Return one effect per parameter that has a value, largest variation first."""
    found = []
    for name, parameter in space.parameters.items():
        having = [candidate for candidate in seen if name in candidate.params]
        values = [candidate.params[name] for candidate in having]
        means = [candidate.mean for candidate in having]
        if not having:
            continue
        if isinstance(parameter, Choice):
            points = _choices(parameter, values, means)
        else:
            points = _ranges(parameter, values, means)
        found.append(
            Effect(
                parameter=name,
                kind="choice" if isinstance(parameter, Choice) else "number",
                log=isinstance(parameter, Float | Integer) and parameter.log,
                points=tuple(points),
            )
        )
    return tuple(sorted(found, key=_variation, reverse=True))


def _variation(effect: Effect) -> float:
    """Return the variance between the points' means, each weighted by its candidates."""
    n = np.array([point.n_candidates for point in effect.points], dtype=float)
    means = np.array([point.mean for point in effect.points])
    centre = float(np.average(means, weights=n))
    return float(np.average((means - centre) ** 2, weights=n))


def _choices(
    parameter: Choice, values: Sequence[ParamValue], means: Sequence[float]
) -> list[EffectPoint]:
    groups: dict[int, list[float]] = {}
    for value, mean in zip(values, means, strict=True):
        groups.setdefault(parameter.index(value), []).append(mean)
    return [
        _point(parameter.show(parameter.value_at(index)), None, groups[index])
        for index in sorted(groups)
    ]


def _ranges(
    parameter: Parameter, values: Sequence[ParamValue], means: Sequence[float]
) -> list[EffectPoint]:
    """Sort numbers into ranges of equal width on their scale; few distinct ones stay apart."""
    distinct = sorted({float(value) for value in values})
    if len(distinct) <= MAX_BINS:
        places = [distinct.index(float(value)) for value in values]
    else:
        units = [parameter.to_unit(value) for value in values]
        places = [min(MAX_BINS - 1, int(unit * MAX_BINS)) for unit in units]
    points = []
    for place in sorted(set(places)):
        inside = [i for i, other in enumerate(places) if other == place]
        numbers = [float(values[i]) for i in inside]
        ordered = sorted((values[i] for i in inside), key=float)
        low, high = parameter.show(ordered[0]), parameter.show(ordered[-1])
        label = low if low == high else f"{low} to {high}"
        points.append(_point(label, math.fsum(numbers) / len(numbers), [means[i] for i in inside]))
    return points


def _point(label: str, x: float | None, means: Sequence[float]) -> EffectPoint:
    n = len(means)
    mean = math.fsum(means) / n
    half = 0.0
    if n > 1:
        quantile = float(special.stdtrit(n - 1, 0.5 + _LEVEL / 2))
        half = quantile * float(np.std(means, ddof=1)) / math.sqrt(n)
    return EffectPoint(
        label=label,
        x=x,
        mean=mean,
        low=max(0.0, mean - half),
        high=min(1.0, mean + half),
        n_candidates=n,
    )
