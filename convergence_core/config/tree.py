"""Walks the tree of models: which section stands at a path, and which keys it knows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from convergence_core.config.base import Section
from convergence_core.config.models import Configuration
from convergence_core.config.source import Path

ALSO_READ: Mapping[str, tuple[str, ...]] = {
    "ApiConfig": ("adapter_enabled", "mock_mode"),
    "AuthConfig": ("api_key_header",),
    "CategoricalParam": ("values",),
    "TestCasesConfig": ("augmentation",),
    "MetricConfig": ("threshold", "budget_per_call"),
    "SocietyConfig": ("llm",),
    "LlmConfig": ("base_url",),
}
"""Keys of the original that ``normalize`` reads beside a section's own."""

GUESSED: frozenset[tuple[str, str]] = frozenset(
    {("ApiConfig", "kind"), ("MetricConfig", "type"), ("MetricConfig", "direction")}
)
"""Fields that may be left out of a file although the model requires them."""


_LISTED_ELSEWHERE = frozenset({("MetricConfig", "llm")})
"""Sections whose keys the reference lists at another place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRow:
    """One key of the configuration, for the documentation."""

    key: str
    type: str
    default: str
    description: str


def sections_of(annotation: Any) -> list[type[Section]]:
    """Return the sections an annotation allows, at any depth of unions and containers."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    if get_origin(annotation) is Annotated:
        return sections_of(get_args(annotation)[0])
    return [found for item in get_args(annotation) for found in sections_of(item)]


def key_of(name: str, info: FieldInfo) -> str:
    """Return the key a field has in a file."""
    return info.alias or name


def fields_of(model: type[Section]) -> dict[str, FieldInfo]:
    """Return a section's fields by the key they have in a file."""
    return {key_of(name, info): info for name, info in model.model_fields.items()}


def is_default(holder: Section, key: str) -> bool:
    """Whether a section's key has its default value, written or not."""
    info = fields_of(type(holder))[key]
    default: Any = info.get_default(call_default_factory=True, validated_data={})
    return bool(getattr(holder, key) == default)


def known_keys(models: list[type[Section]]) -> list[str]:
    """Return the keys that any of these sections reads, in their order."""
    keys: dict[str, None] = {}
    for model in models:
        keys.update(dict.fromkeys(fields_of(model)))
        keys.update(dict.fromkeys(ALSO_READ.get(model.__name__, ())))
    return list(keys)


def sections_at(path: Path, data: Any) -> list[type[Section]]:
    """Return the sections that may stand at a path; several where ``type`` decides and is wrong."""
    models: list[type[Section]] = [Configuration]
    inside = False  # between the name of a container's field and its entry
    for part in path:
        data = _child(data, part)
        if inside:
            inside = False
        else:
            infos = [fields_of(model)[str(part)] for model in models if part in fields_of(model)]
            models = [found for info in infos for found in sections_of(info.annotation)]
            inside = any(_is_container(info.annotation) for info in infos)
        if len(models) > 1 and not inside:
            models = _by_type(models, data)
    return models


def _child(data: Any, part: str | int) -> Any:
    if isinstance(data, dict):
        return data.get(part)
    if isinstance(data, list) and isinstance(part, int) and part < len(data):
        return data[part]
    return None


def _is_container(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated or origin in {Union, UnionType}:
        return any(_is_container(item) for item in get_args(annotation))
    return origin in {dict, list}


def _by_type(models: list[type[Section]], data: Any) -> list[type[Section]]:
    kind = data.get("type") if isinstance(data, dict) else None
    return [model for model in models if kind in _kinds(model)] or models


def _kinds(model: type[Section]) -> tuple[Any, ...]:
    info = model.model_fields.get("type")
    return get_args(info.annotation) if info else ()


@cache
def homes() -> dict[str, tuple[str, ...]]:
    """Return, for each key, the sections (as dotted paths) where it belongs."""
    found: dict[str, list[str]] = {}
    for row in reference():
        section, _, key = row.key.rpartition(".")
        if "<" not in section:
            found.setdefault(key, []).append(section)
    return {key: tuple(dict.fromkeys(places)) for key, places in found.items()}


def reference() -> list[ReferenceRow]:
    """Return one row per key, in the order of the models, for ``docs/configuration.md``."""
    return list(_rows(Configuration, ""))


def _rows(model: type[Section], prefix: str) -> Iterator[ReferenceRow]:
    for key, info in fields_of(model).items():
        path = f"{prefix}{key}"
        below = sections_of(info.annotation)
        guessed = (model.__name__, key) in GUESSED
        text = info.description or (below[0].__doc__ if below else "") or ""
        yield ReferenceRow(
            key=path,
            type=_type_name(info.annotation),
            default="see text" if guessed else _default(info),
            description=" ".join(text.split()),
        )
        entry = "<name>" if _is_container(info.annotation) else ""
        if get_origin(info.annotation) is dict and len(below) > 1:
            for option in below:
                yield from _rows(option, f"{path}.<{'|'.join(map(str, _kinds(option)))}>.")
        elif below and (model.__name__, key) not in _LISTED_ELSEWHERE:
            is_list = "list" in _type_name(info.annotation)
            yield from _rows(
                below[0], f"{path}[]." if is_list else f"{path}.{entry}.".replace("..", ".")
            )


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined:
        return "absent"
    if isinstance(value, Section):
        return "its defaults"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if not isinstance(value, str) else (value or '""')


def _type_name(annotation: Any) -> str:  # noqa: PLR0911 - one branch per kind of type
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_name(args[0])
    if origin is Literal:
        return " | ".join(
            str(item).lower() if isinstance(item, bool) else str(item) for item in args
        )
    if origin in {Union, UnionType}:
        names = dict.fromkeys(_type_name(item) for item in args if item is not NoneType)
        return " | ".join(names)
    if origin is list:
        return f"list of {_type_name(args[0])}"
    if origin is dict:
        return f"mapping of {_type_name(args[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return _MAPPINGS.get(annotation.__name__, "mapping")
    names_of = {"str": "text", "int": "integer", "float": "number", "bool": "boolean"}
    return names_of.get(getattr(annotation, "__name__", ""), "any JSON")


_MAPPINGS = {
    "FloatParam": "float",
    "IntParam": "int",
    "CategoricalParam": "categorical",
    "BooleanParam": "boolean",
    "TextParam": "text",
}
