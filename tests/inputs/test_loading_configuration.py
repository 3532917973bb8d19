"""Loading a configuration with its files: positions, prompts, schemas, facts."""

from typing import Any

import pytest

from convergence_core.errors import ConfigurationError
from convergence_core.prompts.invariants import placeholders_of
from tasks.http.request_templates import Values
from tasks.inputs.factories import make_target
from tasks.inputs.loader import is_text_path, load
from tests.support.configurations import loaded


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


@pytest.mark.parametrize(
    ("words", "rule", "fix"),
    [
        ("{kk}", "must hold placeholders of parameters or `{input}` only", "Did you mean `{k}`?"),
        ("{question}", "must hold placeholders of parameters", "`{{question}}`"),
        ("{k.part}", "must hold placeholders of parameters", "`{{k.part}}`"),
        ("{input.z}", "must name a field that every test case's input has", "double the braces"),
        ("{input.Größe der Stadt}", "must name a field that every test case's", "double the"),
        ("{input[q]}", "must hold readable placeholders of the input", "rename a column"),
        ("{input.}", "must hold readable placeholders of the input", "`{{input.}}`"),
        (
            "{ input.q }",
            "must hold readable placeholders of the input",
            "without blanks: `{input.q}`",
        ),
    ],
)
def test_placeholders_are_checked(tmp_path, words, rule, fix):
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, api=http({"x": [f"{{k}} {words}"]}))
    (problem,) = caught.value.problems
    assert problem.key == "api.request.body.x[0]"
    assert problem.rule.startswith(rule)
    assert fix in problem.fix


@pytest.mark.parametrize(
    "field", ["Frage zur Größe", "größe", "问题", "a.b c", "Preis [EUR]", "q?"]
)
def test_a_placeholder_names_any_column(tmp_path, field):
    cases = {"inline": [{"input": {field: "7"}, "expected": "1"}]}
    api = http({"x": f"{{k}}: {{input.{field}}} {{{{input.{field}}}}} {{{{input[x]}}}}"})
    body = loaded(tmp_path, api=api, evaluation__test_cases=cases).configuration.api.request.body
    filled = Values({"k": 1}, {field: "7"}).fill(body)
    assert filled == {"x": f"1: 7 {{input.{field}}} {{input[x]}}"}
    kept = placeholders_of(f"Say {{input.{field}}}")
    assert kept == (f"{{input.{field}}}",)


@pytest.mark.parametrize(
    "words",
    [
        "type Args = {\n  input: string;\n  output: string;\n}",
        "const { input } = props",
        r"\frac{input length}{2}",
        "{input, output}",
        '{input: "x"}',
        "{input\n.q}",
        "{{ input }}",
        "{{ input.q }}",
        "{{ input | upper }}",
        "{{\tinput.q}}",
        "{{ input.q }",
    ],
)
def test_code_and_foreign_templates_stay_as_they_are_written(tmp_path, words):
    api = http({"x": f"{{k}} {words} {{input}}"})
    body = loaded(tmp_path, api=api).configuration.api.request.body
    assert Values({"k": 1}, "7").fill(body) == {"x": f"1 {words} 7"}
    assert Values({"p": words}, "7").parameter("p") == words


@pytest.mark.parametrize(
    ("request_", "key", "rule"),
    [
        ({"body": {"a": "{k}", "{input}": 1}}, "api.request", "in names of fields"),
        ({"body": {"a": "{k}", "b": [{"x{k}": 1}]}}, "api.request", "in names of fields"),
        ({"body": ["{k}"], "query": {"{k}": "1"}}, "api.request", "in names of fields"),
        ({"body": ["{k}"], "headers": {"X-K": "{k}"}}, "api.request.headers.X-K", "in headers"),
        ({"body": ["{k}"], "headers": {"X-Q": "${A} {input.q}"}}, "api.request.headers.X-Q", "in"),
    ],
)
def test_placeholders_that_nothing_fills_are_refused(tmp_path, request_, key, rule):
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, api={**http(None), "request": request_})
    assert [problem.key for problem in caught.value.problems] == [key]
    assert caught.value.problems[0].rule.startswith(f"must hold no placeholders {rule}")


@pytest.mark.parametrize("body", [5, 1.5, True, "text", "{k}", None, ["{k}", 5, None]])
def test_a_body_may_be_any_json(tmp_path, body):
    api = {**http(body), "request": {"body": body, "query": {"k": "{k}"}, "method": "POST"}}
    api["response"] = {"result_field": "result"}
    if body is None:
        api["request"]["method"] = "GET"
    assert loaded(tmp_path, api=api).configuration.api.request.body == body


