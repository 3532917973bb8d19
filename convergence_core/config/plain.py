"""Python data → plain data: what a caller passes in, checked before anything reads it."""

import datetime
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from convergence_core.config.positions import MAX_DEPTH, MAX_NODES
from convergence_core.config.shown import shown
from convergence_core.config.source import ConfigSource, Path

_FIX = "Pass mappings, lists, texts, numbers and booleans only."


def read_mapping(mapping: Mapping[str, Any], file: str | None) -> ConfigSource:
    """Copy Python data; what is wrong with it is in ``problems`` of the result."""
    source = ConfigSource(file=file)
    source.data = _Reader(source).convert(mapping, ())
    return source


class _Reader:
    """Copies values and notes those that JSON could not carry."""

    def __init__(self, source: ConfigSource) -> None:
        self._source = source
        self._n_nodes = 0

    def convert(self, value: Any, path: Path) -> Any:
        self._n_nodes += 1
        if len(path) > MAX_DEPTH or self._n_nodes > MAX_NODES:
            if not self._source.problems:
                rule = f"must not nest deeper than {MAX_DEPTH} levels or hold itself"
                if self._n_nodes > MAX_NODES:
                    rule = f"must not hold more than {MAX_NODES:,} values"
                self._source.problems.append(self._source.problem(path[:5], rule, "Shorten it."))
            return None
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        if isinstance(value, list | tuple):
            return [self.convert(item, (*path, i)) for i, item in enumerate(value)]
        return self._scalar(value, path)

    def _mapping(self, value: Mapping[Any, Any], path: Path) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                rule = f"must have texts as keys, but one of them is a {type(key).__name__}"
                self._source.problems.append(self._source.problem(path, rule, "Use str keys."))
                continue
            copied[str(key)] = self.convert(item, (*path, str(key)))
        return copied

    def _scalar(self, value: Any, path: Path) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, PurePath):
            return str(value)
        if type(value) is datetime.date:  # what YAML 1.1 makes of an unquoted 2024-10-21
            return value.isoformat()
        for kind in (str, int, float):  # subclasses such as enums and numpy's float64, too
            if isinstance(value, kind):
                value = kind(value)
                break
        else:
            rule = f"must be a value that JSON can carry, not a {type(value).__name__}"
            self._source.problems.append(self._source.problem(path, rule, _FIX))
            return None
        if isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
            is_whole = isinstance(value, int)
            rule = "must be a number of moderate size" if is_whole else "must be a finite number"
            fix = "Pass a smaller number." if is_whole else "Pass a number."
            self._source.problems.append(self._source.problem(path, rule, fix, value=shown(value)))
            return None
        return value
