"""Loading a configuration with its files: positions, prompts, schemas, facts."""

from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import ConfigurationError
from tasks.inputs.loader import is_text_path, load, load_mapping
from tests.support.configurations import BASE, loaded, mapping


def write_config(tmp_path, text) -> Any:
    path = tmp_path / "optimization.yaml"
    path.write_text(text)
    return path


CONFIG = """
api: {name: system, kind: function, function: "math:sqrt"}
search_space:
  parameters:
    k: {type: int, min: 1, max: 9}
    system: {type: text, variants: [a.md, "inline text"]}
evaluation:
  test_cases:
    - {id: a, input: one, expected: "1"}
    - {id: b, input: two, expected: "2", weight: 0}
  metrics:
    exact_match: {weight: 1}
    shape: {type: json_schema, schema: schema.json, weight: 1}
"""


def test_a_configuration_file_is_loaded_with_all_its_files(tmp_path):
    (tmp_path / "a.md").write_text("Be brief.\n")
    (tmp_path / "schema.json").write_text('{"type": "string"}')
    path = write_config(tmp_path, CONFIG.replace(", weight: 0", ""))
    made = load(path)
    assert (made.base_dir, made.config_path) == (tmp_path, path)
    assert made.texts == {"a.md": "Be brief.\n", "inline text": "inline text"}
    assert made.schemas == {"shape": {"type": "string"}}
    assert [case.case_id for case in made.cases] == ["a", "b"]


def test_problems_of_all_files_are_told_at_once_with_their_places(tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        load(write_config(tmp_path, CONFIG))
    told = {(problem.key, problem.line) for problem in caught.value.problems}
    assert told == {
        ("search_space.parameters.system.variants[0]", 6),
        ("evaluation.metrics.shape.schema", 13),
        ("evaluation.test_cases.inline[1].weight", 10),
    }


DOTTED = """
api: {name: bot, kind: openai, endpoint: "http://127.0.0.1:9/v1", request: {options: {model: m}}}
search_space:
  parameters:
    some.name: {type: int, min: 1, max: 9, default: 2}
    temperature: {type: float, min: 0, max: 1, default: 0}
evaluation:
  test_cases: [{id: a, input: one}, {id: b, input: two}]
  metrics:
    is.good:
      type: llm_judge
      mode: pairwise
      rubric: Good?
      champion:
        some.name: 70
        temperature: 0.5
      votes: 2
llm: {model: m, endpoint: "http://127.0.0.1:9/v1", temperature: 0}
"""


def test_names_with_dots_are_found_in_the_file(tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        load(write_config(tmp_path, DOTTED))
    told = {(problem.key, problem.line, problem.column) for problem in caught.value.problems}
    assert told == {
        ('search_space.parameters."some.name"', 5, 5),
        ('evaluation.metrics."is.good".champion."some.name"', 15, 20),
        ('evaluation.metrics."is.good".votes', 17, 14),
    }


def test_a_wrong_configuration_is_told_together_with_its_wrong_case_file(tmp_path):
    (tmp_path / "c.jsonl").write_text("{\n")
    text = CONFIG.replace("min: 1", "min: 99").split("  test_cases:")[0]
    text += "  test_cases: {path: c.jsonl}\n  metrics: {exact_match: {weight: 1}}\n"
    with pytest.raises(ConfigurationError) as caught:
        load(write_config(tmp_path, text))
    files = {Path(problem.file or "").name for problem in caught.value.problems}
    assert files == {"optimization.yaml", "c.jsonl"}


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00"])
def test_a_configuration_that_cannot_be_read_says_why(tmp_path, content):
    path = tmp_path / "optimization.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert "optimization.yaml" in str(caught.value)


def test_broken_json_schema_files_are_told(tmp_path):
    (tmp_path / "bad.json").write_text('{"type": }')
    metrics = {"shape": {"type": "json_schema", "schema": "bad.json", "weight": 1}}
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, evaluation__metrics=metrics)
    assert caught.value.problems[0].column is not None


def test_a_wrong_json_schema_is_told():
    metrics = {"shape": {"type": "json_schema", "schema": {"type": "nothing"}, "weight": 1}}
    with pytest.raises(ConfigurationError, match="JSON Schema"):
        loaded(evaluation__metrics=metrics)


@pytest.mark.parametrize(
    ("variant", "is_path"),
    [
        ("prompts/a.md", True),
        ("a.TXT", True),
        ("x.prompt", True),
        ("Read a.md", False),
        ("a\n.md", False),
        ("be brief", False),
        ("brief", False),
    ],
)
def test_what_counts_as_the_path_of_a_text(variant, is_path):
    assert is_text_path(variant) is is_path


def http(body) -> Any:
    return {
        "name": "s",
        "kind": "http",
        "endpoint": "http://127.0.0.1:1/",
        "request": {"body": body},
    }


@pytest.mark.parametrize("words", ["{unknown}", "{input.z}"])
def test_placeholders_are_checked(tmp_path, words):
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, api=http({"x": f"{{k}} {words}"}))
    assert words.strip("{}") in str(caught.value)


def test_python_data_is_loaded_too():
    made = load_mapping(BASE)
    assert made.config_path is None
    assert made.configuration.api.name == "system"


def test_inline_cases_from_python_have_no_line():
    with pytest.raises(ConfigurationError) as caught:
        load_mapping(mapping(evaluation__test_cases={"inline": [{"input": "x"}]}))
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (None, None)


def test_facts_hash_the_files_and_ask_the_module(tmp_path):
    (tmp_path / "f.py").write_text(
        "def f(case_input, params): return 1\n"
        "def corpus_sha256(): return 'abc'\n"
        "def _hidden_sha256(): return 'no'\n"
        "def of_sha256(text): return 'no'\n"
    )
    made = loaded(tmp_path, api={"name": "s", "kind": "function", "function": "f.py:f"})
    facts = made.facts
    assert facts["corpus_sha256"] == "abc"
    assert set(facts) == {"corpus_sha256", "sha256 of f.py"}
    (tmp_path / "f.py").write_text("def f(case_input, params): return 2\n")
    assert made.facts["sha256 of f.py"] != facts["sha256 of f.py"]
