"""Streamed answers: joined as if they had come in one piece, or cut and nobody's text."""

import asyncio
from typing import Any

import pytest

from convergence_core.errors import EvaluationFault, InfrastructureFault
from convergence_core.records import Reply, Usage
from tasks.providers.streams import event_data
from tests.support.chat_servers import (
    CASE,
    HELLO_CHUNKS,
    USAGE_CHUNK,
    ask,
    azure_api,
    chunk,
    events,
    gemini_api,
    groq_api,
    target_of,
)
from tests.support.configurations import chat_api
from tests.support.http_server import Answer, LoopbackServer, chat_answer

STREAM = {"stream": True}
COMPATIBLE = [chat_api, azure_api, groq_api, gemini_api]


def streamed(answer, api=chat_api, **more) -> Any:
    request = {**STREAM, **more}
    with LoopbackServer(lambda _: answer) as server:
        reply = ask(api(server.url, request=request))
    return reply, server.requests[0]


def fault_of(answer, api=chat_api) -> EvaluationFault:
    with LoopbackServer(lambda _: answer) as server, pytest.raises(EvaluationFault) as caught:
        ask(api(server.url, request=STREAM))
    return caught.value


@pytest.mark.parametrize("api", COMPATIBLE)
def test_a_stream_is_one_text_with_its_usage(api):
    reply, request = streamed(events(HELLO_CHUNKS), api)
    assert request.body["stream"] is True
    assert request.body["stream_options"] == {"include_usage": True}
    assert (reply.value, reply.model) == ("hello", "served")
    assert reply.usage == Usage(prompt_tokens=7, completion_tokens=3)
    assert 0 < reply.first_token_ms <= reply.latency_ms


