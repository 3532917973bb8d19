"""Metrics: what each comparison says, and functions of the user's in both call forms."""

import asyncio
import sys
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, strategies as st

from convergence_core.config.evaluation import SimilarityMetric
from convergence_core.errors import CandidateFault, ConfigurationError, EvaluatorFault
from convergence_core.records import Case, Reply
from tasks.inputs.factories import make_metrics
from tests.support.configurations import loaded
from tests.support.sessions import ScriptedTarget, assignment, session


def made(base_dir=".", *, evaluator=None, case=None, **metrics) -> Any:
    cases = {"inline": [case or {"id": "a", "input": "x", "expected": "1"}]}
    whole = loaded(base_dir, evaluation__metrics=metrics, evaluation__test_cases=cases)
    return make_metrics(whole, evaluator=evaluator)


def measure(metric, value, expected=None, *, params=None, **reply) -> Any:
    case = Case(case_id="a", input="x", expected=expected)

    async def go() -> Any:
        try:
            return await metric.measure(
                Reply(value=value, **{"latency_ms": 1.0, **reply}), case, params or {}
            )
        finally:
            if hasattr(metric, "aclose"):
                await metric.aclose()

    return asyncio.run(go())


EXPECTED = {
    "numeric": 3,
    "json_schema": {"type": "object"},
    "regex": "x",
}


def value_of(config, result, expected) -> Any:
    kind = config["type"]
    case = {"id": "a", "input": "x", "expected": EXPECTED.get(kind, "x")}
    if "expected_field" in config:
        case["expected"] = expected
    (metric,) = made(case=case, quality={"weight": 1, **config})
    return measure(metric, result, expected)


@pytest.mark.parametrize(
    ("config", "result", "expected", "value"),
    [
        ({}, "Paris", "Paris", 1),
        ({}, " Paris\n", "Paris", 1),
        ({}, "paris", "Paris", 0),
        ({"case_sensitive": False}, "PARIS", "paris", 1),
        ({}, 5, "5", 1),
        ({}, 5.0, 5, 1),
        ({}, True, 1, 0),
        ({}, True, "True", 1),
        ({}, "FALSE", False, 1),
        ({}, True, "False", 0),
        ({}, "two\nlines", "two\r\nlines", 1),
        ({}, "cafe\u0301", "caf\u00e9", 1),
        ({}, {"a": [1, "x "]}, {"a": [1.0, "x"]}, 1),
        ({}, {"a": 1}, {"a": 1, "b": 2}, 0),
        ({}, "10\u00a0km", "10 km", 1),
        ({}, "à l\u2019eau", "à l'eau", 1),
        ({}, "10\u200bkm", "10 km", 0),
        ({}, [1, 2], [2, 1], 0),
        ({}, None, None, 1),
        ({}, "null", None, 0),
        ({}, None, "null", 0),
        ({}, "2", 2.0, 1),
        ({}, "2.0", 2, 1),
        ({}, "4", [2.0, 4.0], 1),
        ({}, "3.1", "3.10", 0),
        ({}, 29.9, "29.90", 1),
        ({}, {"n": 12.5, "on": True}, {"n": "12.50", "on": "true"}, 1),
        ({}, '{"a": 1.10}', {"a": 1.1}, 1),
        ({}, [1, 2], "[1, 2]", 1),
        ({}, "four", ["4", "four"], 1),
        ({}, 4, ["4", "four"], 1),
        ({}, "five", ["4", "four"], 0),
        ({}, ["4", "four"], ["4", "four"], 1),
        ({}, {"result": "x", "confidence": 0.2}, "x", 1),
        ({}, {"result": "x", "confidence": 0.2}, ["y", "x"], 1),
        ({}, {"result": "x", "confidence": 0.2}, {"result": "x"}, 0),
        ({}, {"result": "x", "confidence": 0.2}, '{"result": "x", "confidence": 0.2}', 1),
        ({"field": "answer[0].text"}, {"answer": [{"text": "x"}]}, "x", 1),
        ({"expected_field": "a.b"}, "x", {"a": {"b": "x"}}, 1),
    ],
)
def test_exact_match(config, result, expected, value):
    assert value_of({"type": "exact_match", **config}, result, expected) == value


