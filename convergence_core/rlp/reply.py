"""Notes, forecasts and settings in a model's reply.

The reply is one JSON object, alone, in prose or in a code block. Its parts are read separately: an
unreadable part is left out with a reason, and the rest counts. A setting is only a proposal: it is
evaluated if the search has a place for it.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from convergence_core.judges.texts import json_objects
from convergence_core.records import Params, ParamValue
from convergence_core.rlp.commitments import ProposedSetting, Thought
from convergence_core.rlp.quantiles import Quantiles
from convergence_core.space import Choice, Space
from convergence_core.space.parameters import Parameter

PARTS: Final = ("notes", "forecasts", "settings")
MOST_NOTES: Final = 4_000
"""Maximum characters of notes in later prompts."""


class UnreadableReplyError(ValueError):
    """A reply holds neither a forecast nor a setting."""


def read_reply(
    thought: Thought,
    space: Space,
    *,
    names: Mapping[str, str],
    around: Params,
    known: Collection[str],
    most_settings: int,
    rng: np.random.Generator,
) -> Thought:
    """Return a thought with the content of its reply.

    Args:
        thought: Thought whose ``text`` is the reply.
        space: Search space of the settings.
        names: Name in the prompt → candidate to forecast.
        around: Values of parameters that a setting omits.
        known: Candidates that need no place because they are evaluated or planned.
        most_settings: Maximum number of settings.
        rng: Random generator for parameters in neither.

    Raises:
        UnreadableReplyError: it holds no JSON object with a forecast or a setting.
    """
    value = _object(thought.text)
    dropped: list[str] = []
    forecasts = {}
    listed = value.get("forecasts")
    for name, candidate_id in names.items():
        try:
            forecasts[candidate_id] = Quantiles.of(listed[name])  # type: ignore[index]  # read as it is
        except (KeyError, TypeError):
            dropped.append(f"{name}: no forecast")
        except ValueError as error:
            dropped.append(f"{name}: {error}")
    settings: dict[str, ProposedSetting] = {}
    wanted = value.get("settings")
    for number, entry in enumerate(wanted if isinstance(wanted, list) else (), 1):
        try:
            setting = _setting(entry, space, around, rng)
            if setting.candidate_id in known or setting.candidate_id in settings:
                raise ValueError("it is known already")
            if len(settings) == most_settings:
                raise ValueError(f"there are more than {most_settings}")
        except ValueError as error:
            dropped.append(f"setting {number}: {error}")
            continue
        settings[setting.candidate_id] = setting
    if not forecasts and not settings:
        problem = "; ".join(dropped) or "it has neither `forecasts` nor `settings`"
        raise UnreadableReplyError(problem[:300])
    notes = value.get("notes")
    return replace(
        thought,
        notes=_storable(notes).strip()[:MOST_NOTES] if isinstance(notes, str) else "",
        forecasts=forecasts,
        settings=tuple(settings.values()),
        dropped=tuple(dropped),
    )


def written_notes(text: str) -> str:
    """Return the notes of a stored reply; the whole text without notes, or of an older version."""
    try:
        notes = _object(text).get("notes")
    except UnreadableReplyError:
        return text
    return _storable(notes) if isinstance(notes, str) and notes.strip() else text


def _object(text: str) -> dict[str, Any]:
    """Return the first JSON object in a text that has one of ``PARTS``."""
    for value in json_objects(text):
        if any(part in value for part in PARTS):
            return value
    raise UnreadableReplyError("it holds no JSON object with `forecasts` or `settings`")


def _setting(
    entry: Any, space: Space, around: Params, rng: np.random.Generator
) -> ProposedSetting:
    """Return a setting that lies in the space.

    Raises:
        ValueError: it does not lie in the space.
    """
    values = entry.get("values") if isinstance(entry, dict) else None
    if not isinstance(values, dict) or not values:
        raise ValueError("it must have `values`, parameters with their values")
    params: dict[str, Any] = dict(around)
    for name, value in values.items():
        parameter = space.parameters.get(name)
        if parameter is None:
            raise ValueError(f"there is no parameter `{_shown(name)}`")
        if value is None:  # for a parameter whose condition does not hold
            continue
        params[name] = _value(parameter, name, value)
    point = space.complete(params, rng)
    if not space.satisfied(point):
        raise ValueError("it breaks a constraint")
    try:
        forecast = Quantiles.of(entry["score"])
    except (KeyError, TypeError, ValueError):
        forecast = None
    candidate = space.candidate(point, "rlp")
    return ProposedSetting(
        candidate_id=candidate.candidate_id, params=candidate.params, forecast=forecast
    )


def _value(parameter: Parameter, name: str, value: Any) -> ParamValue:
    """Return a parameter's value in canonical form, e.g. from a choice's short name.

    Raises:
        ValueError: the parameter has no such value.
    """
    if isinstance(parameter, Choice):
        value = next((c for c in parameter.choices if value == parameter.show(c)), value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        low, high = parameter.min, parameter.max
        if low <= value <= high:
            value = parameter.canonical(round(value) if parameter.kind == "int" else value)
    problem = parameter.problem(value)
    if problem is not None:
        raise ValueError(f"`{name}` {problem}, but got {_shown(value)}")
    return parameter.canonical(value)


def _shown(value: Any) -> str:
    """Return what a model wrote, shortened to one line."""
    return " ".join(_storable(str(value)).split())[:60]


def _storable(text: str) -> str:
    """Return a text with ? for lone surrogates, which JSON may escape but UTF-8 lacks."""
    return text.encode("utf-8", "replace").decode("utf-8")
