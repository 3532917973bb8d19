"""JSON values: conversion of Python results, dotted paths, and display."""

import dataclasses
import datetime
import decimal
import enum
import functools
import json
import math
import re
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, cast

from pydantic import BaseModel

from convergence_core.records import Json

MAX_INT_BITS = 8192
"""Maximum number of bits: decimal conversion of longer integers is slow or fails."""

MOST_BILLED = 1e9
"""Maximum plausible cost (USD) or tokens of one answer; larger reports are not bills."""

_PATH = re.compile(r"\[(-?\d+)\]|\.?([^.\[\]]+)")
_MESSAGE = frozenset(
    {"role", "content", "tool_calls", "function_call", "refusal", "annotations", "audio", "name"}
)
"""Keys of a chat model's message."""
_FENCED = re.compile(r"\s*(`{3,}|~{3,})[^\n`]*\n(.*)\n[ \t]*\1\s*", re.DOTALL)
"""String that is one code fence, with its content."""


class NotJsonError(TypeError):
    """JSON cannot represent a value."""

    def __init__(self, reason: str, *, error_type: str = "not_json") -> None:
        super().__init__(reason)
        self.error_type = error_type
        """``not_json``, or ``not_finite`` for NaN and infinity."""


class Missing(enum.Enum):
    """Type of ``MISSING``."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
"""Result of ``pick`` for a missing path."""


def to_json(value: object, is_read: Callable[[str], bool] | None = None) -> Json:
    """Convert a value to JSON, including numpy, dataclasses, pydantic models, enums and dates.

    Args:
        value: the value.
        is_read: path of a number that is not finite, e.g. ``.scores[0]`` → whether that is an
            error; otherwise it becomes ``None``. Without this function each is an error.

    Raises:
        NotJsonError: the value's type has no JSON form, or a number is not finite.

    Example:
        >>> to_json({"scores": (1, 2.5), "at": date(2025, 1, 2)})
        {'scores': [1, 2.5], 'at': '2025-01-02'}
    """
    try:
        return _convert(value, "", is_read)
    except RecursionError:
        raise NotJsonError("it is nested too deeply or contains itself") from None


def _convert(value: object, where: str, is_read: Callable[[str], bool] | None) -> Json:
    kind = type(value)
    if value is None or kind is bool:
        return cast("bool | None", value)
    if kind in _SCALARS:
        if is_read and kind is float and not math.isfinite(cast("float", value)):
            return _scalar(cast("float", value), where) if is_read(where) else None
        return _scalar(cast("str | int | float", value), where)
    if isinstance(value, Mapping):
        return {
            _key(key, where): _convert(item, f"{where}.{key}", is_read)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_convert(item, f"{where}[{i}]", is_read) for i, item in enumerate(value)]
    return _convert(_simpler(value, where), where, is_read)


def _is_whole(value: decimal.Decimal) -> bool:
    """Return whether a decimal is an integer without a fraction, exact only as an ``int``."""
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and 0 <= exponent <= MAX_INT_BITS // 4


_SCALARS = frozenset({str, int, float})


def _scalar(value: str | float, where: str) -> Json:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int):
        if value.bit_length() > MAX_INT_BITS:
            raise NotJsonError(f"{_at(where)} is an integer of more than {MAX_INT_BITS} bits")
    elif not math.isfinite(value):
        raise NotJsonError(
            f"{_at(where)} is {value}, not a finite number", error_type="not_finite"
        )
    return value


def _simpler(value: object, where: str) -> object:
    """Return an equivalent of an object in a type closer to JSON."""
    for kinds, simplify in _SIMPLER:
        if isinstance(value, kinds):
            return simplify(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    numpy = sys.modules.get("numpy")  # numpy values exist only if numpy is loaded
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        is_short = value.dtype.kind == "f" and value.dtype.itemsize < 8
        # As written: np.float32(3.1) is 3.1, not 3.0999999046325684.
        simpler = value.astype(str).astype(float).tolist() if is_short else value.tolist()
        if type(simpler) is not type(value):
            return simpler
    raise NotJsonError(
        f"{_at(where)} is of type {type(value).__module__}.{type(value).__qualname__}, "
        "which has no JSON form"
    )


# The first match decides: a string enum converts to its value.
_SIMPLER: tuple[tuple[type | tuple[type, ...], Callable[[Any], object]], ...] = (
    (enum.Enum, lambda value: value.value),
    (BaseModel, lambda value: value.model_dump(mode="json")),
    (str, str.__str__),
    (int, int),
    (float, float),
    ((datetime.datetime, datetime.date, datetime.time), lambda value: value.isoformat()),
    (decimal.Decimal, lambda value: int(value) if _is_whole(value) else float(value)),
    ((uuid.UUID, PurePath), str),
)


def _key(key: object, where: str) -> str:
    if isinstance(key, str):
        return clean_text(str(key))
    if isinstance(key, int):
        return json.dumps(key)
    raise NotJsonError(f"{_at(where)} has a key of type {type(key).__name__}, not text")


def _at(where: str) -> str:
    return f"`{where.lstrip('.')}`" if where else "it"


def clean_text(text: str) -> str:
    """Replace lone surrogates by U+FFFD, so that UTF-8 can encode the text."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


