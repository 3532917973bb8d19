"""Tree of the models: sections by path, JSON Schema.

The schema excludes rules between keys, which ``convergence validate`` checks.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from convergence_core.config.api import HOSTED_KINDS
from convergence_core.config.base import Section
from convergence_core.config.evaluation import MetricConfig
from convergence_core.config.models import Configuration
from convergence_core.config.source import Path

ALSO_READ: Mapping[str, tuple[str, ...]] = {
    "SocietyConfig": ("llm",),
    "LlmConfig": ("base_url",),
}
"""Keys that ``normalize`` reads besides a section's fields."""
GUESSED: frozenset[tuple[str, str]] = frozenset(
    {("ApiConfig", "kind"), ("BaseMetric", "type"), ("BaseMetric", "direction")}
)
"""Fields that a file may omit although the model requires them."""

PARAMETER_TYPES = {"continuous": "float", "bool": "boolean"}
DIRECTIONS = {"higher_is_better": "higher", "lower_is_better": "lower"}
"""Alternative spellings → the models' words, here and above."""


# -- sections and keys


def sections_of(annotation: Any) -> list[type[Section]]:
    """Return the sections that an annotation allows, at any depth of unions and containers."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    if get_origin(annotation) is Annotated:
        return sections_of(get_args(annotation)[0])
    return [section for item in get_args(annotation) for section in sections_of(item)]


def fields_of(model: type[Section]) -> dict[str, FieldInfo]:
    """Return key in a file → field of a section."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def is_default(holder: Section, key: str) -> bool:
    """Return whether a section's key has its default value, explicit or not."""
    info = fields_of(type(holder))[key]
    default: Any = info.get_default(call_default_factory=True, validated_data={})
    return bool(getattr(holder, key) == default)


def known_keys(models: list[type[Section]]) -> list[str]:
    """Return the keys of these sections, in order."""
    keys: dict[str, None] = {}
    for model in models:
        keys.update(dict.fromkeys([*fields_of(model), *ALSO_READ.get(model.__name__, ())]))
    return list(keys)


def sections_at(path: Path, data: Any) -> list[type[Section]]:
    """Return the possible sections at a path; several if ``type`` selects one but is wrong."""
    models: list[type[Section]] = [Configuration]
    inside = False  # between the name of a container's field and its entry
    for part in path:
        data = value_at(data, (part,))
        if inside:
            inside = False
        else:
            infos = [fields_of(model)[str(part)] for model in models if part in fields_of(model)]
            models = [section for info in infos for section in sections_of(info.annotation)]
            inside = any(is_container(info.annotation) for info in infos)
        if len(models) > 1 and not inside:
            kind = data.get("type") if isinstance(data, dict) else None
            models = [model for model in models if kind in kinds_of(model)] or models
    return models


def has_part(container: Any, part: str | int) -> bool:
    """Return whether plain data have a key or an index."""
    if isinstance(container, list):
        return isinstance(part, int) and part < len(container)
    return isinstance(container, dict) and part in container


def value_at(data: Any, path: Path) -> Any:
    """Return the value at a path, ``None`` when there is none."""
    for part in path:
        if not has_part(data, part):
            return None
        data = data[part]
    return data


def is_container(annotation: Any, kinds: Collection[type] = (dict, list)) -> bool:
    """Return whether an annotation allows a mapping by name or a list."""
    origin = get_origin(annotation)
    if origin is Annotated or origin in {Union, UnionType}:
        return any(is_container(item, kinds) for item in get_args(annotation))
    return origin in kinds


def kinds_of(model: type[Section]) -> tuple[Any, ...]:
    """Return the values of ``type`` that select a section in a union."""
    info = model.model_fields.get("type")
    return get_args(info.annotation) if info else ()


METRIC_TYPES: tuple[str, ...] = tuple(
    kind for model in sections_of(MetricConfig) for kind in kinds_of(model)
)
"""Types of metrics."""


@cache
def homes() -> dict[str, tuple[str, ...]]:
    """Return key → sections with that key, as dotted paths."""
    places: dict[str, dict[str, None]] = {}
    for section, key in _keys(Configuration, ""):
        places.setdefault(key, {})[section] = None
    return {key: tuple(sections) for key, sections in places.items()}


def _keys(model: type[Section], section: str) -> Iterator[tuple[str, str]]:
    """Yield section and key of all fields outside mappings by name."""
    for key, info in fields_of(model).items():
        yield section, key
        below = sections_of(info.annotation)
        if below and not is_container(info.annotation, {dict}):
            entry = "[]" if is_container(info.annotation) else ""
            yield from _keys(below[0], f"{section}.{key}{entry}".lstrip("."))


def is_guessed(model: type[Section], key: str) -> bool:
    """Return whether a file may omit a field that its model requires."""
    return any((base.__name__, key) in GUESSED for base in model.__mro__)


# -- the JSON Schema

Schema: TypeAlias = dict[str, Any]


def json_schema() -> Schema:
    """Return the JSON Schema (2020-12) of a configuration file, with alternative spellings."""
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
    """Allow ``null`` for sections: YAML reads one with only comments as ``null``."""
    for key, item in holder.get("properties", {}).items():
        if "$ref" in item and key not in holder.get("required", ()):
            holder["properties"][key] = {
                "anyOf": [{"$ref": item["$ref"]}, {"type": "null"}],
                **{name: value for name, value in item.items() if name != "$ref"},
            }


def _join_lines(holder: Schema) -> None:
    """Join the lines of descriptions, which are docstrings."""
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
    for model, *spellings in (
        ("FloatParam", "float", "continuous"),
        ("BooleanParam", "boolean", "bool"),
    ):
        kind = definitions[model]["properties"]["type"]
        del kind["const"]
        kind["enum"] = spellings
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
        schema["required"] = [key for key in schema["required"] if not is_guessed(model, key)]
        kinds = [*kinds_of(model), *DIRECTIONS]
        schema["properties"]["type"] = {**meaning, "enum": kinds}


def _patch_calls(schema: Schema, definitions: Schema) -> None:
    """Allow plain epochs, ``llm`` within ``society``, and judges that complete theirs from it."""
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
