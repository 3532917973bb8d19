"""The configuration's JSON Schema for editors: our keys, and the spellings of the original.

Rules between keys are not in it; ``convergence validate`` knows them.
"""

from typing import Any

from convergence_core.config.api import HOSTED_KINDS
from convergence_core.config.models import Configuration
from convergence_core.config.normalize import ALGORITHMS, DIRECTIONS, VISUALIZATIONS
from convergence_core.config.tree import GUESSED

Schema = dict[str, Any]


def json_schema() -> Schema:
    """Return the JSON Schema (2020-12) of a configuration file."""
    schema = Configuration.model_json_schema(by_alias=True, mode="validation")
    definitions: Schema = schema["$defs"]
    for model, key in GUESSED:
        definitions[model]["required"].remove(key)
    _patch_api(definitions)
    _patch_parameters(definitions)
    _patch_evaluation(definitions)
    _patch_calls(schema, definitions)
    optimization = definitions["OptimizationConfig"]["properties"]
    optimization["algorithm"]["enum"] += list(ALGORITHMS)
    definitions["OutputConfig"]["properties"]["visualizations"]["items"]["enum"] += VISUALIZATIONS
    schema["properties"]["legacy"] = _only_disabled("Of the original; only switched off.")
    for holder in (schema, *definitions.values()):
        _allow_empty_sections(holder)
        _join_lines(holder)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The Convergence: optimization.yaml",
        "description": "What is optimized, over which parameters, and how it is judged.",
    }
    return head | {key: value for key, value in schema.items() if key not in head}


def _only_disabled(description: str) -> Schema:
    return {
        "description": description,
        "type": "object",
        "properties": {"enabled": {"const": False}},
        "required": ["enabled"],
        "additionalProperties": False,
    }


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
    for key in ("adapter_enabled", "mock_mode"):
        api["properties"][key] = {"const": False, "description": "Of the original; only `false`."}
    api["anyOf"] = [{"required": [key]} for key in ("endpoint", "models", "function")]
    own = {"properties": {"kind": {"enum": sorted(HOSTED_KINDS)}}, "required": ["kind"]}
    api["anyOf"].append(own)
    auth = definitions["AuthConfig"]["properties"]
    auth["api_key_header"] = {**auth["header_name"], "description": "Same as `header_name`."}
    auth["api_key_header"].pop("default", None)


def _patch_parameters(definitions: Schema) -> None:
    parameters = definitions["SearchSpaceConfig"]["properties"]["parameters"]
    choice = definitions["CategoricalParam"]["properties"]["choices"]["items"]
    options = []
    for model in ("FloatParam", "IntParam", "CategoricalParam", "BooleanParam", "TextParam"):
        when = definitions[model]["properties"]["when"]
        when["additionalProperties"] = {
            "anyOf": [*choice["anyOf"], when["additionalProperties"]],
        }
        options.append({"$ref": f"#/$defs/{model}"})
    for model, spelling, base in (
        ("ContinuousParam", "continuous", "FloatParam"),
        ("DiscreteParam", "discrete", "IntParam"),
        ("BoolParam", "bool", "BooleanParam"),
    ):
        definitions[model] = _respelt(definitions[base], model, spelling)
        options.append({"$ref": f"#/$defs/{model}"})
    for model, spelling, key in (
        ("ValuesParam", "categorical", "values"),
        ("DiscreteValuesParam", "discrete", "values"),
        ("DiscreteChoicesParam", "discrete", "choices"),
    ):
        respelt = _respelt(definitions["CategoricalParam"], model, spelling)
        respelt["properties"][key] = respelt["properties"].pop("choices")
        respelt["required"] = ["type", key]
        definitions[model] = respelt
        options.append({"$ref": f"#/$defs/{model}"})
    plain = {"type": "array", "items": choice, "minItems": 1}
    parameters["additionalProperties"] = {"anyOf": [*options, plain]}
    parameters["propertyNames"] = {"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$"}


def _respelt(base: Schema, title: str, spelling: str) -> Schema:
    properties = {**base["properties"], "type": {"const": spelling, "type": "string"}}
    return {**base, "title": title, "properties": properties}


def _patch_evaluation(definitions: Schema) -> None:
    evaluation = definitions["EvaluationConfig"]["properties"]
    cases = definitions["TestCasesConfig"]["properties"]
    inline = next(item for item in cases["inline"]["anyOf"] if item.get("type") == "array")
    evaluation["test_cases"] = {
        "anyOf": [{"$ref": "#/$defs/TestCasesConfig"}, {"type": "string", "minLength": 1}, inline],
        "description": "Where the test cases are: a path, a list, or a mapping.",
    }
    cases["augmentation"] = {
        "description": "Of the original; only switched off.",
        "type": "object",
        "properties": {"enabled": {"const": False}},
    }
    metric = definitions["MetricConfig"]["properties"]
    metric["type"]["enum"] += list(DIRECTIONS)
    metric["function"]["anyOf"].append({"enum": ["custom", "exact_match", "similarity"]})
    for key, meaning in (
        ("threshold", "Of the original: `scale: {good: 0, bad: …}` of `latency_ms`."),
        ("budget_per_call", "Of the original: `scale: {good: 0, bad: …}` of `cost_usd`."),
    ):
        metric[key] = {"type": "number", "exclusiveMinimum": 0, "description": meaning}


def _patch_calls(schema: Schema, definitions: Schema) -> None:
    """Plain epochs, the original's place for ``llm``, and judges that complete theirs from it."""
    cache = definitions["CacheConfig"]["properties"]
    text = {key: cache["epoch"].pop(key) for key in ("type", "pattern")}
    plain = [text, {"const": False, "description": "The `off` of YAML 1.1."}]
    cache["epoch"]["anyOf"] = plain
    schema["properties"]["cache"] = {
        "anyOf": [{"$ref": "#/$defs/CacheConfig"}, *plain, {"type": "null"}],
        "description": definitions["CacheConfig"]["description"],
    }
    llm = definitions["LlmConfig"]
    llm["properties"]["base_url"] = {
        "anyOf": llm["properties"]["endpoint"]["anyOf"],
        "description": "Of the original: same as `endpoint`.",
    }
    definitions["SocietyConfig"]["properties"]["llm"] = {
        "anyOf": [{"$ref": "#/$defs/LlmConfig"}, {"type": "null"}],
        "description": "Of the original: same as `llm` at top level.",
    }
    partial = {key: value for key, value in llm.items() if key != "required"}
    definitions["JudgeLlmConfig"] = {**partial, "title": "JudgeLlmConfig"}
    metric = definitions["MetricConfig"]["properties"]["llm"]
    metric["anyOf"][0] = {"$ref": "#/$defs/JudgeLlmConfig"}
