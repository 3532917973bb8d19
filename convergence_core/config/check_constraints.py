"""Rules of ``search_space.constraints``: known parameters, each used as what it is."""

import ast
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from convergence_core.config.expressions import parse
from convergence_core.config.problems import listing, nearest
from convergence_core.config.report import Report
from convergence_core.config.search_space import (
    BooleanParam,
    CategoricalParam,
    FloatParam,
    IntParam,
    ParameterConfig,
    SearchSpaceConfig,
    TextParam,
)
from convergence_core.config.shown import shown
from convergence_core.config.source import Path

Parameters: TypeAlias = Mapping[str, ParameterConfig]
Use: TypeAlias = Literal["number", "truth"]

_PARAMETERS: Path = ("search_space", "parameters")
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def check_constraints(space: SearchSpaceConfig, report: Report) -> None:
    """Check that each constraint is an expression over parameters of the right types."""
    for i, text in enumerate(space.constraints):
        path: Path = ("search_space", "constraints", i)
        try:
            names = parse(text).names
        except ValueError as error:
            rule = f"must be an expression over parameters: {error}"
            fix = "Write e.g. `min_tokens <= max_tokens`."
            report.add(path, rule.rstrip("."), fix, value=shown(text))
            continue
        for name in sorted(names):
            if name not in space.parameters:
                report_unknown(path, name, space.parameters, report)
            elif isinstance(space.parameters[name], TextParam):
                rule = "must not use text parameters"
                report.add(path, rule, "Use parameters of other types.", value=f"`{name}`")
        uses = _uses(ast.parse(text.strip(), mode="eval").body, "truth")
        for name, use in sorted(set(uses)):
            _check_use(path, name, use, space.parameters, report)


def report_unknown(
    path: Path, name: str, known: Parameters, report: Report, *, of_key: bool = False
) -> None:
    """Report a name that is no parameter's, unless that parameter was reported itself."""
    broken = {str(place[2]) for place in report.broken if place[:2] == _PARAMETERS and place[2:]}
    if name in broken:
        return
    names = sorted({*known, *broken})
    guess = nearest(name, names)
    rule = "must name a parameter of `search_space.parameters`"
    fix = f"Did you mean `{guess}`? " if guess else ""
    fix += f"Known are: {listing(names[:20])}."
    report.add(path, rule, fix, value=shown(name), of_key=of_key)


def _check_use(path: Path, name: str, use: Use, known: Parameters, report: Report) -> None:
    parameter = known.get(name)
    if parameter is None or isinstance(parameter, TextParam):
        return
    if use == "number" and not _is_numeric(parameter):
        rule = "must use numeric parameters only with + - * / // % < <= > >="
        fix = f"Compare it by == or `in`, or make `{name}` a `float` or `int`."
        report.add(path, rule, fix, value=f"`{name}`")
    elif use == "truth" and not _is_boolean(parameter):
        rule = "must use boolean parameters only where true or false is meant"
        report.add(path, rule, f"Compare it, e.g. `{name} == 1`.", value=f"`{name}`")


def _is_numeric(parameter: ParameterConfig) -> bool:
    if isinstance(parameter, CategoricalParam):
        return all(not isinstance(choice, bool | str) for choice in parameter.choices)
    return isinstance(parameter, FloatParam | IntParam)


def _is_boolean(parameter: ParameterConfig) -> bool:
    if isinstance(parameter, CategoricalParam):
        return all(isinstance(choice, bool) for choice in parameter.choices)
    return isinstance(parameter, BooleanParam)


def _uses(node: ast.expr, use: Use | None) -> Iterator[tuple[str, Use]]:
    """Yield each name that must be a number or a truth value, and which."""
    if isinstance(node, ast.Name) and use is not None:
        yield node.id, use
    for child, its_use in _children(node):
        yield from _uses(child, its_use)


def _children(node: ast.expr) -> list[tuple[ast.expr, Use | None]]:
    """Return the parts of an expression, each with what it must be there."""
    match node:
        case ast.BoolOp(values=values):
            return [(value, "truth") for value in values]
        case ast.UnaryOp(op=sign, operand=operand):
            return [(operand, "truth" if isinstance(sign, ast.Not) else "number")]
        case ast.BinOp(left=left, right=right):
            return [(left, "number"), (right, "number")]
        case ast.Compare(left=left, ops=ops, comparators=rights):
            lefts = [left, *rights[:-1]]
            return [
                (side, "number" if isinstance(op, _ORDERS) else None)
                for op, *sides in zip(ops, lefts, rights, strict=True)
                for side in sides
            ]
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [(item, None) for item in items]
        case _:
            return []
