"""Rules of metrics of type ``llm_judge``, and of the model that judges."""

from typing import Any

import pytest

from convergence_core.config import JudgeMetric, LlmConfig, parse_mapping
from convergence_core.config.evaluation_rules import check_judges, judge_note
from convergence_core.errors import ConfigurationError
from tests.support.config_examples import (
    JUDGED,
    MINIMAL,
    REMOVED,
    Rule,
    check_rule,
    edited,
    problems_of,
)

P = "search_space/parameters/"
Q = "evaluation/metrics/quality"
KEY = "evaluation.metrics.quality"
LLM = {"model": "openai/gpt-4o-mini", "api_key_env": "OPENAI_API_KEY"}
CHAMPION = {"t": 0.5, "n": 3, "m": "a"}
PAIRWISE = edited({Q + "/mode": "pairwise", Q + "/champion": CHAMPION}, JUDGED)

RULES: dict[str, tuple[dict[str, Any], Rule]] = {
    "blank rubric": (
        JUDGED,
        ({Q + "/rubric": " "}, f"{KEY}.rubric", "must not be empty", "good answer"),
    ),
    "two rubrics": (
        JUDGED,
        (
            {Q + "/rubric_path": "a.md"},
            f"{KEY}.rubric_path",
            "cannot be combined with `rubric`",
            "Remove one",
        ),
    ),
    "votes that may tie": (
        JUDGED,
        ({Q + "/votes": 2}, f"{KEY}.votes", "must be odd", "Write 3"),
    ),
    "champion of ratings": (
        JUDGED,
        ({Q + "/champion": "default"}, f"{KEY}.champion", "with mode `rating`", "mode: pairwise"),
    ),
    "champion that is a text": (
        PAIRWISE,
        ({Q + "/champion": "best"}, f"{KEY}.champion", "must be `default` or a mapping", "small"),
    ),
    "labels of pairs": (
        PAIRWISE,
        (
            {Q + "/label_field": "label"},
            f"{KEY}.label_field",
            "labels are of answers",
            "mode: rating",
        ),
    ),
    "least rating from 1 to 10": (
        JUDGED,
        ({Q + "/min": 7}, f"{KEY}.min", "between 0 and 1", "0.667 for a rating of 7"),
    ),
    "scale from 1 to 10": (
        JUDGED,
        (
            {Q + "/scale": {"good": 10, "bad": 0}},
            f"{KEY}.scale.good",
            "between 0 and 1",
            "Write 1 for a rating of 10",
        ),
    ),
    "model without a provider": (
        JUDGED,
        ({"llm/model": "gpt-4o-mini"}, "llm.model", "must begin with `openai/`", "`endpoint:`"),
    ),
    "provider without a key": (
        JUDGED,
        (
            {"llm": {"model": "groq/x"}},
            "llm.api_key_env",
            "is required by models of `groq`",
            "GROQ_API_KEY",
        ),
    ),
    "azure without an endpoint": (
        JUDGED,
        (
            {"llm/model": "azure/x"},
            "llm.endpoint",
            "is required by models of `azure`",
            "your resource",
        ),
    ),
    "judge for nobody": (
        MINIMAL,
        ({"llm": LLM}, "llm", "no metric of type `llm_judge` uses it", "Remove it"),
    ),
    "judge in both places": (
        JUDGED,
        ({"society/llm": LLM}, "society.llm", "cannot be combined with `llm`", "Remove one"),
    ),
}

OF_JUDGES: dict[str, Any] = {
    "mode": "pass_fail",
    "rubric": "x",
    "rubric_path": "x.md",
    "votes": 3,
    "champion": "default",
    "label_field": "label",
    "llm": LLM,
}


@pytest.mark.parametrize("name", RULES)
def test_rule_is_reported_where_it_is_broken(name):
    base, rule = RULES[name]
    check_rule(rule, base)


@pytest.mark.parametrize("key", OF_JUDGES)
def test_key_of_judges_is_refused_on_another_metric(key):
    changes = {f"evaluation/metrics/exact_match/{key}": OF_JUDGES[key]}
    (problem,) = problems_of(changes)
    assert problem.key == f"evaluation.metrics.exact_match.{key}"
    assert problem.rule == "has no effect with type `exact_match`"
    assert "`llm_judge`" in problem.fix


@pytest.mark.parametrize(
    ("base", "changes"),
    [
        (JUDGED, {Q + "/rubric": REMOVED, Q + "/rubric_path": "rubric.md"}),
        (JUDGED, {Q + "/mode": "pass_fail", Q + "/votes": 5, Q + "/label_field": "expected.a[0]"}),
        (JUDGED, {Q + "/field": "answer", Q + "/expected_field": "text"}),
        (JUDGED, {Q + "/scale": {"good": 1, "bad": 0.5}, Q + "/min": 0.1, Q + "/max": 1}),
        (JUDGED, {"llm": REMOVED, Q + "/llm": LLM}),
        (JUDGED, {"llm": {"model": "local", "endpoint": "http://127.0.0.1:1/v1"}}),
        (JUDGED, {"llm": {"model": "any/thing", "endpoint": "https://x/v1", "api_key_env": "K"}}),
        (PAIRWISE, {}),
        (PAIRWISE, {P + "n/when": {"m": "b"}, Q + "/champion": {"t": 0, "m": "a"}}),
        (PAIRWISE, {P + "p": {"type": "text", "variants": ["a.md", "b"]}, Q + "/champion/p": "a.md"}),
        (
            PAIRWISE,
            {
                Q + "/champion": "default",
                P + "t/default": 0.5,
                P + "n/default": 1,
                P + "m/default": "a",
            },
        ),
    ],
)  # fmt: skip
def test_what_is_right_for_a_judge_is_accepted(base, changes):
    assert problems_of(changes, base) == []


