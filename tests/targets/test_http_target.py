"""HTTP endpoints as targets, over real sockets: what is sent, and what is made of the answer."""

import base64
import math
from collections.abc import Callable
from typing import Any

import pytest

from convergence_core.errors import InfrastructureFault
from tasks.inputs.environment import Environment
from tasks.inputs.factories import make_target
from tasks.secrets.redaction import Redactor, Secrets
from tests.support.configurations import http_api, loaded
from tests.support.http_server import Answer, LoopbackServer
from tests.support.http_targets import CASE, NO_PRICES, ask, fault_of, made_target
from tests.support.scratch_journal import ScratchJournal
from tests.support.sessions import assignment, session


def test_the_default_request_is_the_input_overlaid_by_the_parameters():
    with LoopbackServer(lambda _: Answer({"result": "ok"})) as server:
        reply = ask(http_api(server.url + "/v2/ask"))
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v2/ask")
    assert request.body == {"q": "one", "k": 2, "deep": {"list": ["x", "y"]}}
    assert reply.value == "ok"


def test_a_body_template_fills_placeholders_and_keeps_their_types():
    body = {
        "question": "{input.q}",
        "k": "{k}",
        "text": "k is {k}, first is {input.deep.list[0]}",
        "whole": "{input.deep}",
        "plain": '{{k}} {"a": {"b": 1}}',
        "absent": "{z}",
        "list": ["{k}", "{z}", 1],
        "written": "-{z}-",
    }
    space = {
        "k": {"type": "int", "min": 1, "max": 9},
        "z": {"type": "int", "min": 1, "max": 9, "when": {"k": 9}},
    }
    with LoopbackServer(lambda _: Answer({"result": 1})) as server:
        api = http_api(server.url, request={"body": body, "method": "PUT"})
        cases = {"inline": [{"id": "a", "input": CASE.input, "expected": "1"}]}
        ask(api, search_space__parameters=space, evaluation__test_cases=cases)
    (request,) = server.requests
    assert request.method == "PUT"
    assert request.body == {
        "question": "one",
        "k": 2,
        "text": "k is 2, first is x",
        "whole": {"list": ["x", "y"]},
        "plain": '{k} {"a": {"b": 1}}',
        "list": [2, 1],
        "written": "--",
    }


def test_models_choose_the_endpoint():
    space = {"model": {"type": "categorical", "choices": ["small", "large"]}}
    with LoopbackServer(lambda _: Answer({"result": 1})) as server:
        models = {n: {"endpoint": f"{server.url}/{n}"} for n in ("small", "large")}
        api = {"name": "system", "kind": "http", "models": models}
        ask(api, params={"model": "large"}, search_space__parameters=space)
    assert server.requests[0].path == "/large"


@pytest.mark.parametrize(
    ("auth", "environ", "header", "value"),
    [
        ({"type": "bearer", "token_env": "T"}, {"T": "tok-1"}, "authorization", "Bearer tok-1"),
        ({"type": "api_key", "token_env": "T"}, {"T": "tok-1"}, "x-api-key", "tok-1"),
        (
            {"type": "api_key", "token_env": "T", "header_name": "X-Mine"},
            {"T": " tok-1\n"},
            "x-mine",
            "tok-1",
        ),
        (
            {"type": "basic", "username": "me", "password_env": "P"},
            {"P": "pass"},
            "authorization",
            "Basic " + base64.b64encode(b"me:pass").decode(),
        ),
    ],
)
def test_each_kind_of_authentication_sends_its_header(auth, environ, header, value):
    with LoopbackServer(lambda _: Answer({"result": 1})) as server:
        ask(http_api(server.url, auth=auth), environ=environ)
    assert server.requests[0].headers[header] == value


def test_no_secret_is_in_the_canonical_request():
    auth = {"type": "bearer", "token_env": "T"}
    headers = {"X-Key": "${T}"}
    made = loaded(api=http_api("http://127.0.0.1:1/", auth=auth, request={"headers": headers}))
    request = made_target(made, {"T": "tok-1"}).request({"k": 2}, CASE)
    assert "tok-1" not in repr(request)
    assert "${T}" in repr(request)


@pytest.mark.parametrize("number", [1e300, 10**400, math.nan, math.inf])
def test_a_bill_that_nobody_can_mean_is_a_fault_of_the_endpoint(number: float):
    fault = fault_of(Answer({"result": "x", "bill": number}), response={"cost_field": "bill"})
    assert (fault.fault, fault.error_type) == ("infrastructure", "bad_bill")
    assert isinstance(fault, InfrastructureFault)
    assert fault.may_be_billed
    assert "in `bill`, not a number up to 1e+09" in str(fault)


def test_a_number_that_no_metric_reads_may_be_no_number_and_a_cost_a_text():
    text = b'{"result": {"label": "x", "score": NaN}, "bill": "0.25", "more": Infinity}'
    metrics = {"label": {"type": "exact_match", "field": "label", "weight": 1}}
    with LoopbackServer(lambda _: Answer(text)) as server:
        api = http_api(server.url, response={"cost_field": "bill"})
        reply = ask(api, evaluation__metrics=metrics)
    assert (reply.value, reply.cost_usd) == ({"label": "x", "score": None}, 0.25)
    assert fault_of(Answer(text)).error_type == "not_finite"


