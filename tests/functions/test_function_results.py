"""Python functions as targets: how they are called, and what their results mean."""

import asyncio
import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from convergence_core.errors import CandidateFault
from convergence_core.records import Usage, canonical_json
from tests.support.sessions import ask_function

# -- results


@dataclasses.dataclass
class Found:
    text: str
    score: float


class Model(BaseModel):
    text: str


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, None),
        ("text", "text"),
        ([1, (2, 3)], [1, [2, 3]]),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (Found("a", 0.5), {"text": "a", "score": 0.5}),
        (Model(text="a"), {"text": "a"}),
        ({1: "a"}, {"1": "a"}),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        ({"result": [1], "other": 2}, {"result": [1], "other": 2}),
        ({"result": [1], "cost_usd": 0.5, "other": 2}, [1]),
        ({"error": "E42", "line": 3}, {"error": "E42", "line": 3}),
        ({"error": 0.12}, {"error": 0.12}),
    ],
)
def test_results_become_json(result, expected):
    reply = ask_function(lambda case_input, params: result)
    assert reply.value == expected
    canonical_json(reply.value).encode()


@pytest.mark.parametrize(
    ("result", "error_type", "words"),
    [
        (float("nan"), "not_finite", "nan"),
        ({"a": [1.0, float("inf")]}, "not_finite", "a[1]"),
        (np.array([np.nan]), "not_finite", "nan"),
        ({1, 2}, "not_json", "set"),
        ({"f": open}, "not_json", "`f`"),
        (b"bytes", "not_json", "bytes"),
        ({(1, 2): 3}, "not_json", "tuple"),
    ],
)
def test_results_that_json_cannot_carry_are_the_candidates_fault(result, error_type, words):
    with pytest.raises(CandidateFault) as caught:
        ask_function(lambda case_input, params: result)
    assert caught.value.error_type == error_type
    assert words in str(caught.value)


def test_a_number_that_no_metric_reads_may_be_no_number():
    nan = float("nan")
    found: Any = {"label": "x", "score": np.float32(nan), "all": [nan, 1.0]}
    plain = {"label": "x", "score": None, "all": [None, 1.0]}
    for result in (found, {"result": found, "cost_usd": 0.5}):
        reply = ask_function(lambda case_input, params, r=result: r, reads={"label"})
        assert reply.value == plain
        with pytest.raises(CandidateFault, match="not a finite number"):
            ask_function(lambda case_input, params, r=result: r, reads={"label", "all[1]"})
    bare: tuple[Any, ...] = (nan, {"result": nan}, {"result": "x", "cost_usd": nan}, [nan])
    for result in bare:
        with pytest.raises(CandidateFault, match="not a finite number"):
            ask_function(lambda case_input, params, r=result: r, reads={"label", "0.label"})


def test_an_envelope_says_more_than_its_value():
    envelope = {
        "result": "r",
        "cost_usd": 0.25,
        "tokens_in": 3,
        "tokens_out": 4,
        "metrics": {"ndcg": np.float64(0.5)},
    }
    reply = ask_function(lambda case_input, params: envelope)
    assert (reply.value, reply.cost_usd, reply.price_version) == ("r", 0.25, None)
    assert reply.usage == Usage(prompt_tokens=3, completion_tokens=4)
    assert reply.extra == {"ndcg": 0.5}
    assert ask_function(lambda case_input, params: {**envelope, "raw": object()}).value == "r"


@pytest.mark.parametrize(
    "envelope",
    [
        {"result": 1, "cost_usd": "free"},
        {"result": 1, "cost_usd": -1},
        {"result": 1, "cost_usd": 1e300},
        {"result": 1, "tokens_in": 10**400},
        {"result": 1, "metrics": {"a": 10**400}},
        {"result": 1, "metrics": {"a": "b"}},
        {"result": 1, "metrics": [1]},
    ],
)
def test_an_envelope_with_wrong_numbers_is_the_candidates_fault(envelope):
    with pytest.raises(CandidateFault) as caught:
        ask_function(lambda case_input, params: envelope)
    assert caught.value.error_type == "bad_result"


@pytest.mark.parametrize(
    "more", [{"success": False}, {"success": 0}, {"success": "false"}, {}, {"result": None}]
)
def test_a_reported_failure_is_the_candidates_fault_with_its_reason(more):
    with pytest.raises(CandidateFault, match="no index"):
        ask_function(lambda case_input, params: {**more, "error": "no index"})


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        ({"success": False}, "reported a failure"),
        ({"success": False, "answer": "x"}, "reported a failure"),
        ({"success": False, "cost_usd": 0.5, "answer": "x"}, "reported a failure"),
        ({"success": "no", "error": {"code": 7}}, "7"),
        ({"success": "False", "failed": 3}, "reported a failure"),
        ({"success": 0.0, "error": ["bad"], "answer": "x"}, "bad"),
        ({"success": False, "error": "bad", "answer": "x"}, "bad"),
    ],
)
def test_a_failure_counts_beside_any_other_key(failed, reason):
    with pytest.raises(CandidateFault, match=reason) as caught:
        ask_function(lambda case_input, params: failed)
    assert caught.value.error_type == "reported_failure"


@pytest.mark.parametrize(
    "value",
    [
        {"success": True, "answer": "x"},
        {"success": None, "answer": "x"},
        {"success": 0, "failed": 3},
        {"success": 0.0, "error": 3},
        {"success": "0"},
        {"error": "E42", "answer": "x"},
    ],
)
def test_fields_of_those_names_that_report_no_failure_are_part_of_the_value(value):
    assert ask_function(lambda case_input, params: value).value == value


def test_a_value_with_such_fields_is_whole_within_a_result():
    value = {"success": False, "error": "E42", "answer": "x"}
    assert ask_function(lambda case_input, params: {"result": value}).value == value


async def later(case_input: Any, params: Any) -> Any:
    await asyncio.sleep(0)
    return case_input["x"] * params["k"]


def of_another(case_input: Any, params: Any) -> Any:
    return later({**case_input}, params)


@pytest.mark.parametrize("function", [later, of_another, functools.partial(of_another)])
def test_what_a_function_lets_wait_for_is_awaited(function):
    assert ask_function(function).value == 6