@pytest.mark.parametrize(
    ("config", "result", "expected", "value"),
    [
        ({}, "the capital is Paris.", "Paris", 1),
        ({}, "the capital is paris.", "Paris", 0),
        ({"case_sensitive": False}, "the capital is paris.", "PARIS", 1),
        ({}, "red and blue", ["red", "blue"], 1),
        ({}, "red", ["red", "blue"], 0),
        ({}, {"list": [1, 22]}, 22, 1),
        ({}, {"text": 'say "hi"\nnow \\ é'}, 'say "hi"\nnow \\ é', 1),
        ({}, {"text": 'say "hi"'}, r"say \"hi\"", 1),
        ({}, ["a\tb"], "a b", 0),
        ({}, "it is 2", 2.0, 1),
        ({}, "soit 10\u202f000\u00a0€", "10 000 €", 1),
        ({}, None, "n", 0),
        ({}, {"result": "Paris", "why": "not Rome"}, "Rome", 0),
        ({}, {"result": "Paris", "why": "not Rome"}, ["Paris", "ari"], 1),
    ],
)
def test_contains(config, result, expected, value):
    assert value_of({"type": "contains", **config}, result, expected) == value


@pytest.mark.parametrize(
    ("config", "result", "expected", "value"),
    [
        ({"pattern": r"\d{3}"}, "call 911", None, 1),
        ({"pattern": "cafe\u0301"}, "caf\u00e9", None, 1),
        ({}, "caf\u00e9", ["tea", "cafe\u0301"], 1),
        ({"pattern": r'"hi"\s+now'}, {"text": 'say "hi"\nnow'}, None, 1),
        ({"pattern": r"^(?!.*error)"}, {"a": "fine", "b": "error"}, None, 0),
        ({"pattern": r"^\d{3}$"}, "call 911", None, 0),
        ({}, "call 911", r"\d+", 1),
        ({"case_sensitive": False}, "ABC", "abc", 1),
        ({}, "b", ["a", "b"], 1),
        ({}, "c", ["a", "b"], 0),
        ({"pattern": r"\w+"}, None, None, 0),
        ({"pattern": "^yes$"}, "yes\r\n", None, 1),
        ({"pattern": "a\r\nb"}, "a\r\nb", None, 1),
        ({"pattern": "caf\u00e9"}, "cafe\u0301", None, 1),
        ({"pattern": "^[^\u00a0]*$"}, "10\u00a0km", None, 0),
        ({"pattern": "\u00a0km"}, "10\u00a0km", None, 1),
        ({"pattern": "0 km"}, "10\u00a0km", None, 0),
        ({"pattern": "[\u3000-\u303f]"}, "plain English", None, 0),
        ({}, "no quotes", "[\u2018-\u201f]", 0),
        ({}, "l\u2019eau", "[\u2010-\u2019]", 1),
        ({}, "l\u2019eau", "^[^\u2019]*$", 0),
        ({"pattern": "^Paris$"}, {"result": "Paris", "why": "x"}, None, 1),
        ({}, {"result": "Paris", "why": "x"}, "why", 0),
    ],
)
def test_regex(config, result, expected, value):
    assert value_of({"type": "regex", **config}, result, expected) == value


@pytest.mark.parametrize(
    ("config", "result", "expected", "value"),
    [
        ({}, 3, 3, 1),
        ({}, 3.0001, 3, 0),
        ({"tolerance": 0.5}, 3.5, 3, 1),
        ({"tolerance": 0.5}, 3.51, 3, 0),
        ({"relative_tolerance": 0.1}, 109.9, 100, 1),
        ({"relative_tolerance": 0.1}, -109.9, -100, 1),
        ({}, " 1,234.5 ", 1234.5, 1),
        ({}, "$12", "12", 1),
        ({}, "1e3", 1000, 1),
        ({"relative_tolerance": 0.1}, 109, [1, "100"], 1),
        ({"tolerance": 0.1}, "1.1", 1, 1),
        ({"tolerance": 0.1}, 0.7, "0.8", 1),
        ({"tolerance": 0.1}, "1.1000001", 1.0, 0),
        ({"relative_tolerance": 0.01}, "-1.01", -1, 1),
        ({}, "12345678901234567", 12345678901234568, 0),
        ({}, ".5", 0.5, 1),
        ({}, "-$5", -5, 1),
        ({}, "$-5", -5, 1),
        ({}, "\N{MINUS SIGN}5", -5, 1),
        ({}, "5 €", 5, 1),
        ({}, "12 %", 12, 1),
        ({}, "50%", 0.5, 0),
        ({}, "1\u202f234\u00a0567.5", 1234567.5, 1),
        ({}, "1'234", 1234, 1),
        ({}, "12\u00a0€", 12, 1),
    ],
)
def test_numeric(config, result, expected, value):
    assert value_of({"type": "numeric", **config}, result, expected) == value


