"""The JSON Schema for editors agrees with what is accepted; the reference knows every key."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from convergence_core.config import json_schema, parse_configuration
from convergence_core.config.source import read_yaml
from docs.configuration_keys import reference
from tests.support.config_examples import EXAMPLES

SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

ORIGINAL = """\
api:
  name: openai
  models: {a: {endpoint: "https://x.example.com"}}
  auth: {type: api_key, token_env: K, header_name: api-key}
search_space:
  parameters:
    model: {type: categorical, choices: [a]}
    t: {type: continuous, min: 0.0, max: 1.0, step: 0.1}
    n: {type: int, min: 1, max: 5}
    k: {type: categorical, choices: [1, 2], when: {model: a}}
    b: {type: bool}
    plain: [1, x, true]
evaluation:
  test_cases: {path: x.json}
  metrics:
    quality: {weight: 0.4, type: higher_is_better, function: "m:f"}
    latency_ms: {weight: 0.3, type: lower_is_better}
    cost_usd: {weight: 0.3, type: lower_is_better}
optimization: {algorithm: evolution}
output: {formats: [json, markdown, csv, html]}
budget:
"""


def data_of(text: str) -> Any:
    return read_yaml(text, None).data


def test_schema_is_a_valid_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


@pytest.mark.parametrize("text", [*EXAMPLES.values(), ORIGINAL], ids=[*EXAMPLES, "original"])
def test_schema_accepts_what_is_accepted(text):
    parse_configuration(text)
    assert [error.message for error in VALIDATOR.iter_errors(data_of(text))] == []


def test_every_property_has_a_description():
    bare = []
    for name, definition in [("", SCHEMA), *SCHEMA["$defs"].items()]:
        for key, item in definition.get("properties", {}).items():
            is_section = "$ref" in item or any("$ref" in o for o in item.get("anyOf", ()))
            if "description" not in item and not is_section and "const" not in item:
                bare.append(f"{name}.{key}")
    assert bare == []


def test_reference_has_a_described_row_for_every_key():
    rows = reference()
    assert len({row.key for row in rows}) == len(rows)
    assert [row.key for row in rows if not row.description] == []
    assert all(row.type and row.default for row in rows)
    keys = {row.key: row for row in rows}
    assert keys["optimization.seed"].default == "0"
    assert keys["search_space.parameters.<float|int>.log"].type == "boolean"
    assert keys["evaluation.metrics.<json_schema>.schema"].default == "absent"
    assert keys["api.name"].default == "required"


def test_examples_are_yaml_for_others_too():
    for text in EXAMPLES.values():
        assert isinstance(yaml.safe_load(text), dict)
