"""Test cases and traces of other tools: what is carried, what is left out and why."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from convergence.__main__ import run
from convergence_core.config.evaluation import PlainMetric, ScaleConfig
from convergence_core.errors import ConfigurationError
from tasks.inputs.case_files import Reporter, read_cases
from tasks.inputs.factories import make_metrics
from tasks.inputs.foreign_cases.case_forms import FieldNames, ForeignCase
from tasks.inputs.foreign_cases.case_import import (
    MAX_STRATA,
    CaseForm,
    CaseImport,
    CaseSample,
    allocate,
    guess_form,
    import_cases,
)
from tasks.inputs.foreign_cases.promptfoo_project import promptfoo_project
from tasks.inputs.loader import load_mapping
from tasks.metrics.comparisons import check_expected, comparison

"""Of the form of a key."""


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def imported(
    source: Path, form: CaseForm, **named: Any
) -> tuple[CaseImport, list[dict[str, Any]]]:
    output = source.parent / "out.jsonl"
    found = import_cases(source, output, form, **named)
    if not found.n_written:
        assert not output.exists()
        return found, []
    return found, [json.loads(line) for line in output.read_text("utf-8").split("\n")[:-1]]


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


# -- each form


def test_a_thousand_cases_of_each_form_lose_nothing(tmp_path: Path):
    n = 1_000
    asked, right = [f"question {i}" for i in range(n)], [f"answer {i}" for i in range(n)]
    pairs = list(zip(asked, right, strict=True))
    sources: dict[CaseForm, list[Any]] = {
        CaseForm.LANGFUSE: [{"id": f"i{i}", "input": a, "expectedOutput": b} for i, (a, b) in enumerate(pairs)],
        CaseForm.LANGSMITH: [{"inputs": {"messages": [message("user", a)]}, "outputs": {"o": b}} for a, b in pairs],
        CaseForm.OPENAI_EVALS: [
            {"input": [message("user", a)], "ideal": b} for a, b in pairs
        ],
        CaseForm.TABLE: [{"q": a, "a": b} for a, b in pairs],
        CaseForm.PROMPTFOO: [
            {"vars": {"q": a}, "assert": [{"type": "equals", "value": b}]} for a, b in pairs
        ],
    }  # fmt: skip
    assert set(sources) == set(CaseForm)
    for form, rows in sources.items():
        names = FieldNames(("q",), "a") if form is CaseForm.TABLE else FieldNames()
        found, cases = imported(written(tmp_path / "rows.jsonl", *rows), form, names=names, size=n)
        assert (found.n_read, found.n_written, found.skipped) == (n, n, {}), form
        inputs = [
            one["input"]["q"] if form is CaseForm.PROMPTFOO else one["input"] for one in cases
        ]
        assert inputs == asked, form
        assert [one["expected"] for one in cases] == right, form
        assert found.n_expected == n
        loaded = read_cases(tmp_path / "out.jsonl", Reporter(None, "test_cases"))
        assert len(loaded.cases) == n
        assert not loaded.problems


@pytest.mark.parametrize(
    ("form", "row", "case"),
    [
        (
            CaseForm.LANGFUSE,
            {"id": "t", "input": {"messages": [message("user", "hi")]}, "output": "ho", "sessionId": "s", "tags": ["a"]},
            {"id": "t", "input": "hi", "group": "s", "tags": ["a"]},
        ),
        (
            CaseForm.LANGFUSE,
            {"input": {"q": 1, "k": 2}, "expectedOutput": {"label": "x"}},
            {"input": {"q": 1, "k": 2}, "expected": "x"},
        ),
        (
            CaseForm.LANGSMITH,
            {"run_type": "chain", "run_id": "r", "inputs": {"q": "hi"}, "outputs": {"o": "ho"}},
            {"id": "r", "input": {"q": "hi"}},
        ),
        (
            CaseForm.LANGSMITH,
            {"input_question": "hi", "input_k": "3", "output_answer": "ho"},
            {"input": {"question": "hi", "k": "3"}, "expected": "ho"},
        ),
        (
            CaseForm.OPENAI_EVALS,
            {"object": "eval.run.output_item", "datasource_item_id": 3, "datasource_item": {"q": "hi", "ideal": "ho"}},
            {"id": "3", "input": {"q": "hi"}, "expected": "ho"},
        ),
        (CaseForm.OPENAI_EVALS, {"item": {"input": "hi", "ground_truth": 4}}, {"input": "hi", "expected": 4}),
        (CaseForm.TABLE, {"id": 4, "text": "hi"}, {"id": "4", "input": {"text": "hi"}}),
    ],
)  # fmt: skip
def test_a_row_of_a_tool_is_this_case(
    form: CaseForm, row: dict[str, Any], case: dict[str, Any], tmp_path: Path
):
    _, cases = imported(written(tmp_path / "rows.jsonl", row), form)
    assert cases == [case]


@pytest.mark.parametrize(
    ("form", "row", "reason"),
    [
        (CaseForm.LANGFUSE, {"input": "a", "status": "ARCHIVED"}, "archived"),
        (CaseForm.LANGFUSE, {"input": None}, "it has no question"),
        (CaseForm.LANGFUSE, {"input": " \n"}, "it has no question"),
        (CaseForm.LANGFUSE, [1], "a row is no object"),
        (CaseForm.LANGSMITH, {"run_type": "llm", "parent_run_id": "p", "inputs": {"q": 1}}, "a part of another run"),
        (CaseForm.LANGSMITH, {"inputs": {"messages": [{"content": "x"}]}}, "a message has no role"),
        (
            CaseForm.OPENAI_EVALS,
            {"input": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            "a message holds more than text",
        ),
    ],
)  # fmt: skip
def test_what_is_left_out_is_counted_with_its_reason(
    form: CaseForm, row: Any, reason: str, tmp_path: Path
):
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps(row) + "\n{broken\n")
    found, cases = imported(source, form)
    assert not cases
    assert found.skipped[reason] == 1
    assert sum(found.skipped.values()) == found.n_read == 2


def test_a_promptfoo_configuration_is_carried_with_all_it_refers_to(tmp_path: Path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more/a.csv").write_text(
        "q,__expected,__description,__metadata:kind\n"
        "one,1,first,easy\ntwo,contains: 2,,\nthree,javascript: output > 2,,\nfour,is-json,,\nfive,a: b,,\n"
    )
    (tmp_path / "long.txt").write_text("a long text")
    (tmp_path / "promptfooconfig.yaml").write_text(
        """
