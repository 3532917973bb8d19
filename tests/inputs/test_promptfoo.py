"""Configurations of promptfoo: what is carried, what is left out and why."""

import json
from pathlib import Path
from typing import Any

import pytest

from convergence_core.config.evaluation import PlainMetric, ScaleConfig
from tasks.inputs.factories import make_metrics
from tasks.inputs.loader import load_mapping
from tasks.inputs.promptfoo import promptfoo_project
from tasks.metrics.comparisons import check_expected, comparison


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# -- a configuration of promptfoo

PROMPTFOO = """
prompts:
  - '[{"role": "system", "content": "Sort {json} of {{ tone }}"}, {"role": "user", "content": "{{text}}"}]'
  - '[{"role": "system", "content": "Sort."}, {"role": "user", "content": "{{text}}"}]'
  - "{% if a %}b{% endif %}"
  - file://prompt.py
  - prompts.py:second
providers:
  - openai:chat:gpt-4o-mini
  - {id: "openai:gpt-4o", config: {temperature: 0.2, apiKey: k}}
  - anthropic:messages:claude-sonnet-4-5
  - python:mine.py
assert: [{type: equals, value: a}]
defaultTest:
  vars: {right: yes please}
  options: {storeOutputAs: first}
  assert: [{type: cost, threshold: 0.01}]
tests:
  - vars: {text: a, tone: dry}
    threshold: 0.5
    assert:
      - {type: equals, value: "{{right}}"}
      - {type: not-icontains-any, value: "no, never", weight: 3}
  - vars: {text: [b, c]}
    assert:
      - {type: llm-rubric, value: is kind}
      - {type: javascript, value: "file://check.js"}
  - vars: {text: d}
    assert: [{type: regex, value: "(?<a>x)"}]
"""


def test_a_configuration_of_promptfoo_becomes_one_that_loads(tmp_path: Path):
    (tmp_path / "promptfooconfig.yaml").write_text(PROMPTFOO)
    project = promptfoo_project(tmp_path / "promptfooconfig.yaml", "cases.jsonl")
    written(tmp_path / "cases.jsonl", *project.cases)
    whole = load_mapping(project.configuration, tmp_path)
    request, space = whole.configuration.api.request, whole.configuration.search_space.parameters
    assert request.options == {"temperature": 0.2}
    assert [m.content for m in request.messages or ()] == ["{prompt}", "{input.text}"]
    assert project.configuration["search_space"]["parameters"]["prompt"]["variants"] == [
        "Sort {json} of {input.tone}", "Sort.",
    ]  # fmt: skip
    assert {*space} == {"model", "prompt"}
    assert [case.input for case in whole.cases] == [
        {"text": "a", "tone": "dry"}, {"text": "b", "tone": ""}, {"text": "c", "tone": ""},
    ]  # fmt: skip
    checks, judge, cost = make_metrics(whole)
    assert whole.configuration.evaluation.metrics["cost_usd"].scale == ScaleConfig(
        good=0.01, bad=0.02
    )
    assert [judge.applies(case) for case in whole.cases] == [False, True, True]  # type: ignore[union-attr]
    assert [checks.applies(case) for case in whole.cases] == [True, False, False]  # type: ignore[union-attr]
    assert cost.name == "cost_usd"
    assert project.lost == {
        "top-level `assert`: move it below `defaultTest`": 1,
        "prompt with code of its template language": 1,
        "prompt that is not text: prompt.py": 1,
        "prompt that is not text: prompts.py:second": 1,
        "provider python:mine.py": 1,
        "provider of another service than openai: claude-sonnet-4-5": 1,
        "option `temperature` of some providers only: it applies to all": 1,
        "option `apiKey` of providers": 1,
        "`storeOutputAs` of tests": 4,
        "assertion javascript (file://check.js)": 2,
        "assertion regex": 1,
        "test without a carried assertion, left out": 1,
    }


@pytest.mark.parametrize(
    ("assertion", "right", "wrong"),
    [
        ("{type: equals, value: yes}", "yes", "true"),
        ("{type: equals, value: {a: 1}}", '{"a": 1.0}', '{"a": 2}'),
        ("{type: contains-all, value: [a, b]}", "b a", "a"),
        ("{type: icontains-any, value: [x.y, Z]}", "a z", "xzy".replace("z", "-")),
        ("{type: starts-with, value: a.}", "a.b", "b\na."),
        ("{type: not-regex, value: '^a'}", "b", "a"),
        ("{type: is-json, value: {type: object}}", "{}", "[]"),
        ("{type: not-is-json}", "a", "{}"),
        ("{type: assert-set, threshold: 0.5, assert: [{type: equals, value: a}, {type: equals, value: b}]}", "b", "c"),
    ],
)  # fmt: skip
def test_an_assertion_of_promptfoo_becomes_a_check_that_says_the_same(
    tmp_path: Path, assertion: str, right: str, wrong: str
):
    path = tmp_path / "promptfooconfig.yaml"
    path.write_text(f"prompts: [x]\ntests: [{{assert: [{assertion}]}}]")
    (case,) = promptfoo_project(path, "cases.jsonl").cases
    expected = case["expected"]["checks"]  # type: ignore[call-overload,index]
    compare = comparison(PlainMetric(type="checks", direction="higher"))
    assert (compare(right, expected), compare(wrong, expected)) == (1.0, 0.0)


