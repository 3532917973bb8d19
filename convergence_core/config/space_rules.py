"""Rules of ``search_space``: bounds, steps, defaults, conditions and constraints."""

import keyword
import math
import re
from collections.abc import Mapping, Set as AbstractSet
from typing import TypeAlias

from convergence_core.config.base import Choice
from convergence_core.config.expressions import Use, parse
from convergence_core.config.problems import Report, guessed, listing
from convergence_core.config.search_space import (
    BooleanParam,
    CategoricalParam,
    FloatParam,
    IntParam,
    ParameterConfig,
    SearchSpaceConfig,
    TextParam,
)
from convergence_core.config.secrecy import shown
from convergence_core.config.source import Path

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PARAMETERS: Path = ("search_space", "parameters")
_RESERVED = "input"
_MAX_STEPS = 2**53
"""Maximum number of steps that floats can distinguish."""

Parameters: TypeAlias = Mapping[str, ParameterConfig]


def check_space(space: SearchSpaceConfig, report: Report) -> None:
    """Check each parameter, then the rules between them."""
    for name, parameter in space.parameters.items():
        path = (*_PARAMETERS, name)
        _check_name(name, path, report)
        if isinstance(parameter, FloatParam | IntParam):
            _check_range(parameter, path, report)
        elif isinstance(parameter, CategoricalParam):
            _check_choices(parameter.choices, (*path, "choices"), report)
        elif isinstance(parameter, TextParam):
            _check_choices(parameter.variants, (*path, "variants"), report)
        if parameter.default is not None and not _allows(parameter, parameter.default):
            rule, fix = f"must be {_allowed(parameter)}", "Write one of its possible values."
            report.add((*path, "default"), rule, fix, value=shown(parameter.default))
    _check_conditions(space.parameters, report)
    _check_defaults(space.parameters, report)
    _check_constraints(space, report)


def _same(a: Choice, b: Choice) -> bool:
    """Return whether two values are equal: numbers by value, booleans distinct from numbers."""
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def _allows(parameter: ParameterConfig, value: Choice) -> bool:
    """Return whether a parameter can take a value."""
    if isinstance(parameter, BooleanParam):
        return isinstance(value, bool)
    if isinstance(parameter, CategoricalParam):
        return any(_same(value, choice) for choice in parameter.choices)
    if isinstance(parameter, TextParam):
        return value in parameter.variants
    if isinstance(value, bool | str) or not parameter.min <= value <= parameter.max:
        return False
    if isinstance(parameter, IntParam) and value != int(value):
        return False
    steps = 0.0 if parameter.step is None else (value - parameter.min) / parameter.step
    return steps > _MAX_STEPS or abs(steps - round(steps)) < 1e-6


def _allowed(parameter: ParameterConfig) -> str:
    """Return the allowed values of a parameter, in words."""
    if isinstance(parameter, FloatParam | IntParam):
        step = f" in steps of {parameter.step}" if parameter.step is not None else ""
        return f"between min={parameter.min} and max={parameter.max}{step}"
    if isinstance(parameter, BooleanParam):
        return "true or false"
    return "one of `choices`" if isinstance(parameter, CategoricalParam) else "one of `variants`"


def _check_name(name: str, path: Path, report: Report) -> None:
    if _NAME.fullmatch(name) is None or keyword.iskeyword(name):
        rule = "must be named by letters, digits and `_`, not begin with a digit, and not be a Python keyword"
        fix = f"Rename it, e.g. `{_suggest(name)}`."
        report.add(path, rule, fix, value=shown(name), of_key=True)
    elif name == _RESERVED:
        rule = f"must not be named `{_RESERVED}`, which means the test case in requests"
        report.add(path, rule, f"Rename it, e.g. `{name}_`.", value=shown(name), of_key=True)


def _suggest(name: str) -> str:
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)[:40] or "parameter"
    plain = f"p_{plain}" if plain[0].isdigit() else plain
    return f"{plain}_" if keyword.iskeyword(plain) else plain


def _check_range(parameter: FloatParam | IntParam, path: Path, report: Report) -> None:
    low, high, step = parameter.min, parameter.max, parameter.step
    if not low < high:
        rule, fix = "must exceed `min`", "Swap them, or correct one of them."
        if low == high:
            fix = f"Widen the range, or use `type: categorical` with `choices: [{low}]`."
        report.add((*path, "max"), rule, fix, value=f"min={low}, max={high}")
        return
    if not math.isfinite(high - low):
        report.add((*path, "max"), "must span a finite range", "Narrow it.", value=shown(high))
    if parameter.log and not low > 0:
        rule, fix = "must be above 0 when `log` is true", "Raise `min`, or remove `log`."
        report.add((*path, "min"), rule, fix, value=shown(low))
    if step is None:
        return
    if step > high - low:
        rule = f"must not exceed the range, max - min = {high - low}"
        report.add((*path, "step"), rule, "Write a smaller step, or remove it.", value=shown(step))
    elif (high - low) / step > _MAX_STEPS:
        rule = "is too small for the range"
        report.add((*path, "step"), rule, "Write a larger step, or remove it.", value=shown(step))


def _check_choices(choices: list[Choice] | list[str], path: Path, report: Report) -> None:
    seen: dict[tuple[bool, Choice], int] = {}
    for i, choice in enumerate(choices):
        first = seen.setdefault((isinstance(choice, bool), choice), i)
        if first != i:
            rule = f"must not repeat entry {first + 1}"
            report.add((*path, i), rule, "Remove one of them.", value=shown(choice))