defaultTest: {vars: {tone: kind}, assert: [{type: latency, threshold: 5}]}
tests:
  - file://more/*.csv
  - {vars: {q: file://long.txt}, assert: [{type: icontains, value: "{{ tone }}"}, {type: equals, value: x}]}
  - {vars: {q: file://../../etc/passwd}}
  - {vars: {q: file://make.js}}
  - tests.py
  - huggingface://datasets/x
scenarios:
  - config: [{vars: {lang: de}}, {vars: {lang: fr}}]
    tests: [{vars: {q: hello}}]
"""
    )
    source = tmp_path / "promptfooconfig.yaml"
    assert guess_form(source) is CaseForm.PROMPTFOO
    found, cases = imported(source, CaseForm.PROMPTFOO)
    expected = {case["input"]["q"]: case.get("expected") for case in cases[:6]}
    assert expected == {
        "one": "1", "two": "2", "three": None, "four": None, "five": "a: b", "a long text": "kind",
    }  # fmt: skip
    assert [case["input"] for case in cases[6:]] == [
        {"tone": "kind", "lang": "de", "q": "hello"},
        {"tone": "kind", "lang": "fr", "q": "hello"},
    ]
    assert cases[0]["description"] == "first"
    assert found.skipped == {
        "a variable is a file outside of the configuration's folder": 1,
        "a variable is made by code, which is not run": 1,
        "tests in tests.py, which is no file here": 1,
        "tests in huggingface://datasets/x, which is no file here": 1,
    }
    assert found.not_carried["assertion latency"] == 8
    assert found.not_carried["a second assertion (equals beside icontains)"] == 1
    assert found.metrics == {"exact_match": 2, "contains": 2}
    assert "passwd" not in (tmp_path / "out.jsonl").read_text()


# -- the sample


def test_a_sample_is_taken_alike_of_each_value_whatever_the_order(tmp_path: Path):
    rows = [
        {
            "input": f"question {i}",
            "sessionId": f"c{i // 2}",
            "metadata": {"agent": "rare" if i % 100 == 0 else "often"},
        }
        for i in range(3_000)
    ]
    first, cases = imported(
        written(tmp_path / "a.jsonl", *rows), CaseForm.LANGFUSE, size=40, by="agent"
    )
    assert first.strata == {"often": (20, 2_970), "rare": (20, 30)}
    assert (first.n_written, first.n_distinct) == (40, 3_000)
    assert all(case["group"].startswith("c") for case in cases)
    zipped = tmp_path / "b.jsonl.gz"
    zipped.write_bytes(
        gzip.compress("".join(json.dumps(row) + "\n" for row in rows[::-1]).encode())
    )
    again, others = imported(zipped, CaseForm.LANGFUSE, size=40, by="agent")
    assert again.strata == first.strata
    assert {one["input"] for one in others} == {one["input"] for one in cases}
    _, seeded = imported(tmp_path / "a.jsonl", CaseForm.LANGFUSE, size=40, by="agent", seed=1)
    assert {one["input"] for one in seeded} != {one["input"] for one in cases}


# -- what is expected never stays in the input


ITEM = {"q": "a", "label": "x"}


@pytest.mark.parametrize(
    ("form", "row"),
    [
        (CaseForm.OPENAI_EVALS, {"item": ITEM}),
        (CaseForm.OPENAI_EVALS, {"datasource_item": {"item": {**ITEM, "ideal": "y"}}}),
        (CaseForm.LANGFUSE, {"input": ITEM}),
        (CaseForm.LANGSMITH, {"inputs": ITEM, "outputs": {"other": 1}}),
        (CaseForm.LANGSMITH, {"inputs": {"q": "a"}, "outputs": {"label": "x", "other": 1}}),
        (CaseForm.LANGSMITH, {"input_q": "a", "output_label": "x", "output_n": 1}),
        (CaseForm.TABLE, {**ITEM, "expected": "y"}),
        (CaseForm.PROMPTFOO, {"vars": ITEM}),
    ],
)
def test_the_field_that_is_named_as_expected_leaves_the_input(
    form: CaseForm, row: dict[str, Any], tmp_path: Path
):
    source = written(tmp_path / "r.jsonl", row)
    _, cases = imported(source, form, names=FieldNames(expected="label"))
    assert cases == [{"input": {"q": "a"}, "expected": "x"}]
    with pytest.raises(ConfigurationError, match=r"--expected.*got lable.*Did you mean `label`"):
        imported(source, form, names=FieldNames(expected="lable"))


# -- files


def test_the_command_says_what_is_wrong_and_never_overwrites_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "r.jsonl", {"input": "a"})
    assert run(["import", "cases", "r.jsonl"]) == 2
    assert "promptfoo, langfuse" in capsys.readouterr().err
    assert run(["import", "cases", "r.jsonl", "-f", "langfues"]) == 2
    assert run(["import", "cases", "none.jsonl", "-f", "langfuse"]) == 2
    assert not Path("cases.jsonl").exists()
    assert run(["import", "cases", "r.jsonl", "-f", "langfuse", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["n_written"], told["file"]) == (1, "cases.jsonl")
    assert run(["import", "cases", "r.jsonl", "-f", "langfuse"]) == 2
    assert run(["import", "cases", "r.jsonl", "-f", "langfuse", "--overwrite"]) == 0
    arguments = ["import", "cases", "r.jsonl", "-f", "openai-evals", "-o", "x.jsonl"]
    assert run([*arguments, "--input", "inptu"]) == 2
    assert "Did you mean `input`?" in capsys.readouterr().err
    written(tmp_path / "r.jsonl", {"input": ""})
    assert run(arguments) == 100
    assert "x.jsonl is not written" in capsys.readouterr().err
    assert not Path("x.jsonl").exists()


@pytest.mark.parametrize("n_strata", [1, 7, MAX_STRATA + 50])
def test_a_sample_in_one_pass_is_the_one_of_all_cases_at_once(n_strata: int):
    """What is dropped on the way is nothing that the end would keep."""
    small, whole = CaseSample(20), CaseSample(None)
    for number in range(6_000):
        stratum = f"s{(number * number) % n_strata}"
        for sample in (small, whole):
            sample.add(ForeignCase(input=number), stratum)
    assert sum(map(len, small._kept.values())) <= 4 * 20 + MAX_STRATA
    expected = allocate(whole.counts, 20)
    taken = Counter(stratum for stratum, _ in small.cases())
    assert taken == {name: n for name, n in expected.items() if n}
    best = {
        stratum: {case.input for _, _, case in sorted(kept, reverse=True)[: expected[stratum]]}
        for stratum, kept in whole._kept.items()
    }
    assert all(case.input in best[stratum] for stratum, case in small.cases())


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
        "prompt made by code: prompt.py": 1,
        "prompt made by code: prompts.py:second": 1,
        "provider python:mine.py": 1,
        "provider of another service than openai: claude-sonnet-4-5": 1,
        "option `temperature` of some providers alone: it holds for all": 1,
        "option `apiKey` of providers": 1,
        "`storeOutputAs` of tests": 4,
        "assertion javascript (file://check.js)": 2,
        "assertion regex": 1,
        "test without an assertion that is carried, which is left out": 1,
    }


@pytest.mark.parametrize(
    ("assertion", "right", "wrong"),
    [
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
    (tmp_path / "tests.csv").write_text("q,__expected\nName a colour,grade: names a colour\n")
    (tmp_path / "c.yaml").write_text(
        "prompts: ['{{q}}']\n"
        "providers: [{id: openai:gpt-4o-mini, delay: 9}]\n"
        "evaluateOptions: {repeat: 3}\n"
        "derivedMetrics: []\n"
        "tests:\n"
        "  - file://tests.csv\n"
        "  - {vars: {q: a}, options: {storeOutputAs: x, provider: y},\n"
        "     assert: [{type: contains, value: a, metric: tp}, {type: equals, value: a, transform: f}]}\n"
    )
    project = promptfoo_project(tmp_path / "c.yaml", "cases.jsonl")
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
