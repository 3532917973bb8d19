"""Checks that programs may import: JSON schema, regular expression, arithmetic.

Runs inside the limited process, so it imports the standard library alone. Each check returns a truth
value for any answer: text that is not of the form asked for fails, it does not raise.
"""

import ast
import json
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

MOST_DIGITS = 1_000
"""Of a number while an expression is evaluated."""
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "integer": lambda v: (
        (isinstance(v, int) and not isinstance(v, bool))
        or (isinstance(v, float) and v.is_integer())
    ),
}


def regular_expression(pattern: str, answer: str) -> bool:
    """Whether the whole answer, less white space around it, matches."""
    return re.fullmatch(pattern, answer.strip()) is not None


def evaluate(expression: str) -> Fraction:
    """Return the exact value of an expression of numbers, ``+ - * /`` and brackets.

    Raises:
        ValueError: it holds anything else, divides by 0, or its numbers grow too long.
    """
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, RecursionError) as error:
        raise ValueError(f"no arithmetic expression: {type(error).__name__}") from None


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        found = _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _value(node.operand)
        found = -inner if isinstance(node.op, ast.USub) else inner
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        found = Fraction(repr(node.value))
    else:
        raise ValueError(f"no arithmetic expression: {type(node).__name__}")
    if found.numerator.bit_length() + found.denominator.bit_length() > MOST_DIGITS * 4:
        raise ValueError("the numbers of the expression grow too long")
    return found


def arithmetic(expression: str, answer: str) -> bool:
    """Whether an answer is the exact value of an expression.

    Raises:
        ValueError: the expression is none.
    """
    wanted = evaluate(expression)
    try:
        return evaluate(answer.replace(",", "").strip().removesuffix(".")) == wanted
    except ValueError:
        return False


def json_schema(schema: Any, answer: str) -> bool:
    """Whether an answer is JSON that obeys a schema, of the keywords of ``SCHEMA_KEYWORDS``.

    Raises:
        ValueError: the schema has another keyword.
    """
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    return obeys(schema, value)


def obeys(schema: Any, value: Any) -> bool:
    """Whether a value obeys a schema (JSON Schema 2020-12, the part of ``SCHEMA_KEYWORDS``).

    Raises:
        ValueError: the schema has another keyword.
    """
    if isinstance(schema, bool):
        return schema
    strange = set(schema) - SCHEMA_KEYWORDS.keys()
    if strange:
        known = ", ".join(sorted(SCHEMA_KEYWORDS))
        raise ValueError(f"keyword {sorted(strange)[0]!r} is not checked here; use {known}")
    return all(SCHEMA_KEYWORDS[word](schema, value) for word in schema)


def _is_type(schema: Any, value: Any) -> bool:
    wanted = schema["type"]
    return any(_TYPES[one](value) for one in ([wanted] if isinstance(wanted, str) else wanted))


def _same(a: Any, b: Any) -> bool:
    # JSON knows true from 1.
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def _has_required(schema: Any, value: Any) -> bool:
    return not isinstance(value, dict) or all(name in value for name in schema["required"])


def _obeys_properties(schema: Any, value: Any) -> bool:
    known = schema["properties"]
    return not isinstance(value, dict) or all(
        obeys(known[name], one) for name, one in value.items() if name in known
    )


def _obeys_additional(schema: Any, value: Any) -> bool:
    known = schema.get("properties", {})
    return not isinstance(value, dict) or all(
        obeys(schema["additionalProperties"], one)
        for name, one in value.items()
        if name not in known
    )


def _obeys_items(schema: Any, value: Any) -> bool:
    return not isinstance(value, list) or all(obeys(schema["items"], one) for one in value)


def _bound(word: str, kind: type | tuple[type, ...], size: Callable[[Any], Any],
           holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:  # fmt: skip
    """Return the check of a bound; values of other types obey it."""

    def check(schema: Any, value: Any) -> bool:
        if not isinstance(value, kind) or isinstance(value, bool):
            return True
        return holds(size(value), schema[word])

    return check


SCHEMA_KEYWORDS: dict[str, Callable[[Any, Any], bool]] = {
    "type": _is_type,
    "enum": lambda schema, value: any(_same(value, one) for one in schema["enum"]),
    "const": lambda schema, value: _same(value, schema["const"]),
    "required": _has_required,
    "properties": _obeys_properties,
    "additionalProperties": _obeys_additional,
    "items": _obeys_items,
    "minItems": _bound("minItems", list, len, operator.ge),
    "maxItems": _bound("maxItems", list, len, operator.le),
    "minLength": _bound("minLength", str, len, operator.ge),
    "maxLength": _bound("maxLength", str, len, operator.le),
    "minimum": _bound("minimum", (int, float), lambda v: v, operator.ge),
    "maximum": _bound("maximum", (int, float), lambda v: v, operator.le),
    "pattern": _bound("pattern", str, lambda v: v, lambda v, p: re.search(p, v) is not None),
    "anyOf": lambda schema, value: any(obeys(one, value) for one in schema["anyOf"]),
    "allOf": lambda schema, value: all(obeys(one, value) for one in schema["allOf"]),
    "oneOf": lambda schema, value: sum(obeys(one, value) for one in schema["oneOf"]) == 1,
    "not": lambda schema, value: not obeys(schema["not"], value),
    "title": lambda *_: True,
    "description": lambda *_: True,
}
"""Keyword → its check; all others are refused, so that none is ever silently skipped."""
