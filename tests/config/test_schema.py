"""The JSON Schema for editors agrees with what is accepted; the reference knows every key."""

import copy
import json
from typing import Any

import jsonschema
import pytest
import yaml

from convergence_core.config import json_schema, parse_configuration, parse_mapping, reference
from convergence_core.config.source import read_yaml
from convergence_core.errors import ConfigurationError
from tests.support.config_examples import EXAMPLES, edited

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
output: {formats: [json]}
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


@pytest.mark.parametrize(
    "changes",
    [
        {"api/name": 3},
        {"api/name": "a b"},
        {"api/colour": "red"},
        {"api": {"name": "x"}},
        {"optimization/algorithm": "mab_evoluton"},
        {"optimization/evolution/population_size": 1},
        {"budget/max_calls": 0},
        {"budget/max_usd": 0},
        {"budget/max_usd": "$5"},
        {"cache": 7},
        {"cache/epoch": "7 days"},
        {"prices/m": {"inputs": 1}},
        {"prices/m": {"input": -1, "output": 1}},
        {"api": {"name": "x", "kind": "azure"}},
        {"api/api_version": "latest"},
        {"llm": {"api_key_env": "K"}},
        {"evaluation/metrics/exact_match/votes": 0},
        {"evaluation/metrics/exact_match/champion": "best"},
        {"storage/journal": "JOURNAL"},
        {"society/enabled": "maybe"},
        {"society/rlp": {"n_thoughts": 0}},
        {"search_space/parameters/t/type": "flot"},
        {"search_space/parameters/t/min": "0"},
        {"search_space/parameters/m/choices": [None]},
        {"search_space/parameters/top-p": [1]},
        {"search_space/parameters": {}},
        {"evaluation/metrics/exact_match/wieght": 1},
        {"evaluation/metrics/exact_match/weight": -1},
        {"output/formats": ["pdf"]},
        {"storage/keep_text": "yes"},
    ],
)
def test_schema_rejects_what_is_refused(changes):
    data = edited(changes)
    with pytest.raises(ConfigurationError):
        parse_mapping(data)
    assert not VALIDATOR.is_valid(data)


def test_every_property_has_a_description():
    bare = []
    for name, definition in [("", SCHEMA), *SCHEMA["$defs"].items()]:
        for key, item in definition.get("properties", {}).items():
            is_section = "$ref" in item or any("$ref" in o for o in item.get("anyOf", ()))
            if "description" not in item and not is_section and "const" not in item:
                bare.append(f"{name}.{key}")
    assert bare == []


def test_making_the_schema_does_not_change_it():
    before = copy.deepcopy(SCHEMA)
    assert json_schema() == before


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
