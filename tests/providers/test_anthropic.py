"""Anthropic's messages: fields, answers, errors, prices, and the mock that speaks them."""

from typing import Any

import pytest

from convergence_core.errors import CandidateFault, InfrastructureFault
from tasks.providers.answers import called_tools
from tasks.providers.anthropic import anthropic_request
from tests.support.chat_servers import (
    HELLO_EVENTS,
    anthropic_answer,
    anthropic_api,
    anthropic_error,
    events,
    fault_of,
    sent,
)
from tests.support.http_server import Answer

USER = {"role": "user", "content": "Hi"}
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}},
}


def made(settings: dict[str, Any], messages: Any = (USER,), unsupported: Any = "refuse") -> Any:
    settings = {"max_tokens": 2000, **settings}
    return anthropic_request(messages, settings, model="m", unsupported=unsupported)


def test_a_conversation_becomes_blocks_and_turns_of_one_role_are_joined():
    call = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    body = made(
        {},
        [
            {"role": "system", "content": "Be kind."},
            USER,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "t1", "content": "a door"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {
                "url": "data:image/png;base64,AAAA"}}]},
        ],
    ).body  # fmt: skip
    assert body["system"] == [{"type": "text", "text": "Be kind."}]
    first, second, third = body["messages"]
    assert first == {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    assert second["content"] == [
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}}
    ]
    assert [block["type"] for block in third["content"]] == ["tool_result", "image"]
    with pytest.raises(CandidateFault, match="`input_audio`"):
        made({}, [{"role": "user", "content": [{"type": "input_audio"}]}])


def test_settings_are_named_as_anthropic_names_them():
    body = made({"stop": "END", "tools": [TOOL], "tool_choice": "required", "top_k": 5}).body
    assert body["stop_sequences"] == ["END"]
    assert body["tools"] == [
        {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
    ]
    assert body["tool_choice"] == {"type": "any"}
    assert (body["top_k"], body["max_tokens"]) == (5, 2000)


SCHEMA: Any = {
    "type": "object",
    "properties": {
        "minimum": {"type": "integer", "minimum": 0},
        "parts": {
            "type": "array",
            "minItems": 10,
            "description": "All.",
            "items": {"type": "object", "properties": {}},
        },
    },
    "required": ["minimum"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SCHEMA}}


@pytest.mark.parametrize("first", ["response_format", "output_config"])
def test_the_schema_of_an_answer_is_sent_without_what_anthropic_refuses(first):
    settings = {"response_format": FORMAT, "output_config": {"effort": "low"}}
    body = made({first: settings[first], **settings}).body
    part = {"type": "object", "properties": {}, "additionalProperties": False}
    schema = {
        "type": "object",
        "properties": {
            "minimum": {"type": "integer", "description": 'Bounds: {"minimum": 0}'},
            "parts": {
                "type": "array",
                "items": part,
                "description": 'All. Bounds: {"minItems": 10}',
            },
        },
        "required": ["minimum"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "schema": schema}
    assert body["output_config"] == {"effort": "low", "format": form}
    assert SCHEMA["properties"]["minimum"] == {"type": "integer", "minimum": 0}


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("m", {"response_format": {"type": "json_object"}}),
        ("claude-3-5-haiku-20241022", {"response_format": FORMAT}),
        ("claude-sonnet-4-20250514", {"response_format": FORMAT}),
        ("m", {"output_config": {"format": {}}, "response_format": FORMAT}),
    ],
)
def test_a_form_of_the_answer_that_cannot_be_asked_for_is_refused(model, settings):
    settings = {"max_tokens": 9, **settings}
    found = anthropic_request([USER], settings, model=model, unsupported="refuse")
    assert [name for name, _ in found.refused] == ["response_format"]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"seed": 1}, "seed"),
        ({"frequency_penalty": 1}, "frequency_penalty"),
        ({"service_tier": "auto"}, "service_tier"),
        ({"inference_geo": "us"}, "inference_geo"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"n": 2}, "n"),
        ({"stream": True}, "stream"),
        ({"tool_choice": "some"}, "tool_choice"),
        ({"temperature": 1.5}, "temperature"),
        ({"max_completion_tokens": 3}, "max_completion_tokens"),
    ],
)
def test_what_has_no_place_is_refused_by_name_or_dropped(settings, name):
    assert [found for found, _ in made(settings).refused] == [name]
    dropped = made(settings, unsupported="drop")
    assert dropped.refused == ()
    assert [one.split(":")[0] for one in dropped.dropped] == [name]
    assert dropped.body.keys() <= {"model", "messages", "max_tokens"}


