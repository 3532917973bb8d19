"""What each provider is sent and what becomes of its answers, over real sockets."""

import traceback
from typing import Any

import pytest

from convergence_core.budget.prices import PriceTable
from convergence_core.errors import InfrastructureFault
from convergence_core.records import canonical_json
from tests.support.chat_servers import (
    CASE,
    CHAT_APIS,
    ENVIRON,
    KEY,
    anthropic_api,
    ask,
    azure_api,
    chunk,
    events,
    fault_of,
    gemini_api,
    gemini_error,
    groq_api,
    sent,
    target_of,
    tool_calls,
)
from tests.support.configurations import chat_api
from tests.support.http_server import Answer, LoopbackServer, chat_answer

BEARER = {"type": "bearer", "token_env": "CANARY"}


@pytest.fixture(params=CHAT_APIS)
def kind(request):
    return request.param


def request_of(api: Any, temperature: float = 0.5) -> Any:
    return target_of(api, environ=ENVIRON).request({"temperature": temperature}, CASE)


# -- where and how


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("", "/openai/deployments/m/chat/completions"),
        ("/", "/openai/deployments/m/chat/completions"),
        ("/openai", "/openai/deployments/m/chat/completions"),
        ("/openai/deployments/mine", "/openai/deployments/mine/chat/completions"),
        (
            "/openai/deployments/mine/chat/completions",
            "/openai/deployments/mine/chat/completions",
        ),
    ],
)
def test_azure_is_asked_by_deployment_and_version(written, path):
    auth = {"type": "api_key", "token_env": "CANARY"}
    request, reply = sent(lambda url: azure_api(url + written, auth=auth))
    assert (request.path, request.query) == (path, "api-version=2024-10-21")
    assert request.headers["api-key"] == KEY
    assert "authorization" not in request.headers
    assert reply.provider == "azure"


@pytest.mark.parametrize(
    ("api", "written", "path"),
    [
        (chat_api, "/v1/?a=2", "/v1/chat/completions"),
        (chat_api, "/v1/chat/completions?a=2", "/v1/chat/completions"),
        (anthropic_api, "/v1?a=2", "/v1/messages"),
        (gemini_api, "/v1beta?a=2", "/v1beta/openai/chat/completions"),
        (azure_api, "/openai/v1?a=2", "/openai/v1/chat/completions"),
    ],
)
def test_the_query_of_the_endpoint_goes_with_every_request(api, written, path):
    answer = chat_answer("hello")
    answer.body["content"] = [{"type": "text", "text": "hello"}]  # of Anthropic's form
    request, _ = sent(lambda url: api(url + written, request={"query": {"b": "3"}}), answer=answer)
    assert (request.path, request.query) == (path, "a=2&b=3")


def test_azures_version_stands_beside_a_query_of_the_request():
    request, _ = sent(lambda url: azure_api(url, request={"query": {"b": "3"}}))
    assert request.query == "api-version=2024-10-21&b=3"


@pytest.mark.parametrize("written", ["/v1beta", "/v1beta/", "/v1beta/openai"])
def test_geminis_compatible_endpoint_is_a_folder_of_its_own(written):
    request, reply = sent(lambda url: gemini_api(url + written, auth=BEARER))
    assert request.path == "/v1beta/openai/chat/completions"
    assert reply.provider == "gemini"


@pytest.mark.parametrize(
    ("kind_", "base_url"),
    [
        ("groq", "https://api.groq.com/openai/v1"),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta/openai"),
    ],
)
def test_providers_have_endpoints_of_their_own(kind_, base_url):
    api = dict(CHAT_APIS[kind_]("unused"))
    del api["endpoint"]
    request = request_of(api)
    assert request["base_url"] == base_url


def test_a_mock_answers_in_place_of_every_provider(kind):
    with LoopbackServer(lambda _: chat_answer("hello")) as server:
        api = CHAT_APIS[kind]("https://example.invalid")
        reply = ask(api, mock_url=server.url)
    assert reply.value == "hello"
    assert reply.provider == api["kind"]
    assert server.requests[0].path == "/v1/chat/completions"


# -- the request that a call is known by