@pytest.mark.parametrize("api", [chat_api, azure_api, groq_api])
def test_a_stream_without_an_answer_is_tried_again(api):
    filtered = {"id": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    for pieces in ([], [filtered, USAGE_CHUNK], [chunk(content="")]):
        fault = fault_of(events(pieces), api)
        assert isinstance(fault, InfrastructureFault)
        assert fault.error_type in ("no_answer", "bad_body")
    assert streamed(events([filtered, *HELLO_CHUNKS]), api)[0].value == "hello"


def test_usage_is_not_asked_for_where_the_configuration_says_so():
    options = {"model": "m", "stream_options": None}
    _, request = streamed(events(HELLO_CHUNKS), options=options)
    assert "stream_options" not in request.body


def test_a_server_that_does_not_stream_is_understood():
    reply, _ = streamed(chat_answer("hello"))
    assert (reply.value, reply.first_token_ms) == ("hello", None)


@pytest.mark.parametrize("delta", [{}, {"content": ""}])
def test_a_last_chunk_may_repeat_the_whole_message_beside_its_delta(delta):
    last: Any = chunk("stop")
    last["choices"][0] |= {"delta": delta, "message": {"role": "assistant", "content": "hello"}}
    assert streamed(events([chunk(content="hel"), chunk(content="lo"), last]))[0].value == "hello"
    last["choices"][0]["delta"] = None
    assert streamed(events([last]))[0].value == "hello"


def test_pieces_of_tool_calls_are_joined_by_index():
    def piece(index, **function) -> Any:
        return chunk(tool_calls=[{"index": index, "function": function}])

    pieces = [
        piece(0, name="f", arguments='{"x"'),
        piece(1, name="g", arguments=""),
        piece(0, arguments=": 1}"),
        chunk("tool_calls"),
    ]
    assert streamed(events(pieces))[0].value == {
        "tool_calls": [{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {}}]
    }


@pytest.mark.parametrize("names", [("f", "f"), ("f", None)])
def test_a_call_whose_name_or_identity_each_piece_repeats_is_one_call(names):
    pieces = [
        chunk(
            tool_calls=[{"index": 0, "id": identity, "function": {"name": n, "arguments": part}}]
        )
        for identity, n, part in zip(
            ("a", "a" if names[1] else "b"), names, ('{"x"', ": 1}"), strict=True
        )
    ]
    value = streamed(events([*pieces, chunk("tool_calls")]))[0].value
    assert value == {"tool_calls": [{"name": "f", "arguments": {"x": 1}}]}


@pytest.mark.parametrize(
    "parts",
    [
        [("a", "f", None), ("b", None, '{"x": 1}'), ("c", None, "")],
        [("a", "f", '{"x": 1}'), ("b", None, " ")],
        [("a", "f", '{"x": 1}'), ("b", "", None)],
        [(None, "f", '{"x": 1}'), (None, "f", "")],
        [(None, "f", ""), (None, "f", '{"x": 1}'), (None, "f", "\n")],
    ],
)
def test_a_blank_piece_behind_a_whole_call_begins_no_other(parts):
    pieces = [
        chunk(tool_calls=[{"index": 0, "id": i, "function": {"name": n, "arguments": text}}])
        for i, n, text in parts
    ]
    value = streamed(events([*pieces, chunk("tool_calls")]))[0].value
    assert value == {"tool_calls": [{"name": "f", "arguments": {"x": 1}}]}


def test_calls_that_share_an_index_are_told_apart_by_their_identity():
    calls = [
        {"index": 0, "id": name, "function": {"name": name, "arguments": "{}"}} for name in "fg"
    ]
    expected = {"tool_calls": [{"name": name, "arguments": {}} for name in "fg"]}
    for pieces in ([chunk(tool_calls=calls)], [chunk(tool_calls=[call]) for call in calls]):
        assert streamed(events([*pieces, chunk("tool_calls")]))[0].value == expected


@pytest.mark.parametrize("identity", ["", None])
def test_whole_calls_without_index_and_identity_are_told_apart(identity):
    calls = [
        {"index": 0, "id": identity, "function": {"name": name, "arguments": text}}
        for name, text in (("f", "{}"), ("g", "{}"), ("g", '{"x": 1}'))
    ]
    named = [("f", {}), ("g", {}), ("g", {"x": 1})]
    expected = {"tool_calls": [{"name": name, "arguments": given} for name, given in named]}
    for pieces in ([chunk(tool_calls=calls)], [chunk(tool_calls=[call]) for call in calls]):
        assert streamed(events([*pieces, chunk("tool_calls")]))[0].value == expected


@pytest.mark.parametrize("n_first", [1, 1000])
def test_json_under_the_type_of_a_stream_is_read(n_first):
    answer = chat_answer("hello")
    answer.headers = {"content-type": "text/event-stream"}
    assert streamed(answer)[0].value == "hello"
    limit = Answer(
        {"error": {"code": 429, "message": "x" * n_first}},
        headers={"content-type": "text/event-stream", "retry-after": "7"},
    )
    fault = fault_of(limit)
    assert isinstance(fault, InfrastructureFault)
    assert (fault.error_type, fault.retry_after_s) == ("http_429", 7.0)


CUSTOM = {"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select"}}


def test_a_call_of_a_custom_tool_is_an_answer():
    expected = {"tool_calls": [{"name": "sql", "arguments": "select"}]}
    assert streamed(chat_answer(None, tool_calls=[CUSTOM]))[0].value == expected
    begun = {**CUSTOM, "index": 0, "custom": {"name": "sql", "input": "sel"}}
    more = {"index": 0, "custom": {"input": "ect"}}
    pieces = [chunk(tool_calls=[begun]), chunk(tool_calls=[more]), chunk("tool_calls")]
    assert streamed(events(pieces))[0].value == expected


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
@pytest.mark.parametrize(
    "kind", ["text/event-stream", "Text/Event-Stream", "text/plain", "application/octet-stream"]
)
def test_events_are_read_whatever_their_type_ends_and_mark(end, kind):
    answer = events(HELLO_CHUNKS, end=end)
    answer.body = b"\xef\xbb\xbf" + answer.body
    answer.headers = {"content-type": kind}
    assert streamed(answer)[0].value == "hello"