def _check_conditions(parameters: Parameters, report: Report) -> None:
    for name, parameter in parameters.items():
        for other, values in parameter.when.items():
            path = (*_PARAMETERS, name, "when", other)
            if other == name:
                rule = "must name another parameter"
                report.add(path, rule, "Remove it.", value=shown(other), of_key=True)
            elif other not in parameters:
                _report_unknown(path, other, parameters, report, of_key=True)
            elif not values:
                report.add(path, "must list at least one value", "Add one, or remove it.")
            else:
                _check_values(parameters[other], values, path, report)
    for name in parameters:
        if _leads_back(name, parameters):
            rule = "must not depend on itself through other conditions"
            fix = "Remove one of the conditions of the cycle."
            report.add((*_PARAMETERS, name, "when"), rule, fix, of_key=True)


def unused(parameters: Parameters, received: AbstractSet[str]) -> list[str]:
    """Return the parameters that neither the target nor another parameter reads."""
    gates = {other for parameter in parameters.values() for other in parameter.when}
    return [name for name in parameters if name not in received | gates]


def _check_values(
    parameter: ParameterConfig, values: list[Choice], path: Path, report: Report
) -> None:
    for i, value in enumerate(values):
        if not _allows(parameter, value):
            rule = f"must be {_allowed(parameter)} of `{path[-1]}`"
            fix = "Write a value that the parameter can take."
            report.add((*path, i), rule, fix, value=shown(value))


def _leads_back(name: str, parameters: Parameters) -> bool:
    """Return whether a parameter's conditions lead back to it through others."""
    waiting = [other for other in parameters[name].when if other in parameters and other != name]
    seen: set[str] = set()
    while waiting:
        parent = waiting.pop()
        if parent == name:
            return True
        if parent not in seen:
            seen.add(parent)
            waiting += [other for other in parameters[parent].when if other in parameters]
    return False


def _check_defaults(parameters: Parameters, report: Report) -> None:
    """Check that all or none of the required defaults are set, since they form the baseline."""
    defaults = {name: p.default for name, p in parameters.items() if p.default is not None}
    for name in parameters if defaults else ():
        if name not in defaults and _is_active(name, parameters, defaults):
            have = "has" if len(defaults) == 1 else "have"
            rule = f"needs a `default`, since {listing([*defaults][:3])} {have} one"
            fix = "Add it, or remove all defaults: together they are the configuration in use."
            report.add((*_PARAMETERS, name), rule, fix, of_key=True)


def _is_active(
    name: str,
    parameters: Parameters,
    values: Mapping[str, object],
    above: frozenset[str] = frozenset(),
) -> bool:
    """Return whether a parameter is active given these values of the others."""
    if name in above:
        return False
    for other, wanted in parameters[name].when.items():
        value = values.get(other)
        if other not in parameters or not isinstance(value, bool | int | float | str):
            return False
        if not _is_active(other, parameters, values, above | {name}):
            return False
        if not any(_same(value, item) for item in wanted):
            return False
    return True


# -- constraints: known parameters of the right types


def _check_constraints(space: SearchSpaceConfig, report: Report) -> None:
    """Check that each constraint is an expression over parameters of the right types."""
    for i, text in enumerate(space.constraints):
        path: Path = ("search_space", "constraints", i)
        try:
            expression = parse(text)
        except ValueError as error:
            rule = f"must be an expression over parameters: {error}"
            fix = "Write e.g. `min_tokens <= max_tokens`."
            report.add(path, rule.rstrip("."), fix, value=shown(text))
            continue
        for name in sorted(expression.names):
            if name not in space.parameters:
                _report_unknown(path, name, space.parameters, report)
            elif isinstance(space.parameters[name], TextParam):
                rule, fix = "must not use text parameters", "Use parameters of other types."
                report.add(path, rule, fix, value=f"`{name}`")
        for name, use in sorted(expression.uses):
            _check_use(path, name, use, space.parameters.get(name), report)


def _report_unknown(
    path: Path, name: str, known: Parameters, report: Report, *, of_key: bool = False
) -> None:
    """Record a name that is not a parameter."""
    names = sorted(known)
    rule = "must name a parameter of `search_space.parameters`"
    fix = guessed(name, names, f"Known are: {listing(names[:20])}.")
    report.add(path, rule, fix, value=shown(name), of_key=of_key)


def _check_use(
    path: Path, name: str, use: Use, parameter: ParameterConfig | None, report: Report
) -> None:
    if parameter is None or isinstance(parameter, TextParam):
        return
    choices = parameter.choices if isinstance(parameter, CategoricalParam) else []
    if use == "number":
        rule = "must use numeric parameters only with + - * / // % < <= > >="
        fix = f"Compare it by == or `in`, or make `{name}` a `float` or `int`."
        is_right = isinstance(parameter, FloatParam | IntParam) or (
            bool(choices) and not any(isinstance(choice, bool | str) for choice in choices)
        )
    else:
        rule = "must use boolean parameters only where true or false is meant"
        fix = f"Compare it, e.g. `{name} == 1`."
        is_right = isinstance(parameter, BooleanParam) or (
            bool(choices) and all(isinstance(choice, bool) for choice in choices)
        )
    if not is_right:
        report.add(path, rule, fix, value=f"`{name}`")
