"""Chat models as targets, through the real client over real sockets."""

import pytest

from convergence_core.errors import EvaluationFault
from convergence_core.records import Case, Usage
from tests.support.chat_servers import TEMPERATURE, ask
from tests.support.configurations import chat_api
from tests.support.http_server import LoopbackServer, chat_answer


def fault_of(answer, **request) -> EvaluationFault:
    with LoopbackServer(lambda _: answer) as server, pytest.raises(EvaluationFault) as caught:
        ask(chat_api(server.url + "/v1", request=request))
    return caught.value


def test_request_and_answer_speak_the_protocol():
    with LoopbackServer(lambda _: chat_answer("hello", model="m-2024")) as server:
        reply = ask(chat_api(server.url + "/v1"))
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.body == {
        "model": "m",
        "temperature": 0.5,
        "messages": [{"role": "user", "content": "one"}],
    }
    assert "authorization" not in request.headers
    assert (reply.value, reply.model, reply.provider) == ("hello", "m-2024", "openai")
    assert reply.usage == Usage(prompt_tokens=7, completion_tokens=3)
    assert (reply.first_token_ms, reply.dropped) == (None, ())
    assert reply.latency_ms > 0


def test_messages_are_filled_and_their_text_parameters_are_not_sent():
    space = {
        **TEMPERATURE,
        "style": {"type": "text", "variants": ["be brief", "be kind"]},
        "n_examples": {"type": "int", "min": 0, "max": 5},
        "max_tokens": {"type": "int", "min": 1, "max": 100},
        "model": {"type": "categorical", "choices": ["small", "large"]},
    }
    messages = [
        {"role": "system", "content": "You {style}. {n_examples} examples."},
        {"role": "user", "content": "Q: {input.q}"},
    ]
    params = {
        "temperature": 0.5,
        "style": "be kind",
        "n_examples": 3,
        "max_tokens": 9,
        "model": "small",
    }
    with LoopbackServer(lambda _: chat_answer("hello")) as server:
        request = {"messages": messages, "options": {"seed": 7}}
        ask(
            chat_api(server.url + "/v1", request=request),
            params=params,
            search_space__parameters=space,
        )
    assert server.requests[0].body == {
        "model": "small",
        "temperature": 0.5,
        "max_tokens": 9,
        "seed": 7,
        "messages": [
            {"role": "system", "content": "You be kind. 3 examples."},
            {"role": "user", "content": "Q: one"},
        ],
    }


@pytest.mark.parametrize("name", ["system", "persona"])
def test_without_messages_the_only_text_parameter_is_the_system_message(name):
    space = {**TEMPERATURE, name: {"type": "text", "variants": ["be brief", "be kind"]}}
    with LoopbackServer(lambda _: chat_answer("hello")) as server:
        ask(
            chat_api(server.url + "/v1"),
            params={"temperature": 0.5, name: "be kind"},
            search_space__parameters=space,
        )
    assert server.requests[0].body["messages"] == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "one"},
    ]
    assert name not in server.requests[0].body


@pytest.mark.parametrize(
    ("case_input", "messages"),
    [
        ("hi", [{"role": "user", "content": "hi"}]),
        ({"a": "x", "b": 1}, [{"role": "user", "content": '{"a": "x", "b": 1}'}]),
        (
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        ),
        (
            {"messages": [{"role": "user", "content": "a"}]},
            [{"role": "user", "content": "a"}],
        ),
    ],
)
def test_inputs_become_messages(case_input, messages):
    with LoopbackServer(lambda _: chat_answer("hello")) as server:
        ask(chat_api(server.url + "/v1"), case=Case(case_id="a", input=case_input))
    assert server.requests[0].body["messages"] == messages


def test_options_send_parameters_that_only_some_servers_know():
    space = {"beam": {"type": "int", "min": 1, "max": 9}}
    request = {"options": {"model": "m", "beam_width": "{beam}"}}
    with LoopbackServer(lambda _: chat_answer("hello")) as server:
        ask(
            chat_api(server.url + "/v1", request=request),
            params={"beam": 4},
            search_space__parameters=space,
        )
    assert server.requests[0].body["beam_width"] == 4
    assert "beam" not in server.requests[0].body


def test_a_refusal_is_the_candidates_fault():
    fault = fault_of(chat_answer(None, refusal="I will not."))
    assert (fault.fault, fault.error_type) == ("candidate", "refusal")
    assert "I will not." in str(fault)


@pytest.mark.parametrize("text", [None, "", "  \n"])
def test_an_empty_reply_is_the_candidates_fault(text):
    fault = fault_of(chat_answer(text, finish_reason="length"))
    assert (fault.fault, fault.error_type) == ("candidate", "empty_reply")
    assert "length" in str(fault)


def test_a_filtered_answer_is_a_refusal():
    assert fault_of(chat_answer("par", finish_reason="content_filter")).error_type == "refusal"
