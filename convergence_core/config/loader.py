"""Loader of a ``Configuration``, which reports every problem at once."""

import datetime
import json
import math
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from convergence_core.config.models import Configuration
from convergence_core.config.normalize import normalize
from convergence_core.config.problems import path_of, problems_of
from convergence_core.config.rules import check
from convergence_core.config.schema import value_at
from convergence_core.config.secrecy import shown
from convergence_core.config.source import (
    MAX_DEPTH,
    MAX_NODES,
    ConfigSource,
    Path,
    read_yaml,
    texts_of,
)
from convergence_core.errors import ConfigurationError, Problem


def parse_configuration(text: str | bytes, *, file: str | None = None) -> Configuration:
    """Read a configuration from YAML (or JSON) text.

    Args:
        text: Text of the file, or its bytes (UTF-8, with or without a byte order mark).
        file: Path as the user gave it, for messages.

    Raises:
        ConfigurationError: Holds all problems, in the order of the file.
    """
    return configuration_of(read_yaml(text, file))


def parse_mapping(mapping: Mapping[str, Any], *, allow_callable: bool = False) -> Configuration:
    """Read a configuration from Python data of the same form.

    Args:
        mapping: Plain mappings, lists and scalars; not changed.
        allow_callable: Whether target and evaluator may be Python callables, so that
            ``api.function`` and the functions of metrics may be missing.

    Raises:
        ConfigurationError: Holds all problems.
    """
    source = ConfigSource()
    source.data = _Reader(source).convert(mapping, ())
    return configuration_of(source, allow_callable=allow_callable)


def parse_stored(text: str) -> Configuration:
    """Read the configuration of a stored run of any version.

    Args:
        text: JSON from ``Configuration.to_json``.

    Raises:
        ConfigurationError: Holds all problems.
    """
    return parse_mapping(stored_mapping(text), allow_callable=True)


def stored_mapping(text: str) -> dict[str, Any]:
    """Read a stored configuration as a mapping, without keys and words unknown to this version."""
    tree: dict[str, Any] = json.loads(text)
    try:
        Configuration.model_validate(tree)
    except ValidationError as error:
        for item in reversed(error.errors(include_url=False)):
            *above, key = path_of(item, tree)
            is_word_of_list = item["type"] == "literal_error" and isinstance(key, int)
            if item["type"] == "extra_forbidden" or is_word_of_list:
                value_at(tree, tuple(above)).pop(key)
    return tree


def configuration_of(source: ConfigSource, *, allow_callable: bool = False) -> Configuration:
    """Build a configuration from parsed data.

    Raises:
        ConfigurationError: Holds all problems of the first failing step: reading, keys and types,
            or
            the rules between them.
    """
    problems = [*source.problems, *_nul_problems(source)]
    if problems:
        raise _error(problems)
    if not isinstance(source.data, dict):
        rule = "the file must be a mapping of sections"
        fix = "Begin with `api:`, `search_space:` and `evaluation:`."
        raise _error([source.problem((), rule, fix, value=shown(source.data))])
    report = normalize(source.data, source, allow_callable=allow_callable)
    try:
        configuration = Configuration.model_validate(report.data)
    except ValidationError as error:
        raise _error([*report.problems, *problems_of(error, report)]) from None
    if not report.problems:
        check(configuration, report, allow_callable=allow_callable)
    if report.problems:
        raise _error(report.problems)
    return configuration


def _error(problems: list[Problem]) -> ConfigurationError:
    """Return the error of these problems, without duplicates, in the order of the file."""
    distinct: dict[object, Problem] = {}
    for problem in problems:  # keep the first of equal problems
        distinct.setdefault((problem.key, problem.rule, problem.line, problem.column), problem)
    return ConfigurationError(sorted(distinct.values(), key=_order))


def _order(problem: Problem) -> tuple[float, float, str]:
    line = math.inf if problem.line is None else problem.line
    column = math.inf if problem.column is None else problem.column
    return line, column, problem.key


def _nul_problems(source: ConfigSource) -> list[Problem]:
    """Return a problem for each text with the NUL character, except in test cases."""
    rule, fix = "must not hold the NUL character", "Remove it."
    return [
        source.problem(path, rule, fix, value=shown(text, str(path[-1]) if path else ""))
        for path, text in texts_of(source.data)
        if "\0" in text and not _is_in_case(path)
    ]


def _is_in_case(path: Path) -> bool:
    at = path[2:]
    is_below = len(at) > 1 or (len(at) == 1 and isinstance(at[0], int))
    return path[:2] == ("evaluation", "test_cases") and is_below


# -- Python data


class _Reader:
    """Copier of Python data that records values without JSON form."""

    def __init__(self, source: ConfigSource) -> None:
        self._source = source
        self._n_nodes = 0

    def convert(self, value: Any, path: Path) -> Any:
        """Return plain data; its problems are added to the source."""
        self._n_nodes += 1
        if len(path) > MAX_DEPTH or self._n_nodes > MAX_NODES:
            if not self._source.problems:
                rule = f"must not nest deeper than {MAX_DEPTH} levels or hold itself"
                if self._n_nodes > MAX_NODES:
                    rule = f"must not hold more than {MAX_NODES:,} values"
                self._source.add(path[:5], rule, "Shorten it.")
            return None
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        if isinstance(value, list | tuple):
            return [self.convert(item, (*path, i)) for i, item in enumerate(value)]
        return self._scalar(value, path)

    def _mapping(self, value: Mapping[Any, Any], path: Path) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for key, item in value.items():
            if isinstance(key, str):
                copied[str(key)] = self.convert(item, (*path, str(key)))
            else:
                rule = f"must have strings as keys, but one of them is a {type(key).__name__}"
                self._source.add(path, rule, "Use strings.")
        return copied

    def _scalar(self, value: Any, path: Path) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, PurePath):
            return str(value)
        if type(value) is datetime.date:  # YAML 1.1 reads an unquoted 2024-10-21 as a date
            return value.isoformat()
        # Includes subclasses, such as enums and numpy's float64.
        kind = next((kind for kind in (str, int, float) if isinstance(value, kind)), None)
        if kind is None:
            rule = f"must be a JSON value, not a {type(value).__name__}"
            fix = "Pass only mappings, lists, strings, numbers and booleans."
            self._source.add(path, rule, fix)
            return None
        plain: str | int | float = kind(value)
        if isinstance(plain, str) or abs(plain) <= sys.float_info.max:
            return plain
        rule, fix = "must be a finite number", "Pass a number."
        if isinstance(plain, int):
            rule, fix = "must be a number of moderate size", "Pass a smaller number."
        self._source.add(path, rule, fix, value=shown(plain))
        return None
