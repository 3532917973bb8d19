"""Providers that judges ask: named by a model's prefix, with a key from the environment."""

import asyncio
from typing import Any

import pytest

from convergence_core.config.evaluation import LlmConfig
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
