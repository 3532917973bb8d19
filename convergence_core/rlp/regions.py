"""Regions of the space that a thought proposes, and candidates drawn from them.

A proposal never chooses anything: its points join the pool, and draws decide. What lies outside of
the space is clipped to nothing.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from convergence_core.records import Json, Params, ParamValue
from convergence_core.space import Choice, Space
from convergence_core.space.parameters import Parameter, same_value

MOST_REGIONS: Final = 3
MOST_PER_EXPERT: Final = 64
"""Points drawn for one expert at most."""
_OPENING: Final = re.compile(r"\{(?=\s*[\"}])")


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the space: for some parameters an interval, or a set of values."""

    intervals: Mapping[str, tuple[float, float]]
    """Parameter → places on its scale, in [0, 1]."""
    values: Mapping[str, tuple[ParamValue, ...]]


class _OutsideError(ValueError):
    """A proposed region does not lie in the space."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a thought would have looked at."""

    regions: tuple[Region, ...] = ()
    dropped: tuple[str, ...] = ()
    """Why others that it named were clipped to nothing."""


def proposal_of(text: str, space: Space) -> Proposal:
    """Return the regions that a thought's text holds as JSON under ``regions``; often none."""
    decoder = json.JSONDecoder()
    for opening in _OPENING.finditer(text):
        try:
            value, _ = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            continue
        listed = value.get("regions") if isinstance(value, dict) else None
        if isinstance(listed, list):
            return _read(listed, space)
        if listed is not None:
            return Proposal(dropped=("`regions` must be a list",))
    return Proposal()


def _read(listed: Sequence[Any], space: Space) -> Proposal:
    regions, dropped = [], []
    for i, entry in enumerate(listed[:MOST_REGIONS], 1):
        try:
            regions.append(_region(entry, space))
        except _OutsideError as error:
            dropped.append(f"region {i}: {error}")
    if len(listed) > MOST_REGIONS:
        dropped.append(f"{len(listed) - MOST_REGIONS} more than {MOST_REGIONS} regions")
    return Proposal(tuple(regions), tuple(dropped))


def _region(written: Any, space: Space) -> Region:
    """Return a region as far as it lies in the space.

    Raises:
        _OutsideError: a part of it lies outside.
    """
    if not isinstance(written, dict) or not written:
        raise _OutsideError("it must name a parameter and its values")
    intervals: dict[str, tuple[float, float]] = {}
    values: dict[str, tuple[ParamValue, ...]] = {}
    for name, wanted in written.items():
        parameter = space.parameters.get(name)
        if parameter is None:
            raise _OutsideError(f"there is no parameter `{_shown(name)}`")
        if isinstance(parameter, Choice):
            values[name] = _values(parameter, wanted)
            if not values[name]:
                raise _OutsideError(f"`{name}` has no value {_shown(wanted)}")
        elif (interval := _interval(parameter, wanted)) is not None:
            intervals[name] = interval
        else:
            raise _OutsideError(f"`{name}` has no place in {_shown(wanted)}")
    return Region(intervals, values)


def _shown(value: Any) -> str:
    """Return what a model wrote, on one line and cut short."""
    return " ".join(str(value).split())[:60]


def _values(parameter: Choice, wanted: Json) -> tuple[ParamValue, ...]:
    listed = wanted if isinstance(wanted, list) else [wanted]
    return tuple(
        choice
        for choice in parameter.choices
        if any(same_value(choice, value) or value == parameter.show(choice) for value in listed)
    )


def _interval(parameter: Parameter, wanted: Json) -> tuple[float, float] | None:
    """Return the places of an interval, cut to the parameter's bounds; ``None``: none is left."""
    ends = wanted if isinstance(wanted, list) else [wanted, wanted]
    if len(ends) != 2 or not all(_is_number(end) for end in ends):
        return None
    low, high = sorted(float(end) for end in ends)  # type: ignore[arg-type]  # checked above
    least, most = float(parameter.min), float(parameter.max)  # type: ignore[attr-defined]  # a number
    if high < least or low > most:
        return None
    return parameter.to_unit(max(low, least)), parameter.to_unit(min(high, most))


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
    )


def draw_points(
    regions: Sequence[Region], space: Space, around: Params, n: int, rng: np.random.Generator
) -> list[dict[str, ParamValue]]:
    """Return up to n points of regions, in turn; other parameters are as in ``around``.

    Args:
        regions: none: no points.
        space: where they lie; points that break a constraint are left out.
        around: values of parameters that a region does not name.
        n: how many are drawn.
        rng: a stream of the proposals' own.
    """
    points: list[dict[str, ParamValue]] = []
    for i in range(min(n, MOST_PER_EXPERT) if regions else 0):
        region = regions[i % len(regions)]
        given: dict[str, ParamValue] = dict(around)
        for name, (low, high) in region.intervals.items():
            given[name] = space.parameters[name].from_unit(low + (high - low) * rng.random())
        for name, values in region.values.items():
            given[name] = values[int(rng.integers(len(values)))]
        point = space.complete(given, rng)
        if space.satisfied(point):
            points.append(point)
    return points