@pytest.mark.parametrize(
    "result",
    [
        "about 3", "0,123", "$", "", "3 or 4", None, True, [3], "nan", "1e999", "e5",
        "1e-99999999999999999999",
    ],
)  # fmt: skip
def test_an_answer_that_is_no_number_is_the_candidates_fault(result):
    with pytest.raises(CandidateFault) as caught:
        value_of({"type": "numeric"}, result, 3)
    assert caught.value.error_type == "not_numeric"


SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"a": 1}, 1), ({"a": "1"}, 0), ({}, 0), ('{"a": 1}', 1), ("{'a': 1}", 0), ("", 0),
        ('{"a": 1, "b": NaN}', 0), ("[" * 99_999, 0),
    ],
)  # fmt: skip
def test_json_schema(result, value):
    assert value_of({"type": "json_schema", "schema": SCHEMA}, result, None) == value
    assert value_of({"type": "json_schema"}, result, SCHEMA) == value


def test_a_schema_never_fetches_what_it_refers_to():
    schema = {"$ref": "http://127.0.0.1:1/schema.json"}
    with pytest.raises(ConfigurationError, match="must define all its references"):
        value_of({"type": "json_schema", "schema": schema}, {}, None)
    # What a case expects is a schema as well.
    with pytest.raises(EvaluatorFault, match="must define all its references"):
        value_of({"type": "json_schema"}, {}, schema)


@pytest.mark.parametrize(
    ("schema", "rule"),
    [
        ({"properties": {"a": {"$ref": "#/$defs/gone"}}}, "but lacks /\\$defs/gone"),
        ({"$ref": "#"}, "endlessly"),
    ],
)
def test_a_schema_whose_references_cannot_be_followed_is_refused(schema, rule):
    with pytest.raises(ConfigurationError, match=rule):
        value_of({"type": "json_schema", "schema": schema}, {}, None)


@pytest.mark.parametrize("method", get_args(SimilarityMetric.model_fields["method"].annotation))
def test_similarity_is_1_for_equal_texts_and_small_for_others(method):
    config = {"type": "similarity", "method": method}
    assert value_of(config, "the same text", "the same text") == 1.0
    assert value_of(config, "the same text", "ZZZZ 999") < 0.5


@pytest.mark.parametrize("method", get_args(SimilarityMetric.model_fields["method"].annotation))
@given(st.text(max_size=30), st.text(max_size=30))
def test_similarity_lies_in_0_1_and_is_symmetric(method, a, b):
    (metric,) = made(quality={"weight": 1, "type": "similarity", "method": method})
    one, two = measure(metric, a, b), measure(metric, b, a)
    assert 0.0 <= one <= 1.0
    assert one == pytest.approx(two)


ROMANIAN = "Producția de zahăr primă va fi exprimată în ceea ce privește zahărul alb;"
BROWN, FOX = (
    "The quick brown dog jumps on the log.",
    "The quick brown fox jumps over the lazy dog",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "result", "expected", "value"),
    [
        # Of sacrebleu's own tests and README.
        ({}, ROMANIAN, "producţia de zahăr brut se exprimă în zahăr alb;", 0.08493),
        ({}, "this is a cat", "okay thanks", 0.0),
        ({}, "The dog bit the man.", ["The dog had bit the man.", "The dog bit the man."], 1.0),
        # Precisions 6/7, 2/6, 1/5 and, smoothed, 1/8; worse against either text alone.
        (
            *({}, "The man had just bitten him."),
            *(["The man bit him first.", "The man had bitten the dog."], (1 / 140) ** 0.25),
        ),
        ({}, "paris", "Paris", 0.0),
        ({"case_sensitive": False}, "paris", "Paris", 1.0),
        ({}, "", "Paris", 0.0),
    ],
)
def test_bleu_is_that_of_sacrebleu(config, result, expected, value):
    pytest.importorskip("sacrebleu", reason="needs the extra `text-metrics`")
    assert value_of({"type": "bleu", **config}, result, expected) == pytest.approx(value, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "result", "expected", "value"),
    [
        # Of rouge-score's README: precision 6/8 and recall 6/9, 5/8 and 5/9.
        ({"method": "rouge1"}, BROWN, FOX, 12 / 17),
        ({"method": "rouge2"}, BROWN, FOX, 4 / 15),
        ({}, BROWN, FOX, 10 / 17),
        ({}, BROWN, ["x", FOX], 10 / 17),
        ({"method": "rouge2"}, "Paris", "Paris", 1.0),
        ({}, "в москве", "Москва", 0.0),
        ({}, "Это Москва.", "Москва", 2 / 3),
        ({}, "", "Paris", 0.0),
        ({}, "cafe\u0301 noir", "un caf\u00e9", 0.5),
        ({}, "मैं हिन्दी", "मैं हिंदी", 0.5),
        ({}, "\u06a9\u062a\u0627\u0628\u200c\u0647\u0627", "\u06a9\u062a\u0627\u0628", 0.0),
        ({}, '{"b": 2,"a": "x y"}', {"a": "x y", "b": 2}, 1.0),
    ],
)
def test_rouge_is_that_of_rouge_score_for_every_alphabet(config, result, expected, value):
    pytest.importorskip("rouge_score", reason="needs the extra `text-metrics`")
    assert value_of({"type": "rouge", **config}, result, expected) == pytest.approx(value)