def test_an_answer_without_the_default_result_field_is_a_result_as_a_whole():
    with LoopbackServer(lambda _: Answer([1, 2])) as server:
        assert ask(http_api(server.url)).value == [1, 2]


def test_an_answer_without_a_written_result_field_is_the_candidates_fault():
    fault = fault_of(Answer({"other": 1}), response={"result_field": "data.text"})
    assert (fault.fault, fault.error_type) == ("candidate", "missing_result")


COUNTS = [
    {"success": 0, "failed": 3},
    {"success": 0.0},
    {"success": "0"},
    {"success": 0, "error": 3},
]


@pytest.mark.parametrize("answer", COUNTS, ids=repr)
def test_a_count_of_successes_is_no_failure_of_an_endpoint(answer):
    with LoopbackServer(lambda _: Answer(answer)) as server:
        assert ask(http_api(server.url)).value == answer
    with LoopbackServer(lambda _: Answer({"result": {"success": False}})) as server:
        assert ask(http_api(server.url)).value == {"success": False}


@pytest.mark.parametrize("success", [False, 0, 0.0, "false", "FALSE", "0"], ids=repr)
def test_success_false_is_the_candidates_fault_with_the_endpoints_words(success):
    fault = fault_of(Answer({"success": success, "error": "no such index"}))
    assert (fault.fault, fault.error_type) == ("candidate", "reported_failure")
    assert str(fault) == "no such index"


@pytest.mark.parametrize("more", [{}, {"result": None}])
@pytest.mark.parametrize("written", [{}, {"result_field": "result"}])
def test_an_error_in_place_of_a_result_is_missing(more, written):
    error = {"code": 503, "message": "overloaded"}
    fault = fault_of(Answer({"error": error, **more}), response=written)
    assert (fault.fault, fault.error_type) == ("infrastructure", "http_503")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_query_of_the_endpoint_and_that_of_the_request_are_sent(method):
    with LoopbackServer(lambda _: Answer({"result": 1})) as server:
        ask(http_api(f"{server.url}/a?v=2", request={"method": method, "query": {"q": "hi {k}"}}))
    assert (server.requests[0].path, server.requests[0].query) == ("/a", "v=2&q=hi+2")


PLAIN = {"content-type": "text/plain; charset=utf-8"}


@pytest.mark.parametrize("kind", ["text/plain", "text/html", "application/octet-stream", "", "x"])
@pytest.mark.parametrize("written", [{}, {"result_field": "result"}])
def test_json_is_read_whatever_its_content_type(kind, written):
    answer = Answer(b'\xef\xbb\xbf {"result": {"a": [1]}}\n', headers={"content-type": kind})
    with LoopbackServer(lambda _: answer) as server:
        assert ask(http_api(server.url, response=written)).value == {"a": [1]}


def test_json_is_read_in_the_charset_that_its_head_names():
    answer = Answer(
        '{"result": "é"}'.encode("latin-1"),
        headers={"content-type": "application/json; charset=iso-8859-1"},
    )
    with LoopbackServer(lambda _: answer) as server:
        assert ask(http_api(server.url)).value == "é"


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_plain_text_without_a_word_is_missing(text):
    fault = fault_of(Answer(text.encode(), headers=PLAIN))
    assert (fault.fault, fault.error_type) == ("infrastructure", "bad_body")


@pytest.mark.parametrize("kind", ["text/html", "application/json", "text/plain", ""])
@pytest.mark.parametrize("head", ["", "<!DOCTYPE html>\n", "\ufeff\n<!doctype HTML PUBLIC>"])
def test_the_page_of_a_proxy_is_missing_with_status_200_too(kind, head):
    page = f"{head}<html><body>502 Bad Gateway</body></html>".encode()
    fault = fault_of(Answer(page, headers={"content-type": kind}))
    assert (fault.fault, fault.error_type) == ("infrastructure", "bad_body")


def always(answer: Answer) -> Callable[[Any], Answer]:
    return lambda _: answer


PAGE = "<!doctype html><html><head><title>{}</title></head><body><h1>{}</h1></body></html>"


@pytest.mark.parametrize("kind", ["text/plain", "", "text/markdown"])
@pytest.mark.parametrize(
    "title",
    [
        "503 Service Temporarily Unavailable",
        "ERROR: The request could not be satisfied",
        "Error 502 (Server Error)!!1",
        "HTTP Status 500 \u2013 Internal Server Error",
        "shop.example | 521: Web server is down",
        "Just a moment...",
    ],
)
def test_the_title_of_a_page_tells_a_failure_from_an_answer(kind, title):
    headers = {"content-type": kind}
    fault = fault_of(Answer(PAGE.format(title, "Oops").encode(), headers=headers))
    assert (fault.fault, fault.error_type) == ("infrastructure", "bad_body")
    for answer in ("Sales 2024", "450 recipes", "Our forbidden planet", "", "Time at work"):
        page = Answer(PAGE.format(answer, answer).encode(), headers=headers)
        with LoopbackServer(always(page)) as server:
            assert ask(http_api(server.url)).value == page.body.decode()


