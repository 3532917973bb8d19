"""Makes a valid configuration out of a broken one, so that the remaining rules can be checked.

Nothing of it reaches the user: wrong values are taken out, missing ones filled in, and what is
then said about a repaired place is dropped. So one run reports all problems of a file.
"""

import copy
from typing import Any

from pydantic import ValidationError

from convergence_core.config.models import Configuration
from convergence_core.config.problems import path_of, value_at
from convergence_core.config.source import Path

_MAX_ROUNDS = 50

_FILLERS: dict[Path, Any] = {
    ("api",): {"name": "_", "kind": "function", "function": "_:_"},
    ("api", "name"): "_",
    ("api", "kind"): "function",
    ("search_space",): {"parameters": {"_": {"type": "boolean"}}},
    ("search_space", "parameters"): {"_": {"type": "boolean"}},
    ("evaluation",): {
        "test_cases": {"inline": [{}]},
        "metrics": {"_": {"type": "success_rate", "direction": "higher"}},
    },
    ("evaluation", "test_cases"): {"inline": [{}]},
    ("evaluation", "metrics"): {"_": {"type": "success_rate", "direction": "higher"}},
}


def repair(
    data: dict[str, Any], error: ValidationError, broken: list[Path]
) -> Configuration | None:
    """Return a valid configuration near ``data``; adds each repaired path to ``broken``."""
    data = copy.deepcopy(data)
    for _ in range(_MAX_ROUNDS):
        found = error.errors(include_url=False)
        targets = {_target(path_of(item, data), item["type"] == "missing") for item in found}
        for path in sorted(targets, key=lambda p: (len(p), str(p))):
            _mend(data, path)
        broken += targets
        try:
            return Configuration.model_validate(data)
        except ValidationError as again:
            error = again
    return None


def _target(path: Path, is_missing: bool) -> Path:
    """Return what must go, or be filled in, when something is wrong at a path."""
    if path in _FILLERS:
        return path
    if is_missing and len(path) > 1:
        path = path[:-1]
    indices = [i for i, part in enumerate(path) if isinstance(part, int)]
    if indices:
        path = path[: indices[0]]
    return path[:3] if path[:2] in _NAMED else path


_NAMED = {
    ("search_space", "parameters"),
    ("search_space", "templates"),
    ("evaluation", "metrics"),
    ("api", "models"),
}


def _mend(data: dict[str, Any], path: Path) -> None:
    """Fill in what is required at a path, take out what is not."""
    holder = value_at(data, path[:-1])
    if not isinstance(holder, dict):
        return
    if path in _FILLERS:
        holder[str(path[-1])] = copy.deepcopy(_FILLERS[path])
    else:
        holder.pop(str(path[-1]), None)
