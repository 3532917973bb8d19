"""Text or mapping → ``Configuration``, or an error with every problem at once."""

import copy
import math
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from convergence_core.config.checks import check
from convergence_core.config.models import Configuration
from convergence_core.config.normalize import normalize
from convergence_core.config.not_available import refuse
from convergence_core.config.plain import read_mapping
from convergence_core.config.positions import read_yaml
from convergence_core.config.problems import meant_by, problems_of
from convergence_core.config.repair import repair
from convergence_core.config.report import Report
from convergence_core.config.shown import shown
from convergence_core.config.source import ConfigSource, Path, texts_of
from convergence_core.errors import ConfigurationError, Problem


def parse_configuration(
    text: str | bytes, *, file: str | None = None, allow_callable: bool = False
) -> Configuration:
    """Read a configuration from YAML (or JSON) text.

    Args:
        text: The file's text, or its bytes (UTF-8, with or without a byte order mark).
        file: Its path as the user gave it, for messages.
        allow_callable: Whether target and evaluator may be passed as Python callables, so that
            ``api.function`` and the functions of metrics may be absent.

    Raises:
        ConfigurationError: holds all problems, in the order of the file.
    """
    return configuration_of(read_yaml(text, file), allow_callable=allow_callable)


def parse_mapping(
    mapping: Mapping[str, Any], *, file: str | None = None, allow_callable: bool = False
) -> Configuration:
    """Read a configuration from Python data of the same form.

    Args:
        mapping: Plain mappings, lists and scalars; stays as it is.
        file: Named in messages, without lines.
        allow_callable: As for ``parse_configuration``.

    Raises:
        ConfigurationError: holds all problems.
    """
    return configuration_of(read_mapping(mapping, file), allow_callable=allow_callable)


def configuration_of(source: ConfigSource, *, allow_callable: bool = False) -> Configuration:
    """Make a configuration of data that was read.

    Raises:
        ConfigurationError: holds all problems, those of reading among them.
    """
    problems = [*source.problems, *_nul_problems(source)]
    if isinstance(source.data, dict):
        configuration, more = _validate(source, allow_callable=allow_callable)
        problems += more
        if configuration is not None and not problems:
            return configuration
    elif not problems:
        problems.append(
            source.problem(
                (),
                "the file must be a mapping of sections",
                "Begin with `api:`, `search_space:` and `evaluation:`.",
                value=shown(source.data),
            )
        )
    raise ConfigurationError(sorted(_distinct(problems), key=_place))


def _nul_problems(source: ConfigSource) -> list[Problem]:
    """Return a problem for each text with the character 0; test cases may hold any."""
    rule, fix = "must not hold the character 0", "Remove it; no path, header or database takes it."
    return [
        source.problem(path, rule, fix, value=shown(text, str(path[-1]) if path else ""))
        for path, text in texts_of(source.data)
        if "\0" in text and not _is_in_case(path)
    ]


def _is_in_case(path: Path) -> bool:
    at = path[2:]
    return path[:2] == ("evaluation", "test_cases") and (
        len(at) > 1 or (len(at) == 1 and isinstance(at[0], int))
    )


def _distinct(problems: list[Problem]) -> list[Problem]:
    """Keep the first of several problems that say the same of the same place."""
    return list({(p.key, p.rule, p.line, p.column): p for p in reversed(problems)}.values())[::-1]


def _place(problem: Problem) -> tuple[float, float, str]:
    line = math.inf if problem.line is None else problem.line
    column = math.inf if problem.column is None else problem.column
    return line, column, problem.key


def _validate(
    source: ConfigSource, *, allow_callable: bool
) -> tuple[Configuration | None, list[Problem]]:
    """Return the configuration, or one repaired enough to be checked, and its problems."""
    raw: dict[str, Any] = copy.deepcopy(source.data)
    problems, broken = refuse(raw, source)
    normalized = normalize(raw, source, allow_callable=allow_callable)
    problems += normalized.problems
    broken += normalized.broken
    broken += [path for path in source.values if _is_lost(path, source)]
    configuration: Configuration | None
    try:
        configuration = Configuration.model_validate(normalized.data)
    except ValidationError as error:
        found = problems_of(error, normalized.data, source, normalized.origin)
        broken += meant_by(error, normalized.data)
        problems += [found[path] for path in found if path not in broken]
        configuration = repair(normalized.data, error, broken)
    if configuration is not None:
        report = Report(source=source, origin=normalized.origin, broken=tuple(broken))
        check(configuration, report, allow_callable=allow_callable)
        problems += report.problems
    return configuration, problems


def _is_lost(path: Path, source: ConfigSource) -> bool:
    """Whether the reader already refused the value at this path."""
    at = source.values[path]
    return any((p.line, p.column) == (at.line, at.column) for p in source.problems)