@functools.lru_cache(maxsize=256)
def parse_path(path: str) -> tuple[str | int, ...]:
    """Split a dotted path such as ``choices[0].message.content`` into keys and indices.

    Raises:
        ValueError: the path is empty or malformed.

    Example:
        >>> parse_path("choices[0].text")
        ('choices', 0, 'text')
    """
    parts: list[str | int] = []
    position = 0
    while position < len(path):
        match = _PATH.match(path, position)
        if match is None or (position == 0 and path[0] == "."):
            raise ValueError(f"{path!r} is not a dotted path such as `data.items[0].text`")
        index, name = match.groups()
        parts.append(int(index) if index is not None else name)
        position = match.end()
    if not parts:
        raise ValueError("the path is empty")
    return tuple(parts)


def pick(value: Json, path: str) -> "Json | Missing":
    """Return the value at a dotted path, or ``MISSING``.

    A key with dots matches if it equals the whole path.

    Raises:
        ValueError: the path is malformed.

    Example:
        >>> pick({"choices": [{"text": "hi"}]}, "choices[0].text")
        'hi'
    """
    if isinstance(value, dict) and path in value:
        return value[path]
    value_at: Json = value
    for part in parse_path(path):
        if isinstance(value_at, dict):
            if str(part) not in value_at:
                return MISSING
            value_at = value_at[str(part)]
        elif isinstance(value_at, list):
            try:
                value_at = value_at[int(part)]
            except (ValueError, IndexError):
                return MISSING
        else:
            return MISSING
    return value_at


def json_in(text: str) -> "Json | Missing":
    """Return the JSON of a whole string or of its single code fence; else ``MISSING``."""
    fenced = _FENCED.fullmatch(text)
    try:
        found: Json = json.loads(fenced[2] if fenced else text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return MISSING
    return found


def refuse_constant(name: str) -> None:
    """Refuse NaN and infinities while JSON is parsed.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{name} is no number of JSON")


def field_of(value: Json, path: str) -> "Json | Missing":
    """Return the value at a dotted path of an answer or an expected value; see ``pick``.

    A string is parsed as JSON first; see ``json_in``.

    Raises:
        ValueError: the path is malformed.
    """
    found = json_in(value) if isinstance(value, str) else value
    return MISSING if isinstance(found, Missing) else pick(found, path)


def mapping(value: Json) -> dict[str, Json]:
    """Return a mapping; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def mappings(value: Json) -> list[dict[str, Json]]:
    """Return the mappings of a list; none for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def first_of(value: Json) -> dict[str, Json]:
    """Return the first element of a list if it is a mapping, else an empty one."""
    return mapping(value[0]) if isinstance(value, list) and value else {}


def answer_text(value: Json) -> Json:
    """Return the text of a chat model's answer with tool calls or whole message; others stay unchanged."""
    if not isinstance(value, dict) or not value.keys() <= _MESSAGE:
        return value
    is_message = value.get("role") == "assistant" and "content" in value
    return value.get("content") or "" if is_message or "tool_calls" in value else value


def answer_field(answer: Json, path: str) -> "Json | Missing":
    """Return the value at a path of an answer; see ``field_of``.

    The path ``content`` of a string is the string.
    """
    found, text = field_of(answer, path), answer_text(answer)
    return text if found is MISSING and path == "content" and isinstance(text, str) else found


def as_text(value: Json) -> str:
    """Return a value for display: strings unchanged, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)


def says_failed(answer: Json) -> bool:
    """Return whether an answer reports a failure: its `success` is ``false``, even as a string.

    0 may be a count, so it reports a failure only with an `error` that is not a number.
    """
    if not isinstance(answer, dict):
        return False
    success, error = as_text(answer.get("success")).strip().lower(), answer.get("error")
    has_error = isinstance(error, (str, dict, list)) and bool(error)
    return success == "false" or (has_error and success in ("0", "0.0"))


def answers_of(expected: Json) -> list[Json]:
    """Return the accepted answers: the items of an expected list, or the value itself."""
    return expected if isinstance(expected, list) and expected else [expected]


def names(words: Sequence[str]) -> str:
    """Return names as `a`, `b` and `c`."""
    quoted = [f"`{word}`" for word in words]
    return " and ".join(filter(None, [", ".join(quoted[:-1]), *quoted[-1:]]))
