"""Tree of the models: sections by path, reference of keys, JSON Schema.

Rules between keys are not in the schema; ``convergence validate`` knows them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from convergence_core.config.api import HOSTED_KINDS
from convergence_core.config.base import Section
from convergence_core.config.evaluation import MetricConfig
from convergence_core.config.models import Configuration
from convergence_core.config.source import Path

ALSO_READ: Mapping[str, tuple[str, ...]] = {
    "SocietyConfig": ("llm",),
    "LlmConfig": ("base_url",),
}
"""Keys that ``normalize`` reads beside a section's own."""
GUESSED: frozenset[tuple[str, str]] = frozenset(
    {("ApiConfig", "kind"), ("BaseMetric", "type"), ("BaseMetric", "direction")}
)
"""Fields that may be left out of a file although the model requires them."""

PARAMETER_TYPES = {"continuous": "float", "bool": "boolean"}
DIRECTIONS = {"higher_is_better": "higher", "lower_is_better": "lower"}
"""Words that are read too, and ours, here and above."""

_LISTED_ELSEWHERE = frozenset({("JudgeMetric", "llm")})
"""Sections whose keys the reference lists at another place."""
MOST_NAMED = 6
"""Most types that the reference names before a key."""


# -- sections and keys


def sections_of(annotation: Any) -> list[type[Section]]:
    """Return the sections an annotation allows, at any depth of unions and containers."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    if get_origin(annotation) is Annotated:
        return sections_of(get_args(annotation)[0])
    return [section for item in get_args(annotation) for section in sections_of(item)]


def fields_of(model: type[Section]) -> dict[str, FieldInfo]:
    """Return a section's fields by the key they have in a file."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def is_default(holder: Section, key: str) -> bool:
    """Whether a section's key has its default value, written or not."""
    info = fields_of(type(holder))[key]
    default: Any = info.get_default(call_default_factory=True, validated_data={})
    return bool(getattr(holder, key) == default)


def known_keys(models: list[type[Section]]) -> list[str]:
    """Return the keys that any of these sections reads, in their order."""
    keys: dict[str, None] = {}
    for model in models:
        keys.update(dict.fromkeys([*fields_of(model), *ALSO_READ.get(model.__name__, ())]))
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
            models = [section for info in infos for section in sections_of(info.annotation)]
            inside = any(_is_container(info.annotation) for info in infos)
        if len(models) > 1 and not inside:
            kind = data.get("type") if isinstance(data, dict) else None
            models = [model for model in models if kind in kinds_of(model)] or models
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


def kinds_of(model: type[Section]) -> tuple[Any, ...]:
    """Return the values of ``type`` that choose a section among the options of a union."""
    info = model.model_fields.get("type")
    return get_args(info.annotation) if info else ()


METRIC_TYPES: tuple[str, ...] = tuple(
    kind for model in sections_of(MetricConfig) for kind in kinds_of(model)
)
"""Types of metrics."""


# -- the reference


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRow:
    """One key of the configuration, for the documentation."""

    key: str
    type: str
    default: str
    description: str


@cache
def homes() -> dict[str, tuple[str, ...]]:
    """Return, for each key, the sections (as dotted paths) where it belongs."""
    places: dict[str, list[str]] = {}
    for row in reference():
        section, _, key = row.key.rpartition(".")
        if "<" not in section:
            places.setdefault(key, []).append(section)
    return {key: tuple(dict.fromkeys(sections)) for key, sections in places.items()}


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
            entry = ".<name>" if _is_container(info.annotation) else ""
            is_list = "list" in _type_name(info.annotation)
            yield from _rows(below[0], f"{path}{'[]' if is_list else entry}.")


def _options_rows(options: list[type[Section]], path: str) -> Iterator[ReferenceRow]:
    """Yield each key of a union's options once, under the options that have it."""
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
    """Return the row of a key, whose field stands in one section or in several options of a union."""
    (model, first), key = fields[0], path.rpartition(".")[2]
    texts = []
    for _, info in fields:
        below = sections_of(info.annotation)
        texts.append(info.description or (below[0].__doc__ if below else "") or "")
    return ReferenceRow(
        key=path,
        type=" | ".join(dict.fromkeys(_type_name(info.annotation) for _, info in fields)),
        default="see text" if _is_guessed(model, key) else _default(first),
        description=" ".join(" ".join(dict.fromkeys(texts)).split()),
    )


def _is_guessed(model: type[Section], key: str) -> bool:
    return any((base.__name__, key) in GUESSED for base in model.__mro__)


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


# -- the JSON Schema

Schema: TypeAlias = dict[str, Any]