def judge_of(changes: dict[str, Any]) -> JudgeMetric:
    return parse_mapping(edited(changes, JUDGED)).evaluation.judges["quality"]


def test_the_original_place_and_spelling_of_the_model_are_read():
    written = {"model": "m", "base_url": "http://x/v1", "temperature": 0.7, "max_tokens": 1000}
    configuration = parse_mapping(
        edited({"llm": REMOVED, "society": {"enabled": False, "llm": written}}, JUDGED)
    )
    assert configuration.llm == LlmConfig(
        model="m", endpoint="http://x/v1", temperature=0.7, max_tokens=1000
    )


def test_a_temperature_left_empty_is_not_sent():
    assert judge_of({Q + "/llm": {"temperature": None}}).llm == LlmConfig(
        model="openai/gpt-4o-mini", api_key_env="OPENAI_API_KEY", temperature=None
    )
    configuration = parse_mapping(edited({"llm/temperature": None}, JUDGED))
    assert configuration.llm is not None
    assert configuration.llm.temperature is None
    assert parse_mapping(edited({"llm/max_tokens": None}, JUDGED)).llm == LlmConfig(
        model="openai/gpt-4o-mini", api_key_env="OPENAI_API_KEY"
    )


@pytest.mark.parametrize(
    ("general", "own", "endpoint", "key"),
    [
        ({}, {"model": "openai/large"}, None, "OPENAI_API_KEY"),
        ({}, {"model": "groq/x", "api_key_env": "GROQ_KEY"}, None, "GROQ_KEY"),
        ({}, {"endpoint": "http://x/v1"}, "http://x/v1", None),
        ({"endpoint": "http://y"}, {"votes": 1}, "http://y", "OPENAI_API_KEY"),
        ({"model": "a/b", "endpoint": "http://y"}, {"model": "c/d"}, "http://y", "OPENAI_API_KEY"),
    ],
)
def test_a_key_is_never_sent_to_another_endpoint(general, own, endpoint, key):
    own = {name: value for name, value in own.items() if name != "votes"}
    changes = {f"llm/{name}": value for name, value in general.items()}
    llm = judge_of({**changes, "llm/max_tokens": 9, Q + "/llm": own}).llm
    assert llm is not None
    assert (llm.endpoint, llm.api_key_env, llm.max_tokens) == (endpoint, key, 9)


@pytest.mark.parametrize("written", [JUDGED, PAIRWISE], ids=["rating", "pairwise"])
def test_without_a_rubric_one_is_written_from_the_description(written: dict[str, Any]):
    without = {Q + "/rubric": REMOVED}
    described = {**without, "api/description": "Names the mood."}
    rubric = parse_mapping(edited(described, written)).evaluation.judges["quality"].rubric
    assert rubric is not None
    assert 'This system: "Names the mood."' in rubric
    plain = parse_mapping(edited(without, written))
    assert "does what this system is for" in (plain.evaluation.judges["quality"].rubric or "")


CHAT = {"name": "s", "endpoint": "https://host/v1", "auth": {"token_env": "KEY"}}
OWN_MODELS: dict[str, tuple[dict[str, Any], str | None]] = {
    "the first on offer": (CHAT, "openai/a"),
    "its own endpoint": (
        {
            **CHAT,
            "endpoint": REMOVED,
            "models": {"a": {"endpoint": "https://a/v1"}, "b": {"endpoint": "https://b/v1"}},
        },
        "openai/a",
    ),
    "another provider": ({**CHAT, "kind": "anthropic", "endpoint": REMOVED}, "anthropic/a"),
    "an agent": ({"name": "s", "kind": "agno", "function": "f.py:make"}, "a"),
    "a function": ({"name": "s", "function": "f.py:go"}, None),
    "an endpoint": ({"name": "s", "kind": "http", "endpoint": "https://host/v1"}, None),
    "a local model": ({"name": "s", "kind": "local"}, None),
    "a key in a header": ({**CHAT, "request": {"headers": {"X-Key": "${KEY}"}}}, None),
    "a password": (
        {**CHAT, "auth": {"type": "basic", "username": "u", "password_env": "KEY"}},
        None,
    ),
    "a key in a header of its own": (
        {**CHAT, "auth": {"type": "api_key", "header_name": "my-key", "token_env": "KEY"}},
        None,
    ),
}


@pytest.mark.parametrize(("api", "model"), OWN_MODELS.values(), ids=OWN_MODELS)
def test_without_an_llm_the_targets_own_model_judges(api: dict[str, Any], model: str | None):
    tree = edited({"llm": REMOVED}, JUDGED)
    tree["api"] = {name: value for name, value in api.items() if value is not REMOVED}
    tree["search_space"] = {"parameters": {"model": ["a", "b"]}}
    configuration = parse_mapping(tree)
    judge = configuration.judge_of(configuration.evaluation.judges["quality"])
    assert (judge and judge.model) == model
    if judge is None or model is None:
        assert judge_note(configuration) is None
        assert str(judge_note(configuration, is_offline=True)).startswith("the mock (no society")
        with pytest.raises(
            ConfigurationError, match=r"metrics.quality.llm` is required by .*--offline"
        ):
            check_judges(configuration)
        return
    check_judges(configuration)
    assert judge_note(configuration) == f"{model}, the target's own (no society.llm is named)"
    assert judge.api_key_env == configuration.api.auth.token_env
    if configuration.api.models:
        assert judge.endpoint == "https://a/v1"
    tree["search_space"]["parameters"]["model"] = {
        "type": "categorical", "choices": ["a", "b"], "default": "b"
    }  # fmt: skip
    own = parse_mapping(tree).target_llm
    assert own is not None
    assert own.model == model.removesuffix("a") + "b"
