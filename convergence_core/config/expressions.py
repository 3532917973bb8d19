"""Constraints between parameters: ``min_tokens <= max_tokens``, ``a + b < 1``.

An expression is parsed by ``ast`` and validated against a list of allowed nodes: comparisons,
``and``, ``or``, ``not``, ``in``, the arithmetic ``+ - * / // %``, numbers, texts, booleans and
parameter names. Python never evaluates it. Powers, calls, attributes and text arithmetic are not
allowed, and size and depth are limited, so no expression can be slow or harmful.

Numbers are exact fractions of the intended values. 0.1 + 0.2 is 0.3, as expected of steps of 0.1.
So is a computed choice, 0.30000000000000004. Three thirds are 1.

Semantics: a constraint with an inactive parameter *does not apply* and holds. One that cannot be
computed for a candidate (division by zero, a text compared with a number) does not hold.
"""

import ast
import math
import operator
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from convergence_core.records import Params

MAX_LENGTH = 1000
"""Maximum characters of an expression."""
MAX_NODES = 200
"""Maximum number of names, numbers and operators of an expression."""
MAX_DEPTH = 25
"""Maximum nesting depth."""

_ARITHMETIC: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_ORDER: dict[type[ast.cmpop], Callable[[Fraction, Fraction], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_SIMPLE = 10**6
"""Maximum denominator of the fraction that a float represents."""
_ROUNDING = Fraction(1, 10**15)
"""Maximum relative distance between a float and that fraction."""
_ALLOWED = "allowed are names, numbers, quoted text, + - * / // %, comparisons, in, and, or, not"
_NAMES_OF_NODES: dict[type[ast.AST], str] = {
    ast.Call: "a call",
    ast.Attribute: "an attribute (a dot)",
    ast.Subscript: "an index ([ ])",
    ast.Lambda: "a lambda",
    ast.IfExp: "if … else",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: "an assignment (:=)",
    ast.Pow: "a power (**)",
}


Use: TypeAlias = Literal["number", "truth"]
"""Required type of a part of an expression."""
_NO_CONDITION = "it is a value, not a condition; compare it, as in `a + b < 1`"


@dataclass(frozen=True, slots=True)
class Expression:
    """Parsed constraint; create it with ``parse``."""

    text: str
    """Text as written, stripped of white space."""
    names: frozenset[str]
    """Parameters in the expression."""
    uses: frozenset[tuple[str, Use]]
    """Parameters that must be numbers or booleans."""
    _tree: ast.expr = field(repr=False, compare=False)

    def applies(self, params: Params) -> bool:
        """Return whether all parameters in the expression are active."""
        return self.names <= params.keys()

    def evaluate(self, params: Params) -> bool:
        """Return whether the constraint holds; it does if it does not apply.

        An expression that cannot be computed, for example a division by zero, does not hold.
        """
        if not self.applies(params):
            return True
        try:
            return bool(_value(self._tree, params))
        except (TypeError, ArithmeticError):
            return False

    def __str__(self) -> str:
        """Return the text."""
        return self.text


def parse(text: str) -> Expression:
    """Parse a constraint.

    Raises:
        ValueError: The constraint is invalid; the message explains why.
    """
    text = text.strip()
    if not text:
        raise ValueError("it is empty")
    if len(text) > MAX_LENGTH:
        raise ValueError(f"it has {len(text)} characters, more than {MAX_LENGTH}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{error.msg} (column {error.offset or 1})") from None
    except (ValueError, RecursionError, MemoryError):
        raise ValueError("it is nested too deeply or holds a control character") from None
    parts = list(_parts(tree, "truth"))
    if len(parts) > MAX_NODES:
        raise ValueError(f"it has {len(parts)} parts, more than {MAX_NODES}")
    names = frozenset(name for name, _ in parts if name)
    if not names:
        raise ValueError("it names no parameter")
    uses = frozenset((name, use) for name, use in parts if name and use is not None)
    return Expression(text, names, uses, tree)


def _parts(node: ast.expr, use: Use | None, depth: int = 1) -> Iterator[tuple[str, Use | None]]:
    """Yield each part's name and required type; the name is "" unless the part is a parameter.

    Raises:
        ValueError: A part is not allowed, or has the wrong type.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    yield (node.id, use) if isinstance(node, ast.Name) else ("", None)
    _check_part(node, use)
    for part, part_use in _below(node):
        yield from _parts(part, part_use, depth + 1)


def _check_part(node: ast.expr, use: Use | None) -> None:
    is_list = isinstance(node, ast.Tuple | ast.List)
    is_sign = isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not)
    if isinstance(node, ast.Constant):
        _check_constant(node.value, use)
    elif use == "truth" and (is_list or is_sign or isinstance(node, ast.BinOp)):
        raise ValueError(_NO_CONDITION)
    elif is_list:
        raise ValueError("a list may only stand on the right of `in`")


def _below(node: ast.expr) -> list[tuple[ast.expr, Use | None]]:
    """Return the children of a part, each with its required type."""
    match node:
        case ast.Name() | ast.Constant():
            return []
        case ast.BoolOp(values=values):
            return [(value, "truth") for value in values]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [(operand, "truth")]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return [(operand, "number")]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return [(left, "number"), (right, "number")]
        case ast.Compare():
            return _sides(node)
        case _:
            part = node.op if isinstance(node, ast.BinOp) else node
            noun = _NAMES_OF_NODES.get(type(part), f"a {type(part).__name__}")
            raise ValueError(f"it uses {noun}; {_ALLOWED}")


def _sides(node: ast.Compare) -> list[tuple[ast.expr, Use | None]]:
    """Return the sides of comparisons, and the items of lists, each with its required type."""
    sides: list[tuple[ast.expr, Use | None]] = []
    lefts = [node.left, *node.comparators[:-1]]
    for op, left, right in zip(node.ops, lefts, node.comparators, strict=True):
        _check_comparison(op, right)
        use: Use | None = "number" if type(op) in _ORDER else None
        items = right.elts if isinstance(right, ast.Tuple | ast.List) else [right]
        sides += [(left, use), *((item, use) for item in items)]
    return sides


def _check_constant(value: object, use: Use | None) -> None:
    if not isinstance(value, bool | int | float | str):
        raise ValueError(f"it uses {value!r}; {_ALLOWED}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it uses a number too large")
    if use == "truth" and not isinstance(value, bool):
        raise ValueError(_NO_CONDITION)


def _check_comparison(op: ast.cmpop, right: ast.expr) -> None:
    if isinstance(op, ast.Is | ast.IsNot):
        raise ValueError(f"it uses `is`; write == or != instead; {_ALLOWED}")
    is_list = isinstance(right, ast.Tuple | ast.List)
    if isinstance(op, ast.In | ast.NotIn) != is_list:
        raise ValueError("`in` needs a list on its right, as in `x in [1, 2]`, and only `in` does")


def _value(node: ast.expr, params: Params) -> Any:  # noqa: PLR0911 - one arm per kind
    match node:
        case ast.Name(id=name):
            return params[name]
        case ast.Constant(value=value):
            return value
        case ast.BoolOp(op=op, values=values):
            parts = (_value(value, params) for value in values)
            return all(parts) if isinstance(op, ast.And) else any(parts)
        case ast.UnaryOp(op=op, operand=operand):
            value = _value(operand, params)
            if isinstance(op, ast.Not):
                return not value
            return -_number(value) if isinstance(op, ast.USub) else _number(value)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _number(_value(left, params)), _number(_value(right, params))
            return _ARITHMETIC[type(op)](a, b)
        case ast.Compare():
            return _compare(node, params)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(_value(item, params) for item in items)
        case _:  # pragma: no cover - rejected by _below
            raise AssertionError(node)


def _compare(node: ast.Compare, params: Params) -> bool:
    left = _value(node.left, params)
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = _value(comparator, params)
        if not _holds(op, left, right):
            return False
        left = right
    return True


def _holds(op: ast.cmpop, left: Any, right: Any) -> bool:
    if type(op) in _ORDER:
        return _ORDER[type(op)](_number(left), _number(right))
    items = right if isinstance(right, tuple) else (right,)
    return any(_equal(left, item) for item in items) == isinstance(op, ast.Eq | ast.In)


def _equal(left: Any, right: Any) -> bool:
    """Return whether values are equal: numbers by value, never to a boolean or a text."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(
        _exact(left) == _exact(right)
    )


def _exact(value: Any) -> Any:
    return _fraction(value) if isinstance(value, float) else value


@lru_cache(maxsize=4096)
def _fraction(value: float) -> Fraction:
    """Return the simple fraction that a float approximates (1/3, 0.3), else its 15 digits."""
    if not math.isfinite(value):
        raise ArithmeticError(f"{value} is not finite")
    if value.is_integer():
        return Fraction(str(value))
    exact = Fraction(value)
    simple = exact.limit_denominator(_SIMPLE)
    if abs(simple - exact) <= _ROUNDING * abs(exact):
        return simple
    return Fraction(f"{value:.15g}")


def _number(value: Any) -> Fraction:
    """Return a number, or raise TypeError: texts have neither arithmetic nor order here."""
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise TypeError(value)
    return _fraction(value) if isinstance(value, float) else Fraction(value)
