"""Migration of ``search_space``."""

import re
from typing import Any

from convergence.compat.migration.migrator import Migrator, Path, Section, is_number, number


def migrate_search_space(m: Migrator, old: Section, _whole: Section) -> Section:
    """Return our ``search_space``."""
    path: Path = ("search_space",)
    parameters = old.pop("parameters", None)
    new = m.keep_known(old, path)
    if not isinstance(parameters, dict):
        return {"parameters": parameters, **new}
    migrated: Section = {}
    for name, parameter in parameters.items():
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        plain = f"p_{plain}" if plain[:1].isdigit() or not plain else plain
        here = (*path, "parameters", plain)
        if plain != name:
            m.say(
                here, f"was {name[:60]!r}, which is no identifier; its request field changes too"
            )
        as_list = {"type": "categorical", "choices": parameter}
        full = as_list if isinstance(parameter, list) else parameter
        result = _parameter(m, dict(full), here) if isinstance(full, dict) else full
        if result is not None:
            migrated[plain] = result
    return {"parameters": migrated, **new}


def _parameter(m: Migrator, old: Section, path: Path) -> Section | None:
    kind = old.get("type")
    values = old.pop("values", None)
    values = old.pop("choices", None) if values is None else values
    if values is None and kind in ("continuous", "discrete", "float", "int"):
        return _range(m, old, path)
    if not isinstance(values, list):
        return old
    choices = _choices(m, values, path)
    if not choices:
        m.drop(path, "no value is a text, a number or a boolean")
        return None
    new: Section = {"type": "categorical", "choices": choices}
    for key in ("description", "default", "when"):
        if old.get(key) is not None:
            new[key] = old[key]
    for key in old.keys() - {"type", "description", "default", "when"}:
        m.drop((*path, key), "`choices` alone say what it can take")
    return new


def _choices(m: Migrator, values: list[Any], path: Path) -> list[Any]:
    choices: list[Any] = []
    for value in values:
        if isinstance(value, dict | list) or value is None:
            m.say(path, "lost a value that is a list, a mapping or nothing")
        elif any(isinstance(value, bool) == isinstance(c, bool) and value == c for c in choices):
            m.say(path, f"lost {value!r}, which stood there twice")
        else:
            choices.append(value)
    return choices


def _range(m: Migrator, old: Section, path: Path) -> Section:
    new = m.keep_known(old, path)
    for key in ("min", "max", "step"):
        if key in new:
            new[key] = number(new[key])
    low, high, step = new.get("min"), new.get("max"), new.get("step")
    bounds = [value for value in (low, high, step) if value is not None]
    is_whole = all(isinstance(value, int) for value in bounds)
    was_discrete = new.get("type") in ("discrete", "int")
    new["type"] = "int" if was_discrete and is_whole else "float"
    if was_discrete and not is_whole:
        m.say(path, "has bounds or a step that are no whole numbers, so it is a `float`")
        step = new.setdefault("step", 1)
    if not (is_number(low) and is_number(high)):
        return new
    if low == high:
        m.say(path, "could take one value only")
        return {"type": "categorical", "choices": [low]}
    if step is not None and not (is_number(step) and 0 < step <= abs(high - low)):
        del new["step"]
        m.drop((*path, "step"), f"{step} is not between 0 and the range")
    return new
