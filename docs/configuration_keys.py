"""Reference of configuration keys, in the order of the models."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from convergence_core.config import Configuration
from convergence_core.config.base import Section
from convergence_core.config.schema import (
    fields_of,
    is_container,
    is_guessed,
    kinds_of,
    sections_of,
)

_LISTED_ELSEWHERE = frozenset({("JudgeMetric", "llm")})
"""Sections whose keys the reference lists elsewhere."""
MOST_NAMED = 6
"""Maximum number of types that the reference names before a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRow:
    """One key of the configuration, for the documentation."""

    key: str
    type: str
    default: str
    description: str


def reference() -> list[ReferenceRow]:
    """Return one row per key, in the order of the models, for ``docs/configuration.md``."""
    return list(_rows(Configuration, ""))


def _rows(model: type[Section], prefix: str) -> Iterator[ReferenceRow]:
    for key, info in fields_of(model).items():
        path = f"{prefix}{key}"
        below = sections_of(info.annotation)
        yield _row(path, [(model, info)])
        if get_origin(info.annotation) is dict and len(below) > 1:
            yield from _options_rows(below, path)
        elif below and (model.__name__, key) not in _LISTED_ELSEWHERE:
            entry = ".<name>" if is_container(info.annotation) else ""
            is_list = "list" in _type_name(info.annotation)
            yield from _rows(below[0], f"{path}{'[]' if is_list else entry}.")


def _options_rows(options: list[type[Section]], path: str) -> Iterator[ReferenceRow]:
    """Yield each key of a union once, with the options that have it."""
    for key in dict.fromkeys(key for option in options for key in fields_of(option)):
        holders = [option for option in options if key in fields_of(option)]
        kinds = [str(kind) for option in holders for kind in kinds_of(option)]
        is_general = len(holders) == len(options) or len(kinds) > MOST_NAMED
        name = "name" if is_general else "|".join(kinds)
        fields = [(holder, fields_of(holder)[key]) for holder in holders]
        yield _row(f"{path}.<{name}>.{key}", fields)
        for model in sections_of(fields[0][1].annotation):
            if (holders[0].__name__, key) not in _LISTED_ELSEWHERE:
                yield from _rows(model, f"{path}.<{name}>.{key}.")


def _row(path: str, fields: list[tuple[type[Section], FieldInfo]]) -> ReferenceRow:
    """Return a key's row, from one section or several options of a union."""
    (model, first), key = fields[0], path.rpartition(".")[2]
    texts = []
    for _, info in fields:
        below = sections_of(info.annotation)
        texts.append(info.description or (below[0].__doc__ if below else "") or "")
    return ReferenceRow(
        key=path,
        type=" | ".join(dict.fromkeys(_type_name(info.annotation) for _, info in fields)),
        default="see text" if is_guessed(model, key) else _default(first),
        description=" ".join(" ".join(dict.fromkeys(texts)).split()),
    )


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined:
        return "absent"
    if isinstance(value, Section):
        return "its defaults"
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


_TYPE_NAMES = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "FloatParam": "float",
    "IntParam": "int",
    "CategoricalParam": "categorical",
    "BooleanParam": "boolean",
    "TextParam": "text",
}


def _type_name(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_name(args[0])
    if origin is Literal:
        return " | ".join(str(x).lower() if isinstance(x, bool) else str(x) for x in args)
    if origin in {Union, UnionType}:
        return " | ".join(dict.fromkeys(_type_name(x) for x in args if x is not NoneType))
    if origin in {list, dict}:
        return f"{'list' if origin is list else 'mapping'} of {_type_name(args[-1])}"
    is_section = isinstance(annotation, type) and issubclass(annotation, Section)
    name = getattr(annotation, "__name__", "")
    return _TYPE_NAMES.get(name, "mapping" if is_section else "any JSON")
