"""Chat models of installed packages: as targets, and as judges."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from convergence_core.config import LlmConfig
from convergence_core.errors import CandidateFault, ConfigurationError, InfrastructureFault
from convergence_core.ports import LLM
from convergence_core.records import Case
from tasks.inputs.environment import Environment, prices_of
from tasks.inputs.factories import make_target
from tasks.providers import billing_provider, make_llm, split_model
from tasks.secrets.redaction import Secrets
from tests.support.configurations import loaded
from tests.support.plugin_packages import ECHO, ECHO_ENTRIES, install

API = {
    "name": "system",
    "kind": "plugin_chat",
    "plugin": "parrot",
    "request": {
        "timeout_seconds": 0.3,
        "options": {"model": "grey"},
        "messages": [{"role": "user", "content": "{input.q}"}],
    },
}
SPACE = {"temperature": {"type": "float", "min": 0, "max": 1, "default": 0.5}}
SECRET = "canary-0123456789"  # noqa: S105 - not one


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    install(folder, "acme-echo", ECHO, ECHO_ENTRIES)
    yield folder
    sys.modules.pop("acme_echo", None)


def made(*, prices: Any = None, mock_url: str | None = None, **api: Any) -> Any:
    configured = loaded(api={**API, **api}, search_space__parameters=SPACE, prices=prices or {})
    environment = Environment(
        secrets=Secrets({"ACME_TOKEN": SECRET}),
        prices=prices_of(configured.configuration),
        mock_url=mock_url,
    )
    return make_target(configured, environment)


def asked(target: Any, question: str) -> Any:
    async def go() -> Any:
        try:
            return await target.call(
                {"temperature": 0.5}, Case(case_id="a", input={"q": question})
            )
        finally:
            await target.aclose()
            await target.aclose()

    return asyncio.run(go())


def test_it_is_a_chat_target_priced_by_its_tokens():
    target = made(prices={"grey": {"input": 1.0, "output": 2.0, "max_output_tokens": 100}})
    case = Case(case_id="a", input={"q": "hello"})
    request = target.request({"temperature": 0.5}, case)
    assert request["base_url"] == "plugin:parrot@1.0"
    assert request["body"]["temperature"] == 0.5
    worst = target.worst_case({"temperature": 0.5}, case)
    assert worst.tokens is not None
    assert 100 <= worst.tokens < 1000
    assert worst.usd is not None
    reply = asked(target, "hello")
    assert (reply.value, reply.model, reply.provider) == ("hello", "grey-2026", "plugin_chat")
    assert reply.cost_usd == pytest.approx((3 * 1.0 + 4 * 2.0) / 1e6)
    assert reply.finish_reason == "stop"


@pytest.mark.parametrize(
    ("question", "kind", "error_type"),
    [
        ("overload", InfrastructureFault, "http_529"),
        ("hang", InfrastructureFault, "timeout"),
        ("key", CandidateFault, "ValueError"),
        ("silence", CandidateFault, "empty_reply"),
        ("debt", CandidateFault, "bad_bill"),
    ],
)
def test_what_goes_wrong_is_a_fault_of_its_kind(question, kind, error_type):
    with pytest.raises(kind) as caught:
        asked(made(), question)
    assert caught.value.error_type == error_type


def test_its_key_reaches_the_plugin_and_no_request():
    target = made(auth={"token_env": "ACME_TOKEN"})
    assert SECRET not in str(
        target.request({"temperature": 0.5}, Case(case_id="a", input={"q": "x"}))
    )
    with pytest.raises(CandidateFault, match=SECRET):
        asked(target, "key")


def llm(model: str = "plugin/parrot/grey", **more: Any) -> tuple[LlmConfig, LLM]:
    config = LlmConfig.model_validate({"model": model, **more})
    return config, make_llm(config, Secrets({"ACME_TOKEN": SECRET}))


def test_a_judge_s_model_is_one_of_a_plugin():
    config, model = llm(api_key_env="ACME_TOKEN")
    assert isinstance(model, LLM)
    assert split_model(config.model) == ("plugin", "parrot/grey")
    assert billing_provider(config) == ("plugin_chat", "parrot/grey")

    async def go() -> Any:
        try:
            message = {"role": "user", "content": "verdict"}
            return await model.complete(
                [message], model=split_model(config.model)[1], max_tokens=5
            )
        finally:
            await model.aclose()

    completion = asyncio.run(go())
    assert completion.text == '{"rating": 9}'
    assert completion.model == "grey-2026"  # the plugin is asked for its own name of the model


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"model": "plugin/parrot"}, "must name a plugin and its model after `plugin/`"),
        (
            {"model": "plugin/parrot/x", "endpoint": "https://h.example/v1"},
            "the plugin knows where",
        ),
    ],
)
def test_a_judge_s_configuration_is_checked(written, message):
    metrics = {"good": {"type": "llm_judge", "weight": 1, "rubric": "r", "llm": written}}
    with pytest.raises(ConfigurationError, match=message):
        loaded(evaluation__metrics=metrics)


def test_offline_a_stand_in_answers_in_its_place():
    target = made(mock_url="http://127.0.0.1:1")
    request = target.request({"temperature": 0.5}, Case(case_id="a", input={"q": "x"}))
    assert request["body"]["model"] == "grey"
    asyncio.run(target.aclose())