@pytest.mark.parametrize(
    "expected",
    ["a", [{"type": "contains"}], [{"type": "latency_ms", "expected": 1}], [{"type": "regex", "expected": "("}],
     [{"type": "contains", "expected": "a", "nott": True}], [{"type": "contains", "expected": "a", "weight": -1}],
     [{"type": "contains", "expected": "a", "weight": 0}],
     [{"type": "similarity", "expected": "a", "method": "rouge1"}]],
)  # fmt: skip
def test_checks_that_cannot_be_read_are_refused(expected: Any):
    assert check_expected(PlainMetric(type="checks", direction="higher"), expected)


def test_whatever_a_configuration_of_promptfoo_loses_is_named(tmp_path: Path):
    (tmp_path / "tests.csv").write_text(
        "q,__expected,__expected2\nName a colour,grade: names a colour,latency(900)\n"
    )
    (tmp_path / "c.yaml").write_text(
        "prompts: ['{{q}}']\n"
        "providers: [{id: google:gemini-2.5-pro, delay: 9, config: {maxOutputTokens: 64}}]\n"
        "evaluateOptions: {repeat: 3}\n"
        "derivedMetrics: []\n"
        "tests:\n"
        "  - file://tests.csv\n"
        "  - {vars: {q: a}, options: {storeOutputAs: x, provider: y},\n"
        "     assert: [{type: contains, value: a, metric: tp}, {type: equals, value: a, transform: f}]}\n"
    )
    project = promptfoo_project(tmp_path / "c.yaml", "cases.jsonl")
    assert project.configuration["api"]["request"]["options"] == {"max_tokens": 64}
    assert project.configuration["evaluation"]["metrics"]["latency_ms"]["scale"]["good"] == 900
    assert [case["expected"] for case in project.cases] == [
        {"checks": [], "judge": "names a colour"},
        {"checks": [{"type": "contains", "expected": "a"}]},
    ]
    assert dict(project.lost) == dict.fromkeys(
        (
            "top-level `evaluateOptions`", "top-level `derivedMetrics`", "`delay` of providers",
            "`storeOutputAs` of tests", "`provider` of tests", "`metric` of assertions",
            "assertion equals with `transform`",
        ),
        1,
    )  # fmt: skip


def test_a_configuration_of_promptfoo_is_carried_with_all_it_refers_to(tmp_path: Path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more/a.csv").write_text(
        "q,__expected,__description,__metadata:kind\n"
        "one,1,first,easy\ntwo,contains: 2,,\nthree,javascript: output > 2,,\nfour,is-json,,\nfive,a: b,,\n"
        "seven,is-refusal,,\neight,rouge-n(0.5): a text,,\n"
    )
    (tmp_path / "more/b.jsonl").write_text('{"vars": {"q": "six"}, "assert": []}\n{"vars": NaN}\n')
    (tmp_path / "long.txt").write_text("a long text")
    (tmp_path / "promptfooconfig.yaml").write_text(
        """
prompts: ["{{ q }} {{ lang }}"]
defaultTest: {vars: {tone: kind}}
tests:
  - file://more/*.*
  - {vars: file://vars.yaml}
  - {vars: {q: file://long.txt}, assert: [{type: icontains, value: "{{ tone }}"}]}
  - {vars: {q: file://../../etc/passwd}}
  - {vars: {q: file://make.js}}
  - tests.py
  - huggingface://datasets/x
  - {vars: {q: hello, lang: [de, fr]}, assert: [{type: equals, value: x}]}
scenarios: [{config: [{}], tests: [{}]}]
"""
    )
    project = promptfoo_project(tmp_path / "promptfooconfig.yaml", "cases.jsonl")
    assert [
        (case["input"]["q"], *case["expected"]["checks"])  # type: ignore[call-overload,index,misc]
        for case in project.cases
    ] == [
        ("one", {"type": "exact_match", "expected": "1"}),
        ("two", {"type": "contains", "expected": "2"}),
        ("four", {"type": "json_schema", "expected": {}}),
        ("five", {"type": "exact_match", "expected": "a: b"}),
        ("a long text", {"type": "contains", "expected": "kind", "case_sensitive": False}),
        *[("hello", {"type": "exact_match", "expected": "x"})] * 2,
    ]
    assert [case["input"]["lang"] for case in project.cases[5:]] == ["de", "fr"]  # type: ignore[call-overload,index]
    assert project.cases[0]["description"] == "first"
    reasons = (
        "a variable is a file outside the configuration's folder",
        "a variable is made by code, which is not run",
        "tests in tests.py, which does not exist here",
        "tests in huggingface://datasets/x, which does not exist here",
        "top-level `scenarios`",
        "test in b.jsonl: line 2 must be valid JSON: NaN is not a JSON number",
        "a test's `vars` are no mapping",
        "assertion is-refusal",
        "assertion rouge-n",
    )
    assert all(project.lost[reason] == 1 for reason in reasons)
    assert "passwd" not in json.dumps(project.cases)