def json_schema() -> Schema:
    """Return the JSON Schema (2020-12) of a configuration file, with the spellings that are read too."""
    schema = Configuration.model_json_schema(by_alias=True, mode="validation")
    definitions: Schema = schema["$defs"]
    definitions["ApiConfig"]["required"].remove("kind")
    _patch_api(definitions)
    _patch_parameters(definitions)
    _patch_evaluation(definitions)
    _patch_calls(schema, definitions)
    for holder in (schema, *definitions.values()):
        _allow_empty_sections(holder)
        _join_lines(holder)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The Convergence: optimization.yaml",
        "description": "What is optimized, over which parameters, and how it is judged.",
    }
    return head | {key: value for key, value in schema.items() if key not in head}


def _any_of(description: str, *options: Schema) -> Schema:
    return {"anyOf": [*options], "description": description}


def _ref(model: str) -> Schema:
    return {"$ref": f"#/$defs/{model}"}


def _allow_empty_sections(holder: Schema) -> None:
    """A section whose keys are all commented out is ``null`` in YAML, and takes its defaults."""
    for key, item in holder.get("properties", {}).items():
        if "$ref" in item and key not in holder.get("required", ()):
            holder["properties"][key] = {
                "anyOf": [{"$ref": item["$ref"]}, {"type": "null"}],
                **{name: value for name, value in item.items() if name != "$ref"},
            }


def _join_lines(holder: Schema) -> None:
    """Descriptions are docstrings, whose lines end where our source's do."""
    for item in (holder, *holder.get("properties", {}).values()):
        if "description" in item:
            item["description"] = " ".join(item["description"].split())


def _patch_api(definitions: Schema) -> None:
    api = definitions["ApiConfig"]
    hosted = {"properties": {"kind": {"enum": sorted(HOSTED_KINDS)}}, "required": ["kind"]}
    api["anyOf"] = [*({"required": [key]} for key in ("endpoint", "models", "function")), hosted]


def _patch_parameters(definitions: Schema) -> None:
    parameters = definitions["SearchSpaceConfig"]["properties"]["parameters"]
    choice = definitions["CategoricalParam"]["properties"]["choices"]["items"]
    options = ["FloatParam", "IntParam", "CategoricalParam", "BooleanParam", "TextParam"]
    for model in options:
        when = definitions[model]["properties"]["when"]
        when["additionalProperties"] = {
            "anyOf": [*choice["anyOf"], when["additionalProperties"]],
        }
    for model, spelling, base in (
        ("ContinuousParam", "continuous", "FloatParam"),
        ("BoolParam", "bool", "BooleanParam"),
    ):
        schema = definitions[base]
        properties = {**schema["properties"], "type": {"const": spelling, "type": "string"}}
        definitions[model] = {**schema, "title": model, "properties": properties}
        options.append(model)
    plain = {"type": "array", "items": choice, "minItems": 1}
    parameters["additionalProperties"] = {"anyOf": [*map(_ref, options), plain]}
    parameters["propertyNames"] = {"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$"}


def _patch_evaluation(definitions: Schema) -> None:
    evaluation = definitions["EvaluationConfig"]["properties"]
    cases = definitions["TestCasesConfig"]["properties"]
    inline = next(item for item in cases["inline"]["anyOf"] if item.get("type") == "array")
    meaning = "Where the test cases are: a path, a list, or a mapping."
    path = {"type": "string", "minLength": 1}
    evaluation["test_cases"] = _any_of(meaning, _ref("TestCasesConfig"), path, inline)
    metrics = evaluation["metrics"]
    metrics["additionalProperties"] = {"anyOf": metrics["additionalProperties"]["oneOf"]}
    meaning = definitions["TextMetric"]["properties"]["type"]
    for model in sections_of(MetricConfig):
        schema = definitions[model.__name__]
        schema["required"] = [key for key in schema["required"] if not _is_guessed(model, key)]
        kinds = [*kinds_of(model), *DIRECTIONS]
        schema["properties"]["type"] = {**meaning, "enum": kinds}


def _patch_calls(schema: Schema, definitions: Schema) -> None:
    """Plain epochs, ``llm`` within ``society``, and judges that complete theirs from it."""
    null = {"type": "null"}
    cache_config, llm = definitions["CacheConfig"], definitions["LlmConfig"]
    epoch = cache_config["properties"]["epoch"]
    text = {key: epoch.pop(key) for key in ("type", "pattern")}
    plain = [text, {"const": False, "description": "The `off` of YAML 1.1."}]
    epoch["anyOf"] = plain
    schema["properties"]["cache"] = _any_of(
        cache_config["description"], _ref("CacheConfig"), *plain, null
    )
    llm["properties"]["base_url"] = _any_of(
        "Same as `endpoint`.", *llm["properties"]["endpoint"]["anyOf"]
    )
    definitions["SocietyConfig"]["properties"]["llm"] = _any_of(
        "Same as `llm` at top level.", _ref("LlmConfig"), null
    )
    partial = {key: value for key, value in llm.items() if key != "required"}
    definitions["JudgeLlmConfig"] = {**partial, "title": "JudgeLlmConfig"}
    definitions["JudgeMetric"]["properties"]["llm"]["anyOf"][0] = _ref("JudgeLlmConfig")
