"""What every chat model's client must keep, through a real server."""

import asyncio
from typing import Any

import pytest

from convergence_core.errors import CandidateFault, InfrastructureFault
from convergence_core.target import LLM, Completion
from tasks.providers import OpenAIChat
from tests.support.http_server import Answer, LoopbackServer, chat_answer, error_answer

MESSAGES = [{"role": "user", "content": "hello"}]
PROVIDERS = [OpenAIChat]


@pytest.fixture(params=PROVIDERS)
def provider(request):
    return request.param


def complete(provider, answer, **options) -> Any:
    with LoopbackServer(lambda _: answer) as server:
        llm = provider(server.url + "/v1", timeout_s=5.0)

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


def test_it_is_an_llm_that_knows_where_it_asks(provider):
    llm = provider("http://127.0.0.1:1/v1")
    assert isinstance(llm, LLM)
    assert llm.provider
    assert llm.base_url == "http://127.0.0.1:1/v1"


def test_a_completion_holds_text_usage_and_the_whole_answer(provider):
    completion, _ = complete(provider, chat_answer("hi", model="m-1"))
    assert isinstance(completion, Completion)
    assert (completion.text, completion.model, completion.finish_reason) == ("hi", "m-1", "stop")
    assert (completion.tokens_in, completion.tokens_out) == (7, 3)
    assert completion.raw["choices"]
    assert completion.latency_ms > 0


def test_options_are_sent_as_they_are(provider):
    _, (request,) = complete(provider, chat_answer("hi"), temperature=0.5, top_k=3, stop=["x"])
    assert request.body == {
        "model": "m",
        "messages": MESSAGES,
        "temperature": 0.5,
        "top_k": 3,
        "stop": ["x"],
    }


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_refused_request_is_the_candidates_fault(provider, status):
    with pytest.raises(CandidateFault):
        complete(provider, error_answer(status))


@pytest.mark.parametrize("status", [401, 429, 500])
def test_what_the_provider_does_is_the_infrastructures_fault(provider, status):
    with pytest.raises(InfrastructureFault) as caught:
        complete(provider, error_answer(status))
    assert caught.value.retryable == (status != 401)


def test_no_usage_is_unknown_and_not_zero(provider):
    answer = chat_answer("hi")
    del answer.body["usage"]
    completion, _ = complete(provider, answer)
    assert (completion.tokens_in, completion.tokens_out) == (None, None)


def test_an_empty_reply_is_the_candidates_fault(provider):
    with pytest.raises(CandidateFault):
        complete(provider, chat_answer(""))


def test_a_broken_answer_is_the_infrastructures_fault(provider):
    with pytest.raises(InfrastructureFault):
        complete(provider, Answer(b"{"))
