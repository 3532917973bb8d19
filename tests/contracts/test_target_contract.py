"""What every target must keep, whatever is behind it."""

import asyncio
import json
from typing import Any

import pytest

from convergence_core.budget.prices import PriceTable
from convergence_core.errors import CandidateFault, InfrastructureFault
from convergence_core.ports import WorstCase
from convergence_core.records import Case, Reply, canonical_json
from tasks.inputs.environment import Environment
from tasks.inputs.factories import make_target
from tasks.secrets.redaction import Secrets
from tests.support.chat_servers import HELLO_CHUNKS, azure_api, events, gemini_api, groq_api
from tests.support.configurations import chat_api, http_api, loaded
from tests.support.http_server import LoopbackServer, chat_answer, error_answer

CASE = Case(case_id="a", input={"q": "one"}, expected="1")
SECRET = "canary-0123456789"  # noqa: S105 - not one
FUNCTIONS_OF_ALL_KINDS = ("function", "async function")
CHATS = ("openai", "azure", "groq", "gemini", "streamed")
KINDS = (*FUNCTIONS_OF_ALL_KINDS, "http", *CHATS)
SPACE = {
    "temperature": {"type": "float", "min": 0, "max": 1},
    "max_tokens": {"type": "int", "min": 1, "max": 9, "when": {"temperature": [0.5]}},
}
PARAMS = {"temperature": 0.5, "max_tokens": 3}
PRICES = {
    "m": {"input": 1.0, "output": 4.0, "max_output_tokens": 100},
    "http": {"request": 0.002},
    "function": {"request": 0.003},
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def server():
    def answer(request):
        text = json.dumps(request.body)
        if "please refuse" in text:
            return error_answer(400)
        if "please break" in text:
            return error_answer(500)
        if isinstance(request.body, dict) and request.body.get("stream"):
            return events(HELLO_CHUNKS)
        return chat_answer("hello")

    with LoopbackServer(answer) as running:
        yield running


FUNCTIONS = """
def check(case_input):
    if case_input["q"] == "please refuse":
        raise ValueError("refused")
    if case_input["q"] == "please break":
        import os
        os._exit(3)

def sync(case_input, params):
    check(case_input)
    return "hello"

async def coroutine(case_input, params):
    check(case_input)
    return "hello"
"""


@pytest.fixture
def target(kind, server, tmp_path):
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    auth = {"type": "bearer", "token_env": "CANARY"}
    apis = {
        "function": {"name": "s", "kind": "function", "function": "functions.py:sync"},
        "async function": {"name": "s", "kind": "function", "function": "functions.py:coroutine"},
        "http": http_api(server.url, auth=auth),
        "openai": chat_api(server.url + "/v1", auth=auth),
        "azure": azure_api(server.url, auth=auth),
        "groq": groq_api(server.url + "/v1", auth=auth),
        "gemini": gemini_api(server.url, auth=auth),
        "streamed": chat_api(server.url + "/v1", auth=auth, request={"stream": True}),
    }
    made = loaded(
        tmp_path,
        api=apis[kind],
        search_space__parameters=SPACE,
        optimization__execution={"parallel_workers": 2},
    )
    prices = PriceTable(version="2026-01-01").with_overrides(PRICES)
    return make_target(made, Environment(secrets=Secrets({"CANARY": SECRET}), prices=prices))


def use(target, *requests) -> Any:
    async def go() -> Any:
        try:
            return [await target.call(params, case) for params, case in requests]
        finally:
            await target.aclose()

    return asyncio.run(go())


def case_of(text) -> Any:
    return Case(case_id="a", input={"q": text})


def test_requests_are_canonical_json_without_secrets(target):
    request = target.request(PARAMS, CASE)
    assert canonical_json(request) == canonical_json(target.request(dict(PARAMS), CASE))
    assert SECRET not in canonical_json(request)
    assert "timeout" not in canonical_json(request)


def test_what_shapes_the_answer_is_in_the_request(target):
    one = target.request(PARAMS, CASE)
    assert one != target.request({**PARAMS, "max_tokens": 4}, CASE)
    assert one != target.request({"temperature": 0.5}, CASE)
    assert one != target.request(PARAMS, case_of("two"))


def test_a_call_returns_a_finite_reply(target):
    (reply,) = use(target, (PARAMS, CASE))
    assert isinstance(reply, Reply)
    canonical_json(reply.value)
    assert reply.latency_ms >= 0
    assert reply.provider == target.provider


def test_the_worst_case_bounds_the_cost_and_the_tokens(target):
    worst = target.worst_case(PARAMS, CASE)
    assert isinstance(worst, WorstCase)
    assert worst == target.worst_case(dict(PARAMS), CASE)
    (reply,) = use(target, (PARAMS, CASE))
    assert 0 < reply.cost_usd <= worst.usd
    assert reply.price_version
    if reply.usage.total is not None and worst.tokens is not None:
        assert reply.usage.total <= worst.tokens


def test_many_calls_at_once_all_return(target):
    async def go() -> Any:
        try:
            return await asyncio.gather(*(target.call(PARAMS, CASE) for _ in range(20)))
        finally:
            await target.aclose()

    assert len(asyncio.run(go())) == 20


def test_the_candidates_doing_is_a_candidate_fault(target):
    with pytest.raises(CandidateFault) as caught:
        use(target, (PARAMS, case_of("please refuse")))
    assert caught.value.error_type
    assert SECRET not in caught.value.details


def test_what_breaks_around_it_is_an_infrastructure_fault(target, kind):
    if kind in ("function", "async function"):
        pytest.skip("a function of this process breaks with it")
    with pytest.raises(InfrastructureFault) as caught:
        use(target, (PARAMS, case_of("please break")))
    assert caught.value.retryable


def test_it_never_retries_by_itself(target, server, kind):
    with pytest.raises((CandidateFault, InfrastructureFault)):
        use(target, (PARAMS, case_of("please refuse")))
    assert len(server.requests) == (kind not in FUNCTIONS_OF_ALL_KINDS)