@pytest.mark.parametrize("cut", range(1, 18))
def test_ends_of_lines_are_found_wherever_the_pieces_of_a_stream_end(cut):
    async def read() -> list[str]:
        async def chunks() -> Any:
            for part in (text[:cut], text[cut:]):
                yield part

        text = b"data: a\r\n\r\ndata: b\r\r"
        return [data async for data in event_data(chunks())]

    assert asyncio.run(read()) == ["a", "b"]


def test_zeros_at_the_end_of_a_stream_are_no_usage():
    zeros = {
        **USAGE_CHUNK,
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
    reply, _ = streamed(events([*HELLO_CHUNKS, zeros]))
    assert reply.usage == Usage(prompt_tokens=7, completion_tokens=3)


@pytest.mark.parametrize(
    "first", [{"refusal": "I will "}, {"content": [{"type": "refusal", "refusal": "I will "}]}]
)
def test_a_refusal_in_pieces_is_a_refusal(first):
    pieces = [chunk(**first), chunk(refusal="not."), chunk("stop"), USAGE_CHUNK]
    fault = fault_of(events(pieces))
    assert (fault.error_type, str(fault)) == ("refusal", "the model refused: I will not.")
    assert fault.billed is not None
    assert fault.billed.usage.total == 10


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.9])
def test_a_cut_stream_is_the_infrastructures_fault(keep):
    answer = events(HELLO_CHUNKS)
    answer.cut_after = int(len(answer.body) * keep)
    fault = fault_of(answer)
    assert isinstance(fault, InfrastructureFault)
    assert (fault.retryable, fault.may_be_billed) == (True, True)


def test_a_stream_that_just_stops_was_cut():
    fault = fault_of(events(HELLO_CHUNKS[:3], done=False))
    assert isinstance(fault, InfrastructureFault)
    assert (fault.error_type, fault.retryable, fault.may_be_billed) == ("cut_stream", True, True)


@pytest.mark.parametrize(
    ("error", "error_type", "retryable"),
    [
        ({"message": "overloaded", "type": "server_error"}, "stream_error", True),
        ({"message": "slow down", "code": 429}, "http_429", True),
        ({"message": "key", "code": 401}, "http_401", False),
    ],
)
def test_an_error_within_a_stream_is_told(error, error_type, retryable):
    fault = fault_of(events([chunk(content="hel"), {"error": error}], done=False))
    assert isinstance(fault, InfrastructureFault)
    assert (fault.error_type, fault.retryable) == (error_type, retryable)


def test_a_stream_that_hangs_times_out():
    request = {**STREAM, "timeout_seconds": 0.1}
    with (
        LoopbackServer(lambda _: Answer(hangs=True)) as server,
        pytest.raises(InfrastructureFault) as caught,
    ):
        ask(chat_api(server.url, request=request))
    assert (caught.value.error_type, caught.value.retryable) == ("timeout", True)


def test_what_breaks_after_the_end_of_the_answer_does_no_harm():
    answer = events(HELLO_CHUNKS)
    whole = len(answer.body)
    answer.body += b": bye\n\n" * 10
    answer.cut_after = whole + 5
    assert streamed(answer)[0].value == "hello"


# -- events


@pytest.mark.parametrize(
    ("api", "answer"),
    [
        (chat_api, events([chunk(content="h"), chunk(content="ello"), chunk("stop")])),
        (chat_api, chat_answer("hello")),
    ],
    ids=["chat", "whole"],
)
def test_pieces_of_text_are_given_as_they_come(api, answer):
    pieces: list[str] = []
    with LoopbackServer(lambda _: answer) as server:
        target = target_of(api(server.url))

        async def go() -> Reply:
            try:
                return await target.call({"temperature": 0.5}, CASE, pieces.append)
            finally:
                await target.aclose()

        reply = asyncio.run(go())
    assert reply.value == "hello"
    assert pieces in (["h", "ello"], ["hello"])
    assert (len(pieces) == 2) is (reply.first_token_ms is not None)
