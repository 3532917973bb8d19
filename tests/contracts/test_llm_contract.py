"""What every provider of chat models must keep, through a real server."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from convergence_core.errors import CandidateFault, InfrastructureFault
from convergence_core.ports import LLM, Completion
from convergence_core.records import RateInfo
from tasks.http.clients import within_limits
from tasks.providers.anthropic import AnthropicChat
from tasks.providers.chat import Delivery, Provider
from tasks.providers.openai_chat import AzureChat, OpenAIChat
from tests.support.chat_servers import (
    HELLO_CHUNKS,
    HELLO_EVENTS,
    anthropic_answer,
    anthropic_error,
    events,
)
from tests.support.http_server import Answer, LoopbackServer, chat_answer, error_answer

MESSAGES = [{"role": "user", "content": "hello"}]


@dataclass(frozen=True)
class Kind:
    """A provider, and how its server answers."""

    make: Callable[..., Provider]
    base_url: str
    answer: Callable[..., Answer] = chat_answer
    error: Callable[[int], Answer] = error_answer
    stream: tuple[Any, ...] = tuple(HELLO_CHUNKS)

    def options(self, body: Any) -> Any:
        return {k: v for k, v in body.items() if k not in ("model", "messages")}


class AnthropicKind(Kind):
    def options(self, body: Any) -> Any:
        names = {"stop_sequences": "stop"}
        hidden = ("model", "messages", "max_tokens", "stream")
        return {names.get(k, k): v for k, v in body.items() if k not in hidden}


def limited(base_url: str) -> Provider:
    """A provider whose requests have the limit that Anthropic needs."""

    class Limited(AnthropicChat):
        def mapped(self, messages: Any, *, model: str, settings: Any) -> Any:
            return super().mapped(messages, model=model, settings={"max_tokens": 9, **settings})

    return Limited(base_url)


def judge(base_url: str) -> Provider:
    return OpenAIChat("https://a.invalid", sends_to=base_url)


PROVIDERS = {
    "openai": Kind(OpenAIChat, "/v1"),
    "groq": Kind(partial(OpenAIChat, dialect="groq"), "/openai/v1"),
    "gemini": Kind(partial(OpenAIChat, dialect="gemini"), "/v1beta/openai"),
    "azure": Kind(AzureChat, "/openai"),
    "azure undated": Kind(AzureChat, "/openai/v1"),
    "mocked": Kind(judge, "/v1"),
    "anthropic": AnthropicKind(
        limited, "/v1", anthropic_answer, anthropic_error, tuple(HELLO_EVENTS)
    ),
}


@pytest.fixture(params=PROVIDERS)
def kind(request):
    return PROVIDERS[request.param]


def complete(kind, answer, **options) -> Any:
    with LoopbackServer(lambda _: answer) as server:
        llm = kind.make(server.url + kind.base_url)

        async def go() -> Any:
            try:
                return await llm.complete(MESSAGES, model="m", **options)
            finally:
                await llm.aclose()
                await llm.aclose()

        try:
            return asyncio.run(go()), server.requests
        finally:
            assert len(server.requests) == 1  # it never retries


def test_it_is_an_llm_that_knows_where_it_asks(kind):
    llm = kind.make("http://127.0.0.1:1" + kind.base_url)
    assert isinstance(llm, LLM)
    assert llm.provider
    if kind is not PROVIDERS["mocked"]:
        assert llm.base_url == "http://127.0.0.1:1" + kind.base_url


def test_a_completion_holds_text_usage_and_the_whole_answer(kind):
    completion, _ = complete(kind, kind.answer("hi", model="m-1"))
    assert isinstance(completion, Completion)
    assert (completion.text, completion.model) == ("hi", "m-1")
    assert completion.finish_reason in ("stop", "STOP", "end_turn")
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (7, 3)
    assert completion.raw["usage"]
    assert completion.latency_ms > 0
    assert completion.first_token_ms is None


def test_settings_are_sent(kind):
    asked = {"temperature": 0.5, "stop": ["x"]}
    if kind is PROVIDERS["openai"]:
        asked["top_k"] = 3
    _, (request,) = complete(kind, kind.answer("hi"), **asked)
    assert kind.options(request.body) == asked


def test_a_setting_without_a_field_is_refused_before_anything_is_sent(kind):
    llm = kind.make("http://127.0.0.1:1" + kind.base_url)
    with pytest.raises(CandidateFault) as caught:
        asyncio.run(llm.complete(MESSAGES, model="m", stream=True))
    assert caught.value.error_type == "unsupported_parameter"


def test_a_stream_says_the_same_as_one_piece(kind):
    answer = events(kind.stream)
    with LoopbackServer(lambda _: answer) as server:
        llm = kind.make(server.url + kind.base_url)

        async def go() -> Any:
            try:
                body = llm.mapped(MESSAGES, model="m", settings={}).body
                return await llm.send(body, model="m", delivery=Delivery(stream=True))
            finally:
                await llm.aclose()

        completion = asyncio.run(go())
    assert (completion.text, completion.usage.total) == ("hello", 10)
    assert 0 < completion.first_token_ms <= completion.latency_ms


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_refused_request_is_the_candidates_fault(kind, status):
    with pytest.raises(CandidateFault):
        complete(kind, kind.error(status))


@pytest.mark.parametrize("status", [401, 402, 429, 500])
def test_what_the_provider_does_is_the_infrastructures_fault(kind, status):
    with pytest.raises(InfrastructureFault) as caught:
        complete(kind, kind.error(status))
    assert caught.value.retryable == (status in (429, 500))


def test_an_empty_reply_is_the_candidates_fault_and_billed(kind):
    with pytest.raises(CandidateFault) as caught:
        complete(kind, kind.answer(""))
    assert caught.value.error_type == "empty_reply"
    assert caught.value.billed is not None
    assert caught.value.billed.usage.total == 10


def test_a_broken_answer_is_the_infrastructures_fault(kind):
    with pytest.raises(InfrastructureFault) as caught:
        complete(kind, Answer(b"{"))
    assert caught.value.may_be_billed


class Checkpoint:
    """Lets everything pass, or nothing."""

    def __init__(self, fault: InfrastructureFault | None = None) -> None:
        self.fault = fault
        self.seen: list[RateInfo] = []

    async def wait_to_send(self) -> None:
        if self.fault is not None:
            raise self.fault

    def observe(self, rate: RateInfo) -> None:
        self.seen.append(rate)


def test_a_checkpoint_can_hold_a_call_back(kind):
    fault = InfrastructureFault("closed", error_type="closed")
    with LoopbackServer(lambda _: kind.answer("hi")) as server:
        llm = kind.make(server.url + kind.base_url)

        async def go() -> None:
            try:
                with (
                    within_limits(Checkpoint(fault)),
                    pytest.raises(InfrastructureFault) as caught,
                ):
                    await llm.complete(MESSAGES, model="m")
                assert caught.value is fault
            finally:
                await llm.aclose()

        asyncio.run(go())
    assert server.requests == []