HALVES = ['{"result": "ha', '{"result": tr', '[{"a": 1}, ', "[1, 2", "{"]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("kind", ["", "text/html; charset=utf-8"])
def test_half_a_json_is_no_answer_where_the_type_is_one_that_servers_name_for_any(kind, half):
    fault = fault_of(Answer(half.encode(), headers={"content-type": kind}))
    assert (fault.fault, fault.error_type) == ("infrastructure", "bad_body")


@pytest.mark.parametrize("kind", ["", "text/html; charset=utf-8", "text/markdown", "text/plain"])
@pytest.mark.parametrize(
    "text",
    [
        "# Yes\n", "[Paris](x) is it", "[1] Paris", "[Paris]", "[x", '"Paris," he said',
        '"Paris', "{name}, it is Paris", "{'result': 'Paris'}", "<3 Paris", "< 5 items",
    ],
)  # fmt: skip
def test_words_are_an_answer_whatever_they_begin_with(kind, text):
    with LoopbackServer(lambda _: Answer(text.encode(), headers={"content-type": kind})) as server:
        assert ask(http_api(server.url)).value == text


@pytest.mark.parametrize("text", [*HALVES, '"Paris"', "42", "true", "null", "NaN"])
@pytest.mark.parametrize("kind", ["text/markdown", "text/plain"])
def test_a_text_of_a_type_of_texts_stays_as_it_is(kind, text):
    with LoopbackServer(lambda _: Answer(text.encode(), headers={"content-type": kind})) as server:
        assert ask(http_api(server.url)).value == text


@pytest.mark.parametrize(
    "kind", ["text/json; charset=utf-8", "text/x-json", "text/javascript", "text/vnd.api+json"]
)
def test_a_text_type_of_json_is_read_as_json(kind):
    headers = {"content-type": kind}
    for text, value in {'"Paris"': "Paris", "42": 42, "true": True, "Paris": "Paris"}.items():
        with LoopbackServer(always(Answer(text.encode(), headers=headers))) as server:
            assert ask(http_api(server.url)).value == value
    for half in [*HALVES, '"Par', '{"a": 1}\n{"b"']:
        fault = fault_of(Answer(half.encode(), headers=headers))
        assert (fault.fault, fault.error_type) == ("infrastructure", "bad_body")


@pytest.mark.parametrize(
    "text",
    [
        "just words", "No server is needed: SQLite is a library.", "The origin server.",
        "Connection closed means the peer hung up.", "Forbidden", "not found", "Overloaded",
        "Internal error", "502 Bad Gateway", "<p>502 Bad Gateway</p>", "Write <html> first.",
        "<htmlx>",
    ],
)  # fmt: skip
def test_a_plain_text_is_no_result_where_a_field_of_json_is(text):
    answer = Answer(text.encode(), headers=PLAIN)
    with LoopbackServer(lambda _: answer) as server:
        assert ask(http_api(server.url)).value == text
    fault = fault_of(answer, response={"result_field": "result"})
    assert (fault.fault, fault.error_type) == ("infrastructure", "bad_body")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed_on_the_same_host_either(status):
    with (
        LoopbackServer(lambda _: Answer({}, status, {"location": "/new"})) as server,
        pytest.raises(
            InfrastructureFault, match=r"`api.endpoint`: http://127.*:\d+/new$"
        ) as caught,
    ):
        ask(http_api(server.url + "/old"))
    assert [request.path for request in server.requests] == ["/old"]
    assert (caught.value.retryable, caught.value.error_type) == (False, f"http_{status}")


def test_a_server_that_echoes_the_key_leaks_it_nowhere():
    key = "canary-9f8e7d6c5b4a"

    def answer(request):
        said = request.headers["authorization"]
        if request.body["x"] == 0:
            return Answer({"detail": said}, 400)
        if request.body["x"] == 1:
            return Answer({"detail": said}, 500)
        return Answer({"result": said, said: said})

    with LoopbackServer(answer) as server:
        auth = {"type": "bearer", "token_env": "CANARY"}
        made = loaded(api=http_api(server.url, auth=auth))
        secrets = Secrets({"CANARY": key})
        journal = ScratchJournal()
        redact = Redactor.from_configuration(made.configuration, secrets)
        target = make_target(made, Environment(secrets=secrets, prices=NO_PRICES))
        with session(target, journal=journal, redact=redact, max_retries=1) as s:
            trial = s.evaluate(assignment({"k": 1}, ["c0", "c1", "c2"]), 0)
    assert server.requests[0].headers["authorization"] == f"Bearer {key}"
    assert [e.fault for e in trial.evaluations] == ["candidate", "infrastructure", "evaluator"]
    assert key not in repr(trial)
    assert key not in "".join(journal.stored)