def test_headers_keep_other_braces_and_the_environment(tmp_path):
    headers = {"X-Json": '{"a": 1}', "X-Word": "{other}", "X-Env": "${k}"}
    api = {**http(None), "request": {"body": ["{k}"], "headers": headers}}
    assert loaded(tmp_path, api=api).configuration.api.request.headers == headers


@pytest.mark.parametrize("part", ["m/{k}", "{input}", "x?key=${MY_SECRET}", "{tenant}/x"])
def test_an_endpoint_holds_no_placeholders(tmp_path, part):
    for api in (
        {**http(["{k}"]), "endpoint": f"https://a.example/{part}"},
        {
            **http(["{k}"]),
            "endpoint": None,
            "models": {"a": {"endpoint": f"https://b.example/{part}"}},
        },
    ):
        with pytest.raises(ConfigurationError) as caught:
            loaded(tmp_path, api=api)
        rules = [p.rule for p in caught.value.problems if p.key.endswith("endpoint")]
        assert rules[0] == "must be a URL without placeholders or variables"


def test_a_refused_placeholder_shows_no_secret_beside_it(tmp_path):
    url, headers = "https://a.example/{k}?key=hunter2hunter2", {"X-Note": "hunter2hunter2 {k}"}
    api = {**http(["{k}"]), "endpoint": url}
    api["request"]["headers"] = headers
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, api=api)
    assert "{k}" in str(caught.value)
    assert "hunter2" not in str(caught.value)


GATED = {
    "k": {"type": "int", "min": 1, "max": 9},
    "on": {"type": "boolean"},
    "size": {"type": "int", "min": 1, "max": 3, "when": {"on": [True]}},
}


@pytest.mark.parametrize(
    ("request_", "unused"),
    [
        ({"body": {"x": "{input}"}}, ["k", "size"]),
        ({"body": {"x": "{k}"}}, ["size"]),
        ({"method": "GET", "query": {"x": "{size}"}}, ["k"]),
        ({"body": {"x": "{k}"}, "query": {"y": "{size}"}}, []),
        ({"query": {"x": "{input}"}}, []),
        ({}, []),
    ],
)
def test_a_parameter_that_no_written_request_holds_is_refused(request_, unused):
    api = {**http({}), "request": request_}
    if not unused:
        loaded(api=api, search_space__parameters=GATED)
        return
    with pytest.raises(ConfigurationError) as caught:
        loaded(api=api, search_space__parameters=GATED)
    assert [p.key for p in caught.value.problems] == [
        f"search_space.parameters.{n}" for n in unused
    ]
    assert f"Write `{{{unused[0]}}}` into" in caught.value.problems[0].fix


@pytest.mark.parametrize("is_always", [True, False])
def test_an_argument_needs_no_default_if_each_choice_activates_its_parameter(tmp_path, is_always):
    (tmp_path / "target.py").write_text("def f(q, k, on, size):\n    return q\n")
    api = {"name": "s", "kind": "function", "function": "target.py:f"}
    when = {"on": [True, False][: 1 + is_always]}
    size = {"type": "int", "min": 1, "max": 3, "when": when}
    made = loaded(
        tmp_path,
        api=api,
        search_space__parameters={**GATED, "size": size},
        evaluation__test_cases=[{"input": {"q": text}, "expected": "1"} for text in "ab"],
    )
    if is_always:
        assert make_target(made).provider == "function"
        return
    with pytest.raises(ConfigurationError, match="not always active"):
        make_target(made)


@pytest.mark.parametrize(
    ("signature", "refused", "fix"),
    [
        ("q", "target.py:f without k, size", "`params` to its arguments, or remove the parameter"),
        ("q, size=1", "target.py:f without k", "`params` to its arguments, or remove"),
        ("q, k, size", "`size` of target.py:f", "`size=None`: the parameter is not always active"),
        ("q, k, more, size=1", "`more` of target.py:f", "`more=None`: 1 of 2 cases lack it, e.g."),
        ("q, k, more=None, size=1", None, None),
        ("q, params", None, None),
        ("q, **others", None, None),
    ],
)
def test_a_function_without_a_parameter_or_an_argument_without_a_value_is_refused(
    tmp_path, signature, refused, fix
):
    (tmp_path / "target.py").write_text(f"def f({signature}):\n    return q\n")
    api = {"name": "s", "kind": "function", "function": "target.py:f"}
    inputs: Any = [{"q": "x"}, {"q": "y", "more": "z"}]
    cases = [{"input": case_input, "expected": "1"} for case_input in inputs]
    made = loaded(tmp_path, api=api, search_space__parameters=GATED, evaluation__test_cases=cases)
    if refused is None:
        make_target(made)
        return
    with pytest.raises(ConfigurationError) as caught:
        make_target(made)
    (problem,) = caught.value.problems
    assert (problem.key, problem.value) == ("api.function", refused)
    assert fix in problem.fix