@pytest.mark.slow
def test_rouge_of_texts_whose_table_fills_the_memory_is_missing():
    pytest.importorskip("rouge_score", reason="needs the extra `text-metrics`")
    long = "word " * 2_001
    with pytest.raises(EvaluatorFault, match="at most 4,000,000 pairs of words"):
        value_of({"type": "rouge"}, long, long + "more")
    assert value_of({"type": "rouge", "method": "rouge2"}, long, long + "more") > 0.999


def test_a_missing_library_of_a_metric_is_named_with_its_command_before_a_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(ConfigurationError) as caught:
        made(bleu={}, rouge={"method": "rouge1"})
    first, second = caught.value.problems
    assert (first.key, second.key) == (
        "evaluation.metrics.bleu.type",
        "evaluation.metrics.rouge.type",
    )
    assert first.rule == "needs the package sacrebleu, which is not installed"
    assert second.fix.endswith("[text-metrics]'.")


_ANSWER = '{"answer": "Paris", "total": 12.5}'


@pytest.mark.parametrize(
    "text", [_ANSWER, f"```json\n{_ANSWER}\n```", f"\n~~~~\n{_ANSWER}\n~~~~\n"]
)
def test_json_that_is_a_whole_text_or_code_fence_is_read_by_every_metric(text):
    both = {"field": "answer", "expected_field": "answer"}
    assert value_of({"type": "exact_match", **both}, text, {"answer": "Paris"}) == 1
    assert value_of({"type": "exact_match", **both}, text, text) == 1
    assert value_of({"type": "exact_match", **both}, text, {"answer": "Rome"}) == 0
    assert value_of({"type": "numeric", "field": "total", "tolerance": 9.5}, text, 3) == 1
    whole = {"answer": "Paris", "total": 12.5}
    (metric,) = made(quality={"type": "exact_match", "weight": 1})
    assert measure(metric, text, whole) == 1
    (metric,) = made(
        quality={"type": "json_schema", "weight": 1}, case={"input": "x", "expected": {}}
    )
    assert measure(metric, text, {"required": ["answer"]}) == 1
    assert measure(metric, text, {"required": ["capital"]}) == 0


@pytest.mark.parametrize(
    "text",
    [f"Here: {_ANSWER}", f"```\n{_ANSWER}\n```\n```\n{_ANSWER}\n```", f"```\n{_ANSWER}", "5"],
)
def test_a_field_of_a_text_that_is_not_all_json_is_missing(text):
    with pytest.raises(CandidateFault, match="has no field `answer`"):
        value_of({"type": "exact_match", "field": "answer"}, text, "Paris")


CALL = {"name": "look", "arguments": {"city": "Paris"}}


@pytest.mark.parametrize("place", [{}, {"field": "content"}])
@pytest.mark.parametrize("kind", ["exact_match", "contains", "regex", "similarity"])
@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("Paris", 1.0),
        ({"content": "Paris", "tool_calls": [CALL]}, 1.0),
        ({"content": "Paris", "tool_calls": []}, 1.0),
        ({"tool_calls": [CALL]}, 0.0),
        ({"role": "assistant", "content": "Paris", "tool_calls": [CALL]}, 1.0),
        ({"role": "assistant", "content": "Paris", "refusal": None, "annotations": []}, 1.0),
    ],
)
def test_a_metric_of_texts_reads_the_text_beside_the_calls_of_tools(kind, place, answer, value):
    expected = {"text": "Paris", "tool_calls": [CALL]}
    assert value_of({"type": kind, "expected_field": "text", **place}, answer, expected) == value
    assert value_of({"type": "regex", "pattern": "Paris", **place}, answer, expected) == value
    check = {"type": kind, "expected": "Paris", "not": True}
    assert (
        value_of({"type": "checks", "expected_field": "c", **place}, answer, {"c": [check]})
        == 1 - value
    )
    assert value_of({"type": "exact_match", "expected_field": "all"}, answer, {"all": answer}) == 1


