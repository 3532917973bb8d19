"""Metrics of tool calls, of answers in all forms."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from convergence_core.config import MetricConfig
from convergence_core.errors import ConfigurationError, EvaluatorFault
from convergence_core.records import Case, Reply
from tasks.metrics.tool_calls import ToolMetric
from tests.support.configurations import loaded

READ = {"name": "read", "arguments": {"channel": "1001", "limit": 5}}
SEND = {"name": "send", "arguments": {"channel": "1001", "text": "Hello"}}


def measure(kind: Any, value: Any, expected: Any = None, **settings: Any) -> float:
    config = TypeAdapter[Any](MetricConfig).validate_python(
        {"type": kind, "direction": "higher", **settings}
    )
    case = Case(case_id="a", input="x", expected=expected)
    reply = Reply(value=value, latency_ms=1.0)
    return asyncio.run(ToolMetric("m", config).measure(reply, case, {}))


def calls(*made: Any) -> dict[str, Any]:
    return {"content": "done", "tool_calls": [*made]}


@pytest.mark.parametrize(
    ("made", "expected", "value"),
    [
        ([], [], 1.0),
        ([READ], [], 0.0),
        ([], [READ], 0.0),
        ([READ], [READ], 1.0),
        ([SEND, READ], [READ, SEND], 1.0),
        ([READ, READ], [READ], 2 / 3),
        ([READ], [READ, READ], 2 / 3),
        ([READ, SEND], ["read"], 2 / 3),
        ([SEND], [READ], 0.0),
    ],
)
def test_the_choice_is_f1_of_names_each_as_often_as_called(made, expected, value):
    assert measure("tool_choice", calls(*made), {"tool_calls": expected}) == pytest.approx(value)


@pytest.mark.parametrize(
    ("made", "expected", "value"),
    [
        ([], [], 1.0),
        ([SEND], [], 1.0),
        ([READ], [{"name": "read", "arguments": {"channel": 1001}}], 1.0),
        ([READ], [{"name": "read", "arguments": {"limit": "5"}}], 1.0),
        ([READ], [{"name": "read", "arguments": {"channel": "1002"}}], 0.0),
        ([READ], [{"name": "read", "arguments": {"since": None}}], 0.0),
        ([READ], [READ, READ], 0.5),
        ([READ, SEND], ["send", READ, "read"], 2 / 3),
        # The vague call must not take the one that the exact call needs.
        ([READ, {"name": "read"}], ["read", READ], 1.0),
        # Nor must either of two that are equally vague.
        (
            [{"name": "f", "args": {"a": 1, "b": 2}}, {"name": "f", "args": {"a": 1, "b": 3}}],
            [{"name": "f", "args": {"a": 1}}, {"name": "f", "args": {"b": 2}}],
            1.0,
        ),
    ],
)
def test_arguments_count_where_they_are_expected(made, expected, value):
    found = measure("tool_arguments", calls(*made), {"tool_calls": expected})
    assert found == pytest.approx(value)


def test_calls_of_openais_form_are_read():
    function = {"name": "read", "arguments": json.dumps(READ["arguments"])}
    made = calls({"id": "call_1", "type": "function", "function": function})
    assert measure("tool_arguments", made, {"tool_calls": [READ]}) == 1.0
    assert measure("tool_calls", made) == 1.0


@pytest.mark.parametrize(
    "form",
    [
        lambda given: {"name": "read", "args": given, "id": "x", "type": "tool_call"},
        lambda given: {"type": "tool_use", "id": "x", "name": "read", "input": given},
        lambda given: {"functionCall": {"name": "read", "args": given}},
        lambda given: {"function": {"name": "read", "parameters": json.dumps(given)}},
    ],
    ids=["langchain", "anthropic", "gemini", "parameters"],
)
def test_calls_of_other_usual_forms_are_read_in_answers_and_cases(form):
    right, wrong = form({"channel": "1001"}), form({"channel": "1002"})
    assert measure("tool_arguments", calls(right), {"tool_calls": ["read"]}) == 1.0
    assert measure("tool_arguments", calls(READ), {"tool_calls": [right]}) == 1.0
    assert measure("tool_arguments", calls(right), {"tool_calls": [right]}) == 1.0
    assert measure("tool_arguments", calls(READ), {"tool_calls": [wrong]}) == 0.0
    assert measure("tool_arguments", calls(wrong), {"tool_calls": [right]}) == 0.0


@pytest.mark.parametrize(
    "call",
    [
        {"function": {"name": "f", "arguments": '{"a": 1}', "parsed_arguments": None}},
        {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "x"},
        {"type": "tool_use", "name": "f", "input": {"a": 1}, "cache_control": None},
        {"name": "f", "arguments": {"a": 1}, "result": "ok", "description": "note"},
        {"name": "f", "arguments": []},
    ],
)
def test_recorded_extras_beside_readable_arguments_are_ignored_in_cases(call):
    case = {"id": "a", "input": "x", "expected": {"tool_calls": [call]}}
    metric = {"type": "tool_arguments", "weight": 1}
    loaded(evaluation__metrics={"m": metric}, evaluation__test_cases={"inline": [case]})
    right, wrong = ({"name": "f", "arguments": {"a": a}} for a in (1, 2))
    assert measure("tool_arguments", calls(right), {"tool_calls": [call]}) == 1.0
    is_any_right = call.get("arguments") == []
    assert measure("tool_arguments", calls(wrong), {"tool_calls": [call]}) == is_any_right


@pytest.mark.parametrize(
    "listed",
    [
        [{"name": "f", "argumnets": {"a": 1}}],
        [{"name": "f", "arguments": "{'a': 1}", "result": "ok"}],
        [{"name": "f", "arguments": "{'a': 1}"}],
        [{"name": "f", "arguments": [1]}],
        [{"name": "f", "args": {"a": 1}, "input": {"b": 1}}],
        [{"function": {"name": "f"}, "arguments": {"a": 1}}, {"args": {}}],
        "f",
        [1],
    ],
)
@pytest.mark.parametrize("kind", ["tool_choice", "tool_arguments", "tool_allowed"])
def test_calls_that_cannot_be_read_are_refused_in_cases(listed, kind):
    metric = {"type": kind, "weight": 1}
    if kind == "tool_allowed":
        metric |= {"expected_field": "tool_calls", "forbidden": ["g"]}
    case = {"id": "a", "input": "x", "expected": {"tool_calls": listed}}
    with pytest.raises(ConfigurationError, match=r"expected\.tool_calls` must be a list of names"):
        loaded(evaluation__metrics={"m": metric}, evaluation__test_cases={"inline": [case]})


@pytest.mark.parametrize("value", ["text", "", None, 3, [], {"content": "x"}, {"tool_calls": 1}])
def test_an_answer_without_calls_has_none(value):
    assert measure("tool_calls", value) == 0.0
    assert measure("tool_choice", value, {"tool_calls": []}) == 1.0
    assert measure("tool_allowed", value, forbidden=["*"]) == 1.0


def test_a_forbidden_tool_is_named_by_the_metric_or_by_the_case():
    assert measure("tool_allowed", calls(READ), forbidden=["send*", "delete_*"]) == 1.0
    assert measure("tool_allowed", calls(READ, SEND), forbidden=["send*"]) == 0.0
    of_case = {"expected_field": "never", "forbidden": ["delete_*"]}
    assert measure("tool_allowed", calls(SEND), {"never": ["send"]}, **of_case) == 0.0
    assert measure("tool_allowed", calls(SEND), {}, **of_case) == 1.0
    assert measure("tool_allowed", calls({"name": "delete_all"}), {}, **of_case) == 0.0


@pytest.mark.parametrize("expected", [None, "read", {}, {"tool_calls": "read"}])
def test_a_case_without_expected_calls_makes_the_value_missing(expected):
    with pytest.raises(EvaluatorFault, match="tool_calls"):
        measure("tool_choice", calls(READ), expected)