def test_a_request_tells_who_is_asked_what(kind):
    api = CHAT_APIS[kind]
    one = request_of(api("https://a.example"))
    assert one["model"] == "m"
    assert one["provider"] == api("")["kind"]
    assert one["base_url"].startswith("https://a.example")
    assert one["stream"] is False
    others = [
        request_of(api("https://b.example")),
        request_of(api("https://a.example", request={"stream": True})),
        request_of(api("https://a.example", request={"options": {"model": "n"}})),
        request_of(api("https://a.example"), temperature=0.6),
    ]
    assert len({canonical_json(request) for request in [one, *others]}) == 5


def test_the_version_and_deployment_of_azure_are_part_of_it():
    requests = [
        request_of(azure_api("https://a.example", **more))
        for more in ({}, {"api_version": "2025-01-01"}, {"deployment": "d"})
    ]
    assert len({canonical_json(request) for request in requests}) == 3


# -- settings without a field


# -- answers


def test_tool_calls_are_a_result():
    calls = tool_calls(("search", {"q": "x"}), ("broken", "{not json"), ("none", ""))
    _, reply = sent(chat_api, answer=chat_answer(None, tool_calls=calls))
    assert reply.value == {
        "tool_calls": [
            {"name": "search", "arguments": {"q": "x"}},
            {"name": "broken", "arguments": "{not json"},
            {"name": "none", "arguments": {}},
        ]
    }


NO_TOKENS = {"prompt_tokens": 7, "completion_tokens": 0}
ABSENT = [
    (chat_api, {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}),
    (azure_api, {"choices": [], "prompt_filter_results": []}),
    (groq_api, {"choices": None}),
    (chat_api, {"choices": [{"message": {"role": "assistant", "content": None}}]}),
    (chat_api, {"choices": [{"message": {}, "finish_reason": None}], "usage": NO_TOKENS}),
    (chat_api, {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]}),
    (anthropic_api, {"type": "message", "content": [], "stop_reason": "end_turn"}),
    (anthropic_api, {"type": "message", "content": [], "stop_reason": None}),
    (anthropic_api, {"content": None, "usage": {"input_tokens": 7, "output_tokens": 0}}),
]


@pytest.mark.parametrize(("api", "body"), ABSENT)
def test_a_body_without_an_answer_is_tried_again(api, body):
    fault = fault_of(api, Answer(body))
    assert isinstance(fault, InfrastructureFault)
    assert (fault.error_type, fault.retryable, fault.may_be_billed) == ("no_answer", True, True)
    assert (fault.billed is not None) == ("usage" in body)


@pytest.mark.parametrize("more", [{"usage": NO_TOKENS}, {"finish_reason": "length"}])
def test_an_empty_answer_that_the_model_was_paid_or_cut_for_is_the_candidates_fault(more):
    reason = more.get("finish_reason", "stop")
    choice = {"message": {"content": None}, "finish_reason": reason}
    fault = fault_of(chat_api, Answer({"choices": [choice], **more}))
    assert (fault.fault, fault.error_type) == ("candidate", "empty_reply")


PAID = {"prompt_tokens": 7, "completion_tokens": 3}
CODED = {"error": {"code": 500, "message": "boom"}}
BROKEN_CHOICE = {"message": {"content": "hel"}, "finish_reason": "error", **CODED}


@pytest.mark.parametrize(
    "answer",
    [
        Answer({**CODED, "usage": PAID}),
        Answer({"choices": [BROKEN_CHOICE], "usage": PAID}),
        events([chunk(content="hel"), {"choices": [], "usage": PAID}, CODED], done=False),
        events([chunk(content="hel"), {**CODED, "usage": PAID}], done=False),
    ],
    ids=["whole", "choice", "stream", "last piece"],
)
def test_an_error_beside_reported_tokens_is_billed(answer):
    request = {"stream": "event-stream" in str(answer.headers)}
    models = {"m": {"input": 1_000_000, "output": 1_000_000}}
    prices = PriceTable.from_mapping({"version": "v", "providers": {"openai-compatible": models}})
    fault = fault_of(lambda url: chat_api(url, request=request), answer, prices=prices)
    assert (fault.fault, fault.error_type) == ("infrastructure", "http_500")
    assert fault.billed is not None
    assert (fault.billed.usage.total, fault.billed.cost_usd) == (10, 10.0)


