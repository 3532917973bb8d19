"""Providers that judges ask: named by a model's prefix, with a key from the environment."""

import asyncio
from typing import Any

import pytest

from convergence_core.budget.prices import PriceTable
from convergence_core.config.evaluation import LlmConfig
from convergence_core.records import canonical_json
from tasks.calls.model_calls import Model, answer_and_end
from tasks.providers import billing_provider, make_llm, split_model
from tasks.secrets.redaction import Secrets
from tests.support.chat_servers import ENVIRON, KEY, anthropic_answer
from tests.support.http_server import LoopbackServer, chat_answer


def judged(
    model: str,
    url: str | None,
    *,
    environ: Any = None,
    mock_url: str | None = None,
    **options: Any,
) -> Any:
    config = LlmConfig(model=model, endpoint=url, api_key_env="CANARY")
    llm = make_llm(config, Secrets(ENVIRON if environ is None else environ), mock_url=mock_url)

    async def go() -> Any:
        try:
            messages = [{"role": "user", "content": "hi"}]
            return await llm.complete(messages, model=split_model(model)[1], **options)
        finally:
            await llm.aclose()

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("model", "folder", "path", "header"),
    [
        ("openai/m", "/v1", "/v1/chat/completions", "authorization"),
        ("m", "/v1", "/v1/chat/completions", "authorization"),
        ("groq/m", "/v1", "/v1/chat/completions", "authorization"),
        ("gemini/m", "/v1beta", "/v1beta/openai/chat/completions", "authorization"),
        ("azure/m", "", "/openai/deployments/m/chat/completions", "api-key"),
    ],
)
def test_the_name_of_a_model_says_who_is_asked(model, folder, path, header):
    with LoopbackServer(lambda _: chat_answer("hello")) as server:
        completion = judged(model, server.url + folder)
    (request,) = server.requests
    assert completion.text == "hello"
    assert (request.path, request.body["model"]) == (path, "m")
    assert KEY in request.headers[header]


def test_anthropic_is_asked_in_its_own_protocol_and_by_its_own_name_in_prices():
    with LoopbackServer(lambda _: anthropic_answer("hello")) as server:
        completion = judged("anthropic/m", f"{server.url}/v1", max_tokens=9, temperature=1.5)
    (request,) = server.requests
    assert (completion.text, request.path) == ("hello", "/v1/messages")
    assert request.headers["x-api-key"] == KEY
    assert "authorization" not in request.headers
    assert request.body["max_tokens"] == 9
    assert [text.partition(":")[0] for text in completion.dropped] == ["temperature"]
    assert billing_provider(LlmConfig(model="anthropic/m")) == ("anthropic", "m")
    llm = make_llm(LlmConfig(model="anthropic/m"), Secrets({}))
    assert llm.base_url == "https://api.anthropic.com/v1"


def call_of(model: str, endpoint: str, llm: Any = None, **more: Any) -> Any:
    llm = llm or make_llm(LlmConfig(model=model, endpoint=endpoint), Secrets({}))
    asked = Model(
        llm=llm, name=split_model(model)[1], prices=more.pop("prices", PriceTable(version=""))
    )
    return asked.call("judge", [], {"max_tokens": 9, **more}, key={}, read=answer_and_end)


@pytest.mark.parametrize(
    ("model", "endpoint", "base_url"),
    [
        ("openai/m", "https://a.example/v1/", "https://a.example/v1"),
        ("anthropic/m", "https://a.example/v1/messages", "https://a.example/v1"),
        ("azure/m", "https://a.example", "https://a.example/openai"),
        ("azure/m", "https://a.example/openai/deployments/m", "https://a.example/openai"),
        ("azure/m", "https://a.example/openai/v1", "https://a.example/openai/v1"),
    ],
)
def test_a_plain_endpoint_is_known_by_its_base_url_as_ever(model, endpoint, base_url):
    body = {"model": "m", "messages": [], "max_tokens": 9}
    assert call_of(model, endpoint).request == {"base_url": base_url, "model": "m", "body": body}


@pytest.mark.parametrize(
    ("model", "endpoints"),
    [
        ("openai/m", ["https://a.example/v1", *(f"https://a.example/v1?team={n}" for n in "12")]),
        ("anthropic/m", ["https://a.example/v1", "https://a.example/v1?team=1"]),
        (
            "azure/m",
            [
                f"https://a.example{path}"
                for path in ("", "?api-version=2025-01-01-preview", "/openai/deployments/mine")
            ],
        ),
    ],
)
def test_endpoints_with_a_query_or_a_deployment_share_no_answers(model, endpoints):
    requests = {canonical_json(call_of(model, endpoint).request) for endpoint in endpoints}
    assert len(requests) == len(endpoints)


def test_an_azure_judge_is_asked_by_the_version_of_its_endpoint():
    with LoopbackServer(lambda _: chat_answer("hello")) as server:
        path = "/openai/deployments/mine/chat/completions"
        judged("azure/m", f"{server.url}{path}?api-version=2025-01-01-preview")
    (request,) = server.requests
    assert (request.path, request.query) == (path, "api-version=2025-01-01-preview")


@pytest.mark.parametrize(
    ("settings", "is_bounded", "is_priced"),
    [
        ({}, True, True),
        ({"service_tier": "priority"}, False, False),
        ({"service_tier": "flex"}, True, False),
        ({"service_tier": "flex", "web_search_options": {}}, False, False),
    ],
)
def test_a_tier_that_is_asked_for_is_priced_as_that_of_an_answer(settings, is_bounded, is_priced):
    prices = PriceTable.from_mapping(
        {"version": "v", "providers": {"openai-compatible": {"m": {"input": 1, "output": 4}}}}
    )
    with LoopbackServer(lambda _: chat_answer("hello")) as server:
        llm = make_llm(LlmConfig(model="m", endpoint=server.url), Secrets({}))
        call = call_of("openai/m", server.url, llm, prices=prices, **settings)

        async def go() -> Any:
            try:
                return await call.send()
            finally:
                await llm.aclose()

        reply = asyncio.run(go())
    assert (call.worst.usd is not None, reply.cost_usd is not None) == (is_bounded, is_priced)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("groq/llama", ("groq", "llama")),
        ("openai/org/m", ("openai", "org/m")),
        ("meta/llama", ("openai", "meta/llama")),
        ("gpt-4o", ("openai", "gpt-4o")),
        ("groq/", ("openai", "groq/")),
    ],
)
def test_only_known_providers_are_prefixes(name, split):
    assert split_model(name) == split


@pytest.mark.parametrize(
    ("model", "base_url"),
    [
        ("openai/m", "https://api.openai.com/v1"),
        ("groq/m", "https://api.groq.com/openai/v1"),
        ("gemini/m", "https://generativelanguage.googleapis.com/v1beta/openai"),
    ],
)
def test_providers_have_endpoints_of_their_own(model, base_url):
    llm = make_llm(LlmConfig(model=model), Secrets({}))
    assert (llm.base_url, llm.provider) == (base_url, model.partition("/")[0])


def test_what_the_model_does_not_take_is_left_out_and_told():
    with LoopbackServer(lambda _: chat_answer("hello")) as server:
        completion = judged("openai/o3-mini", server.url, temperature=0.0, max_tokens=9)
    assert server.requests[0].body.keys() == {"model", "messages", "max_completion_tokens"}
    assert [text.partition(":")[0] for text in completion.dropped] == ["temperature"]
