"""Inputs of the Python interface, converted to a loaded configuration."""

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convergence.types import Config, ConvergenceConfig, TestCases
from convergence_core.config import Configuration
from convergence_core.config.normalize import guess_metric, mapping_at
from convergence_core.config.source import read_yaml
from convergence_core.errors import ConfigurationError
from tasks.inputs.loader import load, load_mapping, read_config

if TYPE_CHECKING:
    from tasks.inputs.loader import Loaded

ONE_EMPTY_CASE: list[dict[str, Any]] = [{"id": "empty", "input": {}}]
"""Test case without an input, for configurations without cases: the target gets only parameters.
"""


def load_config(
    config: Config,
    *,
    evaluator: Callable[..., Any] | str | None = None,
    test_cases: TestCases | None = None,
    local_function: Callable[..., Any] | str | None = None,
) -> "Loaded":
    """Load a configuration whose evaluator, cases or function the caller may replace.

    Raises:
        ConfigurationError: an argument or the configuration is wrong; lists all problems.
    """
    functions: dict[str, object] = {"evaluator": evaluator, "local_function": local_function}
    for name, value in functions.items():
        if value is not None and not isinstance(value, str) and not callable(value):
            rule = "must be a callable, or name one as 'module.function'"
            raise ConfigurationError.of(
                name, rule, "Pass the function itself.", value=type(value).__name__
            )
    replacements = (evaluator, test_cases, local_function)
    if isinstance(config, str | Path) and all(value is None for value in replacements):
        return load(config)
    mapping, base_dir = _mapping(config, has_evaluator=evaluator is not None)
    if test_cases is not None:
        _put_test_cases(mapping, test_cases)
    elif isinstance(config, ConvergenceConfig):
        _section(mapping, "evaluation")["test_cases"] = {"inline": copy.deepcopy(ONE_EMPTY_CASE)}
    if local_function is not None:
        _put_function(mapping, local_function)
    if isinstance(evaluator, str):
        _put_evaluator(mapping, evaluator, base_dir)
    callables = callable(evaluator) or callable(local_function)
    return load_mapping(mapping, base_dir, allow_callable=callables)


def _mapping(config: object, *, has_evaluator: bool) -> tuple[dict[str, Any], Path]:
    """Return the configuration as a new mapping, and the folder of its relative paths."""
    match config:
        case ConvergenceConfig():
            return config.to_mapping(has_evaluator=has_evaluator), Path()
        case Configuration():
            mapping: dict[str, Any] = json.loads(config.to_json())
            return mapping, Path()
        case Mapping():
            # Replacements are keys of a section, so the sections are copied. The reader copies the
            # rest.
            sections = {
                key: dict(value) if isinstance(value, Mapping) else value
                for key, value in config.items()
            }
            return sections, Path()
        case str() | Path():
            return _read(Path(config)), Path(config).parent
        case _:
            rule = "must be a path, a mapping or a ConvergenceConfig"
            fix = "See convergence.types."
            raise ConfigurationError.of("config", rule, fix, value=type(config).__name__)


def _read(path: Path) -> dict[str, Any]:
    """Return the mapping of a file without checks, since the caller replaces parts of it."""
    source = read_yaml(read_config(path), str(path))
    if source.problems:
        raise ConfigurationError(source.problems)
    if not isinstance(source.data, dict):
        rule = "the file must be a mapping of sections"
        raise ConfigurationError.of("", rule, "See `convergence init`.", value=str(path))
    return source.data


def _put_test_cases(mapping: dict[str, Any], test_cases: TestCases) -> None:
    """Replace the configuration's test cases; its ``holdout`` stays."""
    evaluation = _section(mapping, "evaluation")
    old = evaluation.get("test_cases")
    holdout = {key: old[key] for key in ("holdout",) if isinstance(old, dict) and key in old}
    if isinstance(test_cases, str | Path):
        evaluation["test_cases"] = {**holdout, "path": str(Path(test_cases).absolute())}
        return
    cases: object = test_cases() if callable(test_cases) else test_cases
    if not isinstance(cases, Iterable):
        rule = "must be cases, a path to them, or a function that returns them"
        fix = "See `convergence.api.TestCases`."
        raise ConfigurationError.of("test_cases", rule, fix, value=type(cases).__name__)
    evaluation["test_cases"] = {**holdout, "inline": [_case(case) for case in cases]}


def _case(case: object) -> object:
    """Return a case without version 0.1's ``meta``, which has no meaning here."""
    if not isinstance(case, Mapping):
        return case
    return {key: value for key, value in case.items() if key != "meta"}


def _put_function(mapping: dict[str, Any], function: Callable[..., Any] | str) -> None:
    """Replace the configuration's endpoint or function by a function."""
    api = _section(mapping, "api")
    for key in ("endpoint", "models", "function"):
        api.pop(key, None)
    api["kind"] = "function"
    if isinstance(function, str):
        module, name = _split(function, "local_function")
        api["function"] = f"{module}:{name}"


def _put_evaluator(mapping: dict[str, Any], evaluator: str, base_dir: Path) -> None:
    """Set the function of each ``function`` metric that names none."""
    module, name = _split(evaluator, "evaluator")
    beside = Path(*module.split(".")).with_suffix(".py")
    path = str(beside) if (base_dir / beside).is_file() else module
    for key, metric in mapping_at(mapping, "evaluation", "metrics").items():
        if isinstance(metric, dict) and metric.get("function") is None:
            kind = metric.get("type")
            if (
                guess_metric(key, metric, has_function=True) if kind is None else kind
            ) == "function":
                metric["function"] = f"{path}:{name}"


def _split(path: str, argument: str) -> tuple[str, str]:
    """Return module (or file) and name of ``module.name``, ``module:name`` or ``file.py:name``."""
    module, _, name = path.rpartition(":" if ":" in path else ".")
    if module and name:
        return module, name
    rule = "must be a callable, 'module.function' or 'file.py:function'"
    fix = "Name the module and the function in it."
    raise ConfigurationError.of(argument, rule, fix, value=repr(path))


def _section(mapping: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a section of the mapping, added if absent."""
    section = mapping.setdefault(name, {})
    if not isinstance(section, dict):
        fix = "Write its keys below it."
        raise ConfigurationError.of(name, "must be a mapping", fix, value=repr(section)[:80])
    return section
