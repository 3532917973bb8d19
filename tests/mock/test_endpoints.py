"""The endpoints, over real sockets with the real ``openai`` client."""

import asyncio
import json
import math
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncAzureOpenAI

from tasks.mock.embeddings import embed
from tasks.mock.mock_server import MockServer
from tests.mock.conftest import ask

USER: Any = [{"role": "user", "content": "What is 20 + 3?"}]
SYSTEM = "Answer exactly, only with the result, in this format, step by step."


def chat(server: MockServer, content: str = "What is 20 + 3?", **fields: Any) -> Any:
    said = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": content}]
    fields = {"model": "gpt-4o-mini", "messages": said, **fields}
    return ask(server, lambda client: client.chat.completions.create(**fields))


def refused(server: MockServer, content: str = "What is 20 + 3?", **fields: Any) -> str:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(server, content, **fields)
    return str(caught.value.body["message"])  # type: ignore[index]


def test_a_chat_is_answered_with_usage(server: MockServer):
    answer = chat(server, temperature=0.0)
    (choice,) = answer.choices
    assert (choice.message.role, choice.finish_reason, choice.index) == ("assistant", "stop", 0)
    assert choice.message.content == "23"
    usage = answer.usage
    # 17 pieces of the instructions, 6 of the question, 4 for each message, 2 for the answer's start
    assert usage.prompt_tokens == 17 + 6 + 4 + 4 + 2
    assert usage.completion_tokens == 1
    assert usage.total_tokens == usage.prompt_tokens + 1
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert usage.completion_tokens_details.reasoning_tokens == 0


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_a_limit_ends_the_answer(server: MockServer, field):
    answer = chat(server, "Repeat: one two three four five", **{field: 2})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 2


def test_streams_join_to_the_whole_answer_and_tell_usage(server: MockServer):
    content = "Repeat: one two three four five"

    async def stream(client):
        said = [{"role": "user", "content": content}]
        options = {"include_usage": True}
        events = await client.chat.completions.create(
            model="m", messages=said, stream=True, stream_options=options
        )
        return [event async for event in events]

    events = ask(server, stream)
    told = [e.choices[0] for e in events if e.choices]
    whole = ask(
        server,
        lambda c: c.chat.completions.create(
            model="m", messages=[{"role": "user", "content": content}]
        ),
    )
    assert "".join(c.delta.content or "" for c in told) == whole.choices[0].message.content
    assert [c.finish_reason for c in told[:-1]] == [None] * (len(told) - 1)
    assert told[-1].finish_reason == "stop"
    assert [e.usage for e in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1].usage == whole.usage


def test_forced_tools_are_called(server: MockServer):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": schema}}]
    named = {"type": "function", "function": {"name": "weather"}}
    for choice, finish in ((named, "stop"), ("required", "tool_calls")):
        answer = chat(server, "city: Bonn", tools=tools, tool_choice=choice, temperature=0.0)
        (call,) = answer.choices[0].message.tool_calls
        assert call.function.name == "weather"
        assert list(json.loads(call.function.arguments)) == ["city"]
        assert answer.choices[0].finish_reason == finish
    assert chat(server, tools=tools, tool_choice="auto").choices[0].message.tool_calls is None
    wrong = {"type": "function", "function": {"name": "nothing"}}
    assert "must name one of" in refused(server, tools=tools, tool_choice=wrong)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"temperature": 2.5}, "`temperature` must be less than or equal to 2, but got 2.5."),
        ({"max_tokens": 0}, "`max_tokens` must be greater than or equal to 1"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "cannot both be given"),
        ({"logprobs": True}, "`logprobs` is not known to this mock"),
        ({"messages": []}, "`messages` must have at least 1 item"),
        ({"model": ""}, "`model` must have at least 1 character"),
        ({"extra_body": {"prompt_logprobs": 0}}, "`prompt_logprobs` is not known"),
        ({"extra_body": {"n": "two"}}, "`n` must be a valid integer"),
        (
            {"extra_body": {"response_format": {"type": "xml"}}},
            "must be 'text', 'json_object' or 'json_schema'",
        ),
    ],
)
def test_wrong_requests_are_refused_with_a_reason(server: MockServer, fields, rule):
    assert rule in refused(server, **fields)


def test_embeddings_are_normalised_repeatable_and_near_for_shared_words(server: MockServer):
    texts = ["the red fox", "a red fox", "stock markets fell"]

    def vectors(**fields: Any) -> Any:
        return ask(
            server, lambda c: c.embeddings.create(model="e", input=texts, dimensions=64, **fields)
        )

    packed, plain = vectors(), vectors(encoding_format="float")
    assert [len(one.embedding) for one in packed.data] == [64] * 3
    for one, other, text in zip(packed.data, plain.data, texts, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
        assert other.embedding == embed(text, 64)
        assert math.fsum(x * x for x in other.embedding) == pytest.approx(1.0)

    def near(a: int, b: int) -> float:
        pairs = zip(plain.data[a].embedding, plain.data[b].embedding, strict=True)
        return math.fsum(x * y for x, y in pairs)

    assert near(0, 1) > near(0, 2)
    assert plain.usage.prompt_tokens == 3 + 3 + 4


def test_azure_paths_name_the_deployment_and_need_a_version(server: MockServer):
    async def azure() -> Any:
        async with AsyncAzureOpenAI(
            azure_endpoint=server.url, api_key="none", api_version="2024-10-21", max_retries=0
        ) as client:
            return await client.chat.completions.create(model="my-deployment", messages=USER)

    assert asyncio.run(azure()).model == "my-deployment"
    path = f"{server.url}/openai/deployments/d/chat/completions"
    assert httpx.post(path, json={"messages": USER}).status_code == 404
