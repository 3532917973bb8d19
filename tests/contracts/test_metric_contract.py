"""What every metric must keep: parametrized over all types of the configuration."""

import asyncio
import math
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from convergence_core.config.schema import METRIC_TYPES
from convergence_core.errors import EvaluationFault
from convergence_core.ports import Metric
from convergence_core.records import Reply
from tasks.inputs.factories import make_metrics
from tests.support.configurations import chat_api, loaded
from tests.support.plugin_packages import install

EXPECTED: dict[str, Any] = {
    "checks": [{"type": "contains", "expected": "x"}],
    "numeric": 1,
    "json_schema": {"type": "object"},
    "tool_choice": {"tool_calls": ["look"]},
    "tool_arguments": {"tool_calls": [{"name": "look", "arguments": {"at": 1}}]},
}
LIBRARIES = {"bleu": "sacrebleu", "rouge": "rouge_score"}
"""Those of an extra."""
SETTINGS: dict[str, dict[str, Any]] = {
    "function": {"function": "metric.py:quality"},
    "plugin": {"plugin": "quality"},
    "tool_allowed": {"forbidden": ["delete_*"]},
}
ANSWERS = [
    "",
    "x",
    "1",
    1,
    -1.5,
    True,
    None,
    [],
    [1, "x"],
    {},
    {"a": {"b": 1}},
    "é\u2028",
    "x" * 5000,
]


@pytest.fixture(
    params=[
        pytest.param(kind, marks=pytest.mark.slow) if kind in LIBRARIES else kind
        for kind in METRIC_TYPES
        if kind != "llm_judge"
    ]
)
def metric(request, tmp_path, monkeypatch):
    kind = request.param
    if (library := LIBRARIES.get(kind)) is not None:
        pytest.importorskip(library)
    if kind == "plugin":
        code = "def make(context): return lambda result, expected: 0.5"
        install(
            tmp_path / "packages",
            "acme-quality",
            code,
            {"convergence.metrics": {"quality": "make"}},
        )
        monkeypatch.syspath_prepend(str(tmp_path / "packages"))
        monkeypatch.delitem(sys.modules, "acme_quality", raising=False)
    (tmp_path / "metric.py").write_text("def quality(result, expected): return 0.5\n")
    case = {"id": "a", "input": "x", "expected": EXPECTED.get(kind, "x")}
    api: Mapping[str, Any] = {
        "name": "s",
        "kind": "http",
        "endpoint": "http://127.0.0.1:1/",
        "response": {"cost_field": "c"},
    }
    if kind == "first_token_ms":
        options = {"model": "m", "user": "{k}"}
        api = chat_api("http://127.0.0.1:1/v1", request={"stream": True, "options": options})
    made = loaded(
        tmp_path,
        api=api,
        evaluation__metrics={"the_name": {"weight": 1, "type": kind, **SETTINGS.get(kind, {})}},
        evaluation__test_cases={"inline": [case]},
    )
    (metric,) = make_metrics(made)
    return metric, made.cases[0]


def measure(metric, case, *values) -> Any:
    """The numbers of several answers; a fault in place of a number that there is none of."""

    async def go() -> Any:
        found: list[float | EvaluationFault | None] = []
        for value in values:
            try:
                found.append(await metric.measure(Reply(value=value, latency_ms=1.0), case, {}))
            except EvaluationFault as fault:
                found.append(fault)
        close = getattr(metric, "aclose", None)
        if close is not None:
            await close()
            await close()
        return found

    return asyncio.run(go())


def best_answer(case) -> Any:
    if isinstance(case.expected, dict) and "tool_calls" in case.expected:
        return case.expected
    return {"the": "answer"} if isinstance(case.expected, dict) else case.expected


def test_it_is_a_metric_with_the_name_of_the_configuration(metric):
    assert isinstance(metric[0], Metric)
    assert metric[0].name == "the_name"


def test_any_answer_gives_a_finite_number_unknown_or_a_fault_with_a_reason(metric):
    found = measure(*metric, *ANSWERS)
    assert len(found) == len(ANSWERS)
    for number in found:
        if isinstance(number, EvaluationFault):
            assert number.error_type
            assert str(number)
        else:
            assert number is None or math.isfinite(number)


def test_an_answer_as_expected_is_worth_no_less_than_another(metric):
    good, other = measure(*metric, best_answer(metric[1]), "another")
    if isinstance(good, float) and isinstance(other, float):
        assert good >= other
