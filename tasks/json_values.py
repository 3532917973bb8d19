"""JSON values: conversion of Python results, dotted paths, and texts of values."""

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
"""Integers beyond this cannot be written as decimal text quickly, or at all."""

MOST_BILLED = 1e9
"""Dollars, or tokens, that one answer can have cost; who says more sends no bill."""

_PATH = re.compile(r"\[(-?\d+)\]|\.?([^.\[\]]+)")


class NotJsonError(TypeError):
    """A value cannot be carried by JSON."""

    def __init__(self, reason: str, *, error_type: str = "not_json") -> None:
        super().__init__(reason)
        self.error_type = error_type
        """``not_json``, or ``not_finite`` for NaN and infinity."""


class Missing(enum.Enum):
    """Type of ``MISSING``."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
"""What ``pick`` returns for a path that leads nowhere."""


def to_json(value: object) -> Json:
    """Return a value as JSON: numpy, dataclasses, pydantic models, enums and dates included.

    Raises:
        NotJsonError: the value is of a type that JSON has no form for, or not finite.
    """
    try:
        return _convert(value, "")
    except RecursionError:
        raise NotJsonError("it is nested too deeply or contains itself") from None


def _convert(value: object, where: str) -> Json:
    kind = type(value)
    if value is None or kind is bool:
        return cast("bool | None", value)
    if kind in _SCALARS:
        return _scalar(cast("str | int | float", value), where)
    if isinstance(value, Mapping):
        return {_key(key, where): _convert(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_convert(item, f"{where}[{i}]") for i, item in enumerate(value)]
    return _convert(_simpler(value, where), where)


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
    """Return an object's equivalent of a type nearer to JSON."""
    for kinds, simplify in _SIMPLER:
        if isinstance(value, kinds):
            return simplify(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    numpy = sys.modules.get("numpy")  # a value of numpy cannot be here before numpy is
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        simpler = value.tolist()
        if type(simpler) is not type(value):
            return simpler
    raise NotJsonError(
        f"{_at(where)} is of type {type(value).__module__}.{type(value).__qualname__}, "
        "which has no JSON form"
    )


# The first that fits counts: an enum of texts is its value, not a text.
_SIMPLER: tuple[tuple[type | tuple[type, ...], Callable[[Any], object]], ...] = (
    (enum.Enum, lambda value: value.value),
    (BaseModel, lambda value: value.model_dump(mode="json")),
    (str, str.__str__),
    (int, int),
    (float, float),
    ((datetime.datetime, datetime.date, datetime.time), lambda value: value.isoformat()),
    (decimal.Decimal, float),
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
    """Return a text that UTF-8 can carry: lone surrogates become U+FFFD."""
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
        ValueError: the path is empty or not of this form.
    """
    parts: list[str | int] = []
    position = 0
    while position < len(path):
        match = _PATH.match(path, position)
        if match is None or (position == 0 and path[0] == "."):
            raise ValueError(f"{path!r} is no dotted path such as `data.items[0].text`")
        index, name = match.groups()
        parts.append(int(index) if index is not None else name)
        position = match.end()
    if not parts:
        raise ValueError("the path is empty")
    return tuple(parts)


def pick(value: Json, path: str) -> "Json | Missing":
    """Return what a dotted path leads to, or ``MISSING``.

    A key that contains dots is found when it is written as the whole path.

    Raises:
        ValueError: the path is not of the dotted form.
    """
    if isinstance(value, dict) and path in value:
        return value[path]
    here: Json = value
    for part in parse_path(path):
        if isinstance(here, dict):
            if str(part) not in here:
                return MISSING
            here = here[str(part)]
        elif isinstance(here, list):
            try:
                here = here[int(part)]
            except (ValueError, IndexError):
                return MISSING
        else:
            return MISSING
    return here


def as_text(value: Json) -> str:
    """Return a value as people write it: texts as they are, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)


def answers_of(expected: Json) -> list[Json]:
    """Return the answers that an expected value calls right: each of a list, or the value itself."""
    return expected if isinstance(expected, list) and expected else [expected]


def names(words: Sequence[str]) -> str:
    """Return names as `a`, `b` and `c`."""
    quoted = [f"`{word}`" for word in words]
    return (
        " and ".join([", ".join(quoted[:-1]), quoted[-1]]) if len(quoted) > 1 else "".join(quoted)
    )