def test_a_missing_field_is_the_candidates_fault():
    with pytest.raises(CandidateFault, match=r"answer\.text"):
        value_of({"type": "exact_match", "field": "answer.text"}, {"answer": "x"}, "x")


# -- functions of the user's


def function_metrics(evaluator, *names) -> Any:
    return made(evaluator=evaluator, **{name: {"weight": 1, "type": "function"} for name in names})


def value_from(evaluator, value="r", expected="e", **reply) -> Any:
    (metric,) = function_metrics(evaluator, "quality")
    return measure(metric, value, expected, params={"k": 2}, **reply)


def core(result, expected, params, metric) -> Any:
    assert (result, expected, params, metric) == ("r", "e", {"k": 2}, "quality")
    return 0.5


def core_renamed(a, b, c, d):
    return core(a, b, c, d)


def core_short(a, b):
    assert (a, b) == ("r", "e")
    return 0.5


def core_of_one(a):
    assert a == "r"
    return 0.5


def core_reordered(metric, params, result):
    return core(result, "e", params, metric)


def core_own_name(expected, answer, params):
    return core(answer, expected, params, "quality")


def core_with_input(answer, input):  # noqa: A002 - the documented name
    assert (answer, input) == ("r", "x")
    return 0.5


def core_any(*everything):
    return core(*everything)


def core_keywords(**everything):
    return core(**everything)


def sdk(prediction, expected, context=None):
    assert (prediction, expected) == ({"result": "r"}, "e")
    assert context["params"] == {"k": 2}
    return {"quality": 0.5, "other": 0.25}


def sdk_without_context(prediction, expected):
    assert (prediction, expected) == ({"result": "r"}, "e")
    return 0.5


async def core_async(result, expected, params, metric):
    await asyncio.sleep(0)
    return core(result, expected, params, metric)


def test_an_async_evaluator_behind_a_wrapper_runs_in_one_loop_over_all_answers():
    loops = []

    async def later(result: Any) -> float:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        return float(result)

    (metric,) = function_metrics(lambda result, expected: later(result), "quality")

    async def go() -> list[Any]:
        case = Case(case_id="a", input="x", expected=None)
        replies = [Reply(value=n, latency_ms=1.0) for n in range(5)]
        try:
            return [await metric.measure(reply, case, {}) for reply in replies]
        finally:
            await metric.aclose()

    assert asyncio.run(go()) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len(set(loops)) == 1


@pytest.mark.parametrize(
    "function",
    [
        core,
        core_renamed,
        core_short,
        core_of_one,
        core_reordered,
        core_own_name,
        core_with_input,
        core_any,
        core_keywords,
        core_async,
        sdk,
        sdk_without_context,
    ],
)
def test_both_call_forms_of_the_original_work(function):
    assert value_from(function) == 0.5


@pytest.mark.parametrize(
    "function",
    [lambda a, b, expected: 0.5, lambda a, result, b: 0.5, lambda case, a, b: 0.5],
    ids=["expected", "result", "case"],
)
def test_a_known_name_at_anothers_place_is_refused(function):
    with pytest.raises(
        ConfigurationError, match=r"must take \(result, expected, params, metric\)"
    ):
        function_metrics(function, "quality")


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        (1, 1.0),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.array(0.5), 0.5),
        ({"quality": 0.25, "score": 1}, 0.25),
        ({"score": 0.25}, 0.25),
        ({"value": np.int64(3)}, 3.0),
        (None, None),
    ],
)
def test_numbers_and_dictionaries_are_read(returned, value):
    assert value_from(lambda result, expected: returned) == value


@pytest.mark.parametrize(
    ("returned", "error_type"),
    [
        (float("nan"), "not_finite"),
        (10**400, "not_finite"),
        (float("-inf"), "not_finite"),
        (np.array(np.nan), "not_finite"),
        ({"score": float("nan")}, "not_finite"),
        ({"other": 1}, "no_number"),
        ("0.5", "no_number"),
        ([1], "no_number"),
        (object(), "no_number"),
    ],
)
def test_what_is_no_finite_number_is_the_evaluators_fault(returned, error_type):
    with pytest.raises(EvaluatorFault) as caught:
        value_from(lambda result, expected: returned)
    assert caught.value.error_type == error_type
    assert "`quality`" in str(caught.value)


