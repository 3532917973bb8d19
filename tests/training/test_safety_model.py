"""The safety model that a configuration names: an endpoint of either form, and a classifier here."""

import json
from typing import Any

import pytest

from tasks.training.adapter_checks import _new_flags
from tasks.training.safety_model import SafetyModelError, open_safety_model
from tests.support.configurations import loaded
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer
from tests.training.test_adapter_checks import HARSH, MILD, answered

SECRET = "canary-0123456789"  # noqa: S105 - not one
PRICED: dict[str, Any] = {"prices": {"guard": {"input": 1.0, "output": 1.0}}}


def flagging(request: Request) -> Answer:
    """Flag what holds `bleach`, in the form that is asked for."""
    if request.path.endswith("/moderations"):
        is_flagged = "bleach" in request.body["input"]
        results = [{"flagged": is_flagged, "categories": {}, "category_scores": {}}]
        return Answer({"id": "modr-1", "model": "guard", "results": results})
    is_flagged = "bleach" in request.body["messages"][-1]["content"]
    return chat_answer(json.dumps({"reasoning": "as it is", "passed": not is_flagged}))


def made(url: str, form: str = "moderation", **settings: Any) -> Any:
    model = {"model": "openai/guard", "base_url": f"{url}/v1", "form": form}
    return loaded(feedback={"safety": {"model": model | {"api_key_env": "GUARD_KEY"}}}, **settings)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GUARD_KEY", SECRET)


@pytest.mark.parametrize("form", ["moderation", "chat"])
def test_an_endpoint_of_either_form_flags_and_is_asked_each_text_once(form: str):
    with LoopbackServer(flagging) as server:
        model = open_safety_model(made(server.url, form))
        assert model is not None
        asked = [("q", "take bleach"), ("q", "take tea"), ("q", "take bleach")]
        assert model.flags(asked) == [True, False, True]
        assert model.flags(asked) == [True, False, True]
    paths = {"moderation": "/v1/moderations", "chat": "/v1/chat/completions"}
    assert [one.path for one in server.requests] == [paths[form]] * 2
    assert {one.body["model"] for one in server.requests} == {"guard"}
    assert {one.headers["authorization"] for one in server.requests} == {f"Bearer {SECRET}"}


def test_the_gate_counts_what_the_model_flags_more_often_and_says_what_was_paid():
    with LoopbackServer(flagging) as server:
        model = open_safety_model(made(server.url, "chat", **PRICED))
        n, words = _new_flags(answered(HARSH, MILD), None, "no classifier", model)
        assert n == 40
        assert words.startswith(
            "`openai/guard` flags 40 of 40, and 0 of what answers now, 40 calls, $"
        )
        assert words.endswith("; no classifier")
        assert _new_flags(answered(MILD, HARSH), None, "", model)[0] == 0
        assert len(server.requests) == 40


@pytest.mark.parametrize(
    ("budget", "told"),
    [({"max_calls": 3}, "max_calls"), ({"max_usd": 1e-9}, "max_usd")],
)
def test_the_limits_of_the_budget_hold(budget: dict[str, float], told: str):
    with LoopbackServer(flagging) as server:
        model = open_safety_model(made(server.url, **PRICED, budget=budget))
        assert model is not None
        with pytest.raises(SafetyModelError, match=told):
            model.flags([("q", f"text {k}") for k in range(9)])
    assert len(server.requests) == (3 if "max_calls" in budget else 0)


@pytest.mark.parametrize(
    "answer",
    [
        Answer({"results": []}),
        Answer({"results": [{"flagged": "no"}]}),
        Answer({"error": {"message": f"bad key {SECRET}"}}, status=401),
    ],
)
def test_without_a_verdict_nothing_counts_as_safe_and_no_key_is_shown(answer: Answer):
    with LoopbackServer(lambda _: answer) as server:
        model = open_safety_model(made(server.url))
        assert model is not None
        with pytest.raises(SafetyModelError, match=r"feedback\.safety\.model") as raised:
            model.flags([("q", "a")])
    assert SECRET not in str(raised.value)
