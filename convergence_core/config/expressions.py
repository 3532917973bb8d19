"""Constraints between parameters: ``min_tokens <= max_tokens``, ``a + b < 1``.

An expression is parsed by ``ast`` and walked over a white list: comparisons, ``and``, ``or``,
``not``, ``in``, the arithmetic ``+ - * / // %``, numbers, texts, booleans and parameter names.
Nothing is ever evaluated by Python itself; powers, calls, attributes and text arithmetic do not
exist here, and size and depth are bounded, so no expression can be slow or harmful.

Semantics: a constraint that uses a parameter which is not active *does not apply* and holds. One
that cannot be computed for a candidate (division by zero, a text compared with a number) does
not hold.
"""

import ast
import math
import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from convergence_core.records import Params, ParamValue

MAX_LENGTH = 1000
"""Characters of an expression at most."""
MAX_NODES = 200
"""Names, numbers and operators of an expression at most."""
MAX_DEPTH = 25
"""Levels of nesting at most."""

_Value: TypeAlias = ParamValue | tuple[ParamValue, ...]

_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}
_ORDER: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ALLOWED = "allowed are names, numbers, quoted texts, + - * / // %, comparisons, in, and, or, not"
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


class _CannotComputeError(Exception):
    """The expression has no value for these parameters."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed constraint; made by ``parse``."""

    text: str
    """As the user wrote it, without white space at the ends."""
    names: frozenset[str]
    """Parameters it uses."""
    _tree: ast.expr = field(repr=False, compare=False)

    def applies(self, params: Params) -> bool:
        """Return whether all parameters it uses are active."""
        return self.names <= params.keys()

    def evaluate(self, params: Params) -> bool:
        """Return whether the constraint holds; it does when it does not apply."""
        if not self.applies(params):
            return True
        try:
            return _truth(_value(self._tree, params))
        except (_CannotComputeError, ArithmeticError):
            return False

    def __str__(self) -> str:
        """Return the text."""
        return self.text


def parse(text: str) -> Expression:
    """Parse a constraint.

    Raises:
        ValueError: what is wrong with it, in words.
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
        raise ValueError("it is nested too deeply or holds a character of control") from None
    n_nodes = _check(tree, 1)
    if n_nodes > MAX_NODES:
        raise ValueError(f"it has {n_nodes} parts, more than {MAX_NODES}")
    _check_condition(tree)
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    if not names:
        raise ValueError("it names no parameter")
    return Expression(text, names, tree)


def _check(node: ast.expr, depth: int) -> int:
    """Return the number of nodes; everything outside the white list raises."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    return 1 + sum(_check(child, depth + 1) for child in _children(node))


def _children(node: ast.expr) -> list[ast.expr]:  # noqa: PLR0911 - one arm per kind of node
    match node:
        case ast.Name():
            return []
        case ast.Constant(value=value):
            _check_constant(value)
            return []
        case ast.BoolOp(values=values):
            return values
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=operand):
            return [operand]
        case ast.BinOp(left=left, op=op, right=right):
            if type(op) not in _ARITHMETIC:
                raise _refusal(op)
            return [left, right]
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for comparison, comparator in zip(ops, comparators, strict=True):
                _check_comparison(comparison, comparator)
            return [left, *comparators]
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return items
        case _:
            raise _refusal(node)


def _check_constant(value: object) -> None:
    if not isinstance(value, bool | int | float | str):
        raise ValueError(f"it uses {value!r}; {_ALLOWED}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it uses a number too large")


def _check_comparison(op: ast.cmpop, right: ast.expr) -> None:
    if type(op) not in _COMPARISONS:
        raise ValueError(f"it uses `is`; write == or != instead; {_ALLOWED}")
    is_list = isinstance(right, ast.Tuple | ast.List)
    if isinstance(op, ast.In | ast.NotIn) != is_list:
        raise ValueError("`in` needs a list at its right, as in `x in [1, 2]`, and only `in` does")


def _refusal(node: ast.AST) -> ValueError:
    noun = _NAMES_OF_NODES.get(type(node), f"a {type(node).__name__}")
    return ValueError(f"it uses {noun}; {_ALLOWED}")


def _check_condition(node: ast.expr) -> None:
    """Refuse numbers and texts where true or false is meant, and lists outside of ``in``."""
    match node:
        case ast.BoolOp(values=values):
            for value in values:
                _check_condition(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _check_condition(operand)
        case ast.Compare(left=left, comparators=comparators):
            _check_operand(left)
            for right in comparators:
                for item in right.elts if isinstance(right, ast.Tuple | ast.List) else [right]:
                    _check_operand(item)
        case ast.Name() | ast.Constant(value=bool()):
            pass
        case _:
            raise ValueError("it is a value, not a condition; compare it, as in `a + b < 1`")


def _check_operand(node: ast.expr) -> None:
    match node:
        case ast.Tuple() | ast.List():
            raise ValueError("a list may only stand at the right of `in`")
        case ast.BinOp(left=left, right=right):
            _check_operand(left)
            _check_operand(right)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check_operand(operand)
        case ast.Name() | ast.Constant():
            pass
        case _:
            _check_condition(node)


def _value(node: ast.expr, params: Params) -> _Value:  # noqa: PLR0911 - one arm per kind
    match node:
        case ast.Name(id=name):
            return params[name]
        case ast.Constant(value=value):
            assert isinstance(value, bool | int | float | str)  # noqa: S101 - _check_constant
            return value
        case ast.BoolOp(op=op, values=values):
            parts = (_truth(_value(value, params)) for value in values)
            return all(parts) if isinstance(op, ast.And) else any(parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _truth(_value(operand, params))
        case ast.UnaryOp(op=op, operand=operand):
            number = _number(_value(operand, params))
            return -number if isinstance(op, ast.USub) else number
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _number(_value(left, params)), _number(_value(right, params))
            return _ARITHMETIC[type(op)](a, b)
        case ast.Compare():
            return _compare(node, params)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(_scalar(_value(item, params)) for item in items)
        case _:  # pragma: no cover - refused by _children
            raise _CannotComputeError


def _compare(node: ast.Compare, params: Params) -> bool:
    left = _value(node.left, params)
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = _value(comparator, params)
        if not _holds(_COMPARISONS[type(op)], left, right):
            return False
        left = right
    return True


def _holds(op: str, left: _Value, right: _Value) -> bool:
    if op in _ORDER:
        return _ORDER[op](_number(left), _number(right))
    if isinstance(right, tuple):
        is_in = any(_equal(left, item) for item in right)
        return is_in == (op == "in")
    return _equal(left, right) == (op == "==")


def _equal(left: _Value, right: _Value) -> bool:
    """Numbers are equal by value, and never to a boolean or a text."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def _number(value: _Value) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _CannotComputeError
    return value


def _scalar(value: _Value) -> ParamValue:
    assert not isinstance(value, tuple)  # noqa: S101 - lists do not nest, see _check_operand
    return value


def _truth(value: _Value) -> bool:
    """Only a boolean is true or false."""
    if not isinstance(value, bool):
        raise _CannotComputeError
    return value