def test_a_function_reads_the_parts_that_its_metric_names():
    config = {"weight": 1, "type": "function", "field": "a", "expected_field": "b"}
    (metric,) = made(evaluator=core_short, quality=config)
    assert measure(metric, {"a": "r"}, {"b": "e"}) == 0.5
    with pytest.raises(CandidateFault, match="no field `a`"):
        measure(metric, "r", {"b": "e"})


@pytest.mark.parametrize("takes_metric", [False, True])
def test_an_evaluator_of_several_metrics_is_called_once_unless_it_wants_the_name(takes_metric):
    calls = []

    def shared(prediction, expected, context):
        calls.append("all")
        return {"a": 0.25, "b": 0.5}

    def named(result, expected, params, metric):
        calls.append(metric)
        return {"a": 0.25, "b": 0.5}[metric]

    metrics = function_metrics(named if takes_metric else shared, "a", "b")
    with session(ScriptedTarget(lambda p, c: 0), metrics=metrics) as s:
        trial = s.evaluate(assignment({"k": 1}, ["c0", "c1"]), 0)
    assert [e.metrics for e in trial.evaluations] == [{"a": 0.25, "b": 0.5}] * 2
    assert sorted(calls) == (["a", "a", "b", "b"] if takes_metric else ["all", "all"])


def test_all_functions_that_cannot_be_loaded_are_told_at_once(tmp_path):
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "raises.py").write_text("\n\nraise RuntimeError('at import')\n")
    (tmp_path / "fine.py").write_text("def quality(a, b): return 1\nnumber = 3\n")
    with pytest.raises(ConfigurationError) as caught:
        made(
            tmp_path,
            a={"weight": 1, "function": "broken.py:f"},
            b={"weight": 1, "function": "raises.py:f"},
            c={"weight": 1, "function": "fine.py:qualty"},
            d={"weight": 1, "function": "fine.py:number"},
            e={"weight": 1, "function": "none.py:f"},
            f={"weight": 1, "function": "no_such_module_here:f"},
        )
    told = {p.key.split(".")[2]: p for p in caught.value.problems}
    assert sorted(told) == ["a", "b", "c", "d", "e", "f"]
    assert (told["a"].line, told["a"].file) == (1, str(tmp_path / "broken.py"))
    assert (told["b"].line, told["b"].file) == (3, str(tmp_path / "raises.py"))
    assert "at import" in told["b"].rule
    assert "`quality`" in told["c"].fix
    assert "function" in told["d"].rule
    assert "exists" in told["e"].rule
    assert "no_such_module_here" in told["f"].fix


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"b": 2, "a": 1}, '{"a":1,\n "b": 2}'),
        ('{"b":2,"a":1}', {"a": 1, "b": 2}),
        ([1, {"x": "é"}], ['[1,{"x":"\\u00e9"}]']),
    ],
)
def test_similarity_compares_json_with_its_text_by_value(result, expected):
    assert value_of({"type": "similarity"}, result, expected) == 1.0


@pytest.mark.parametrize("result", [["a", "b"], '["a", "b"]', "b"])
@pytest.mark.parametrize(
    "kind",
    [
        "similarity",
        pytest.param("bleu", marks=pytest.mark.slow),
        pytest.param("rouge", marks=pytest.mark.slow),
    ],
)
def test_a_likeness_is_the_best_of_the_whole_list_and_its_items(kind, result):
    if kind != "similarity":
        pytest.importorskip({"bleu": "sacrebleu", "rouge": "rouge_score"}[kind])
    assert value_of({"type": kind, "expected_field": "x"}, result, {"x": ["a", "b"]}) == 1.0


@pytest.mark.parametrize("expected", [[], [{"type": "checks", "expected": []}]])
def test_checks_without_any_are_refused(expected):
    config = {"type": "checks", "expected_field": "mine"}
    case = {"id": "a", "input": "x", "expected": {"mine": [{"type": "contains", "expected": "x"}]}}
    (metric,) = made(case=case, quality={"weight": 1, **config})
    with pytest.raises(EvaluatorFault, match="must hold at least one check"):
        measure(metric, "x", {"mine": expected})
