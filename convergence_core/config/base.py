"""Base of all sections of a configuration, and the types of their fields."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

Choice: TypeAlias = str | int | float | bool
"""Scalar value of a parameter, with its type as written."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Identifier: letters, digits and underscores, not starting with a digit."""

EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
"""Name of an environment variable, never its value."""

Text = Annotated[str, Field(min_length=1)]
"""Non-empty text."""

FunctionPath = Annotated[str, Field(pattern=r"^.+:[A-Za-z_][A-Za-z0-9_.]*$")]
"""``module:name`` or ``path/to/file.py:name``."""


PluginName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")]
"""Name of an entry point of an installed package."""


class Section(BaseModel):
    """Part of the configuration: frozen, strict in types, without unknown keys."""

    nullable: ClassVar[frozenset[str]] = frozenset()
    """Keys for which ``null`` is a distinct value."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_by_alias=True,
        validate_by_name=False,
        serialize_by_alias=True,
        ser_json_inf_nan="constants",
        protected_namespaces=(),
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, value: Any) -> Any:
        """Treat an empty key (``null``) as missing, so that it takes its default."""
        if not isinstance(value, dict):
            return value
        known = {info.alias or name for name, info in cls.model_fields.items()} - cls.nullable
        return {key: item for key, item in value.items() if item is not None or key not in known}


@dataclass(frozen=True, slots=True)
class Readers:
    """Kinds (types) that read a key, or the keys of a section."""

    kinds: tuple[str, ...]


def unread_keys(
    holder: Section, kind: str, inherited: Readers | None = None
) -> Iterator[tuple[tuple[str, ...], Readers]]:
    """Yield each key below a section that is set but not read by its kind, with its readers."""
    for name, info in type(holder).model_fields.items():
        readers = next((m for m in info.metadata if isinstance(m, Readers)), inherited)
        default = info.get_default(call_default_factory=True, validated_data={})
        value, key = getattr(holder, name), info.alias or name
        if isinstance(value, Section) and isinstance(default, Section):
            yield from (((key, *path), m) for path, m in unread_keys(value, kind, readers))
        elif readers is not None and kind not in readers.kinds and value != default:
            yield (key,), readers