@pytest.mark.parametrize("unsupported", ["refuse", "drop"])
@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1023}}, "thinking"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking"),
        ({"cache_control": {"type": "ephemeral", "ttl": "1h"}}, "cache_control"),
    ],
)
def test_what_cannot_be_sent_or_priced_is_refused_always(settings, name, unsupported):
    assert [found for found, _ in made(settings, unsupported=unsupported).refused] == [name]


def test_a_model_that_thinks_takes_neither_temperature_nor_forced_tools():
    thinking = {"type": "enabled", "budget_tokens": 1024}
    others = {"temperature": 0.5, "top_k": 3, "tool_choice": "required"}
    assert {name for name, _ in made({"thinking": thinking, **others}).refused} == {*others}
    body = made({"thinking": thinking, "temperature": 1}).body
    assert (body["thinking"], body["temperature"]) == (thinking, 1)


def test_tool_calls_and_refusals_are_read_and_thoughts_are_not():
    content: Any = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"at": 1}},
    ]
    answer = anthropic_answer(content=content, stop_reason="tool_use")
    _, reply = sent(anthropic_api, answer=answer)
    assert reply.value == {"tool_calls": [{"name": "look", "arguments": {"at": 1}}]}
    assert called_tools({"content": content}) == [
        {"id": "t", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    ]
    refused = fault_of(anthropic_api, anthropic_answer("no", stop_reason="refusal"))
    assert isinstance(refused, CandidateFault)
    assert refused.error_type == "refusal"


@pytest.mark.parametrize(
    ("status", "kind", "message", "retryable"),
    [
        (429, "rate_limit_error", "This request would exceed your rate limit", True),
        (529, "overloaded_error", "Overloaded", True),
        (500, "api_error", "Internal server error", True),
        (401, "authentication_error", "invalid x-api-key", False),
        (400, "invalid_request_error", "Your credit balance is too low to access the API", False),
    ],
)
def test_what_anthropic_does_is_no_fault_of_the_candidate(status, kind, message, retryable):
    fault = fault_of(anthropic_api, anthropic_error(status, message, kind))
    assert isinstance(fault, InfrastructureFault)
    assert fault.retryable is retryable


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        (413, "request_too_large", "Request exceeds the maximum size"),
        (404, "not_found_error", "model: claude-none"),
    ],
)
def test_what_the_parameters_caused_is_the_candidates_fault(status, kind, message):
    assert isinstance(
        fault_of(anthropic_api, anthropic_error(status, message, kind)), CandidateFault
    )


def streaming(url: str) -> dict[str, Any]:
    return anthropic_api(url, request={"stream": True, "options": {"model": "served"}})


def test_a_stream_is_joined_and_one_that_was_cut_or_failed_is_no_answer():
    tool = [
        HELLO_EVENTS[0],
        {"type": "content_block_start", "index": 0,
         "content_block": {"type": "tool_use", "id": "t", "name": "look", "input": {}}},
        *({"type": "content_block_delta", "index": 0,
           "delta": {"type": "input_json_delta", "partial_json": part}} for part in ('{"at"', ": 1}")),
        *HELLO_EVENTS[-3:],
    ]  # fmt: skip
    _, reply = sent(streaming, answer=events(tool, done=False))
    assert reply.value == {"tool_calls": [{"name": "look", "arguments": {"at": 1}}]}
    cut = fault_of(streaming, events(HELLO_EVENTS[:5], done=False))
    assert isinstance(cut, InfrastructureFault)
    assert cut.may_be_billed
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    failed = fault_of(streaming, events([*HELLO_EVENTS[:4], error], done=False))
    assert isinstance(failed, InfrastructureFault)
    half = fault_of(anthropic_api, Answer(b'{"type": "message", "content": ['))
    assert half.error_type == "bad_body"