@pytest.mark.parametrize(
    ("answer", "may_be_billed"),
    [
        (Answer(CODED), True),
        (Answer({"choices": [BROKEN_CHOICE]}), True),
        (events([chunk(content="hel"), CODED], done=False), True),
        (events([chunk(content="hel"), {"error": {"code": 429}}], done=False), True),
        (Answer({"error": {"code": 429}}), False),
    ],
    ids=["whole", "choice", "stream", "limit behind text", "limit"],
)
def test_an_error_without_reported_tokens_may_be_billed_unless_it_refuses_the_request(
    answer, may_be_billed
):
    request = {"stream": "event-stream" in str(answer.headers)}
    fault = fault_of(lambda url: chat_api(url, request=request), answer)
    assert isinstance(fault, InfrastructureFault)
    assert (fault.may_be_billed, fault.billed) == (may_be_billed, None)


@pytest.mark.parametrize("api", [gemini_api])
def test_a_key_that_gemini_does_not_know_is_not_the_candidates_fault(api):
    answer = gemini_error(400, "API key not valid.", reason="API_KEY_INVALID")
    fault = fault_of(api, answer)
    assert isinstance(fault, InfrastructureFault)
    assert not fault.retryable


def test_gemini_tells_in_its_body_how_long_to_wait():
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    fault = fault_of(gemini_api, Answer([{"error": {"code": 429, "details": details}}], 429))
    assert isinstance(fault, InfrastructureFault)
    assert fault.retry_after_s == 34.5


def test_a_turn_that_anthropic_pauses_is_a_paid_answer():
    usage = {"input_tokens": 7, "output_tokens": 3}
    body = {
        "content": [{"type": "text", "text": "I search"}], "stop_reason": "pause_turn", "usage": usage
    }  # fmt: skip
    _, reply = sent(anthropic_api, answer=Answer(body))
    assert (reply.value, reply.finish_reason, reply.usage.total) == ("I search", "pause_turn", 10)
    fault = fault_of(anthropic_api, Answer({**body, "content": []}))
    assert (fault.fault, fault.error_type) == ("candidate", "empty_reply")
    assert fault.billed is not None
    assert fault.billed.usage.total == 10


@pytest.mark.parametrize(
    ("status", "code"),
    [(429, "insufficient_quota"), (402, "any"), (400, "billing_hard_limit_reached")],
)
def test_spent_credit_does_not_heal(status, code):
    fault = fault_of(chat_api, Answer({"error": {"code": code}}, status))
    assert isinstance(fault, InfrastructureFault)
    assert not fault.retryable


# -- secrets


@pytest.mark.parametrize("status", [400, 401, 429, 500])
@pytest.mark.parametrize("auth_type", ["bearer", "api_key"])
def test_a_server_that_repeats_the_key_puts_it_into_no_fault(kind, status, auth_type):
    auth = {"type": auth_type, "token_env": "CANARY"}
    echo = Answer({"error": {"message": f"bad key Bearer {KEY}", "code": KEY}}, status)
    fault = fault_of(lambda url: CHAT_APIS[kind](url, auth=auth), echo)
    shown = "".join(traceback.format_exception(fault)) + fault.details + repr(fault)
    assert KEY not in shown
    assert "[redacted]" in fault.details


@pytest.mark.parametrize("body", [b"not json canary-0123456789", b'["canary-0123456789"]'])
def test_a_broken_body_that_repeats_the_key_puts_it_into_no_fault(kind, body):
    fault = fault_of(lambda url: CHAT_APIS[kind](url, auth=BEARER), Answer(body))
    assert KEY not in "".join(traceback.format_exception(fault)) + fault.details


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("key", ["canary-01234\n56789", "canary-0123\N{HORIZONTAL ELLIPSIS}6789"])
def test_a_key_that_no_header_can_carry_is_in_no_fault(kind, key, stream):
    auth = {"type": "bearer", "token_env": "CANARY"}
    with LoopbackServer(lambda _: chat_answer("hello")) as server:
        api = CHAT_APIS[kind](server.url, auth=auth, request={"stream": stream})
        with pytest.raises(InfrastructureFault) as caught:
            ask(api, environ={"CANARY": key})
    assert (caught.value.error_type, caught.value.retryable) == ("bad_header", False)
    assert "canary-0123" not in "".join(traceback.format_exception(caught.value))
    assert server.requests == []
