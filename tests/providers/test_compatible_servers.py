"""Servers that speak OpenAI's protocol in their own ways: fields, usage, prices and errors of each.

The errors are bodies as the servers send them: of their documentation, their sources, and reports of users.
"""

import asyncio
from typing import Any

import pytest
import yaml

from convergence_core.budget.prices import PriceTable
from convergence_core.budget.usage import reported_cost
from convergence_core.errors import CandidateFault, EvaluationFault
from convergence_core.records import Reply
from tasks.inputs.environment import shipped_prices
from tests.docs.test_documents import ROOT, blocks
from tests.support.chat_servers import CASE, USAGE_CHUNK, chunk, events, target_of
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer

MISTRAL = "https://api.mistral.ai/v1"
DEEPSEEK = "https://api.deepseek.com/v1"
OPENROUTER = "https://openrouter.ai/api/v1"
OLLAMA = "http://127.0.0.1:11434/v1"
VLLM = "http://127.0.0.1:8000/v1"
LLAMA_CPP = "http://127.0.0.1:8080/v1"
MODELS = {
    MISTRAL: "mistral-small-2603",
    DEEPSEEK: "deepseek-v4-flash",
    OPENROUTER: "anthropic/claude-haiku-4.5",
    OLLAMA: "qwen3:4b",
    VLLM: "Qwen/Qwen3-4B",
    LLAMA_CPP: "qwen3-4b",
}
SHIPPED = shipped_prices()


def api_of(endpoint: str, **request: Any) -> dict[str, Any]:
    options = {"model": MODELS[endpoint], **request.pop("options", {})}
    return {
        "name": "system",
        "kind": "openai",
        "endpoint": endpoint,
        "request": {"options": options, **request},
    }


SPACE = {"system": {"type": "text", "variants": ["a", "b"]}}


def asked(
    endpoint: str, answer: Answer, *, prices: PriceTable = SHIPPED, **request: Any
) -> tuple[Request, Reply]:
    """Ask once at the address of a server, whose place a server on loopback takes."""
    with LoopbackServer(lambda _: answer) as server:
        target = target_of(
            api_of(endpoint, **request),
            prices=prices,
            mock_url=server.url,
            search_space__parameters=SPACE,
        )

        async def go() -> Reply:
            try:
                return await target.call({"system": "a"}, CASE)
            finally:
                await target.aclose()

        reply = asyncio.run(go())
    (seen,) = server.requests
    return seen, reply


def fault_of(endpoint: str, answer: Answer, **request: Any) -> EvaluationFault:
    with pytest.raises(EvaluationFault) as caught:
        asked(endpoint, answer, **request)
    return caught.value


# -- fields


@pytest.mark.parametrize(
    ("endpoint", "options", "sent"),
    [
        (MISTRAL, {"seed": 7, "max_completion_tokens": 9}, {"random_seed": 7, "max_tokens": 9}),
        (MISTRAL, {"top_k": 5, "prompt_mode": "reasoning"}, None),
        (DEEPSEEK, {"max_completion_tokens": 9, "n": 1}, {"max_tokens": 9, "n": 1}),
        (DEEPSEEK, {"temperature": 0.2, "thinking": {"type": "disabled"}}, None),
        (DEEPSEEK, {"temperature": 1, "top_p": 0.5}, None),
        (OPENROUTER, {"seed": 7, "top_k": 5, "provider": {"require_parameters": True}}, None),
        (OLLAMA, {"seed": 7, "max_completion_tokens": 9}, {"seed": 7, "max_tokens": 9}),
        (VLLM, {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1}, None),
        (LLAMA_CPP, {"top_k": 5, "cache_prompt": True}, None),
    ],
)
def test_settings_are_sent_as_the_server_names_them(endpoint, options, sent):
    request, _ = asked(endpoint, chat_answer("hello"), options=options)
    fields = {k: v for k, v in request.body.items() if k not in ("model", "messages")}
    assert fields == (options if sent is None else sent)


@pytest.mark.parametrize(
    ("endpoint", "options", "name"),
    [
        (MISTRAL, {"logit_bias": {"1": 1}}, "logit_bias"),
        (MISTRAL, {"user": "u"}, "user"),
        (MISTRAL, {"max_tokens": 3, "max_completion_tokens": 9}, "max_completion_tokens"),
        (DEEPSEEK, {"seed": 7}, "seed"),
        (DEEPSEEK, {"n": 2}, "n"),
        (DEEPSEEK, {"temperature": 0.2}, "temperature"),
        (DEEPSEEK, {"presence_penalty": 1}, "presence_penalty"),
        (OLLAMA, {"top_k": 5}, "top_k"),
        (OLLAMA, {"n": 2}, "n"),
    ],
)
def test_what_a_server_ignores_or_refuses_is_refused_before_it_is_sent(endpoint, options, name):
    fault = fault_of(endpoint, chat_answer("hello"), options=options)
    assert isinstance(fault, CandidateFault)
    assert fault.error_type == "unsupported_parameter"
    assert f"`{name}`" in str(fault)


@pytest.mark.parametrize("endpoint", MODELS)
def test_streams_tell_their_usage_and_mistral_is_not_asked_for_it(endpoint):
    pieces = [chunk(content="hel"), chunk(content="lo"), chunk("stop"), USAGE_CHUNK]
    request, reply = asked(endpoint, events(pieces), stream=True)
    assert ("stream_options" in request.body) == (endpoint != MISTRAL)
    assert (reply.value, reply.usage.total) == ("hello", 10)


@pytest.mark.parametrize("is_stream", [False, True])
def test_thoughts_among_the_parts_of_an_answer_are_no_text_of_it(is_stream):
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [thought, {"type": "text", "text": "hello"}]
    if is_stream:
        answer = events([chunk(content=[thought]), chunk(content=parts[1:]), chunk("stop")])
    else:
        answer = chat_answer(None)
        answer.body["choices"][0]["message"]["content"] = parts
    _, reply = asked(MISTRAL, answer, stream=is_stream)
    assert reply.value == "hello"


# -- usage and prices


def with_usage(usage: Any) -> Answer:
    answer = chat_answer("hello")
    answer.body["usage"] = usage
    return answer


@pytest.mark.parametrize(
    ("endpoint", "usage", "tokens", "cost_usd"),
    [
        (
            MISTRAL,
            {
                "prompt_tokens": 1000,
                "completion_tokens": 100,
                "total_tokens": 1100,
                "prompt_tokens_details": {"cached_tokens": 400},
            },
            (1000, 400, 100, None),
            (600 * 0.15 + 400 * 0.015 + 100 * 0.6) / 1e6,
        ),
        (
            DEEPSEEK,
            {
                "prompt_tokens": 1000,
                "completion_tokens": 100,
                "total_tokens": 1100,
                "prompt_cache_hit_tokens": 640,
                "prompt_cache_miss_tokens": 360,
                "completion_tokens_details": {"reasoning_tokens": 70},
            },
            (1000, 640, 100, 70),
            (360 * 0.14 + 640 * 0.0028 + 100 * 0.28) / 1e6,
        ),
        (
            OPENROUTER,
            {
                "prompt_tokens": 194,
                "completion_tokens": 20,
                "total_tokens": 214,
                "cost": 0.00031,
                "is_byok": False,
                "cost_details": {"upstream_inference_cost": 0.00031},
                "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 100},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            (194, 0, 20, 5),
            0.00031,
        ),
        (OLLAMA, {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}, (9, None, 3, None), 0.0),
        (
            VLLM,
            {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
            (9, 4, 3, None),
            0.0,
        ),
        (
            LLAMA_CPP,
            {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
            (9, 4, 3, None),
            0.0,
        ),
    ],
)  # fmt: skip
def test_each_form_of_usage_is_read_and_priced(endpoint, usage, tokens, cost_usd):
    free = {MODELS[local]: {"input": 0, "output": 0} for local in (OLLAMA, VLLM, LLAMA_CPP)}
    prices = SHIPPED.with_overrides(free)
    _, reply = asked(endpoint, with_usage(usage), prices=prices)
    read = reply.usage
    assert (
        read.prompt_tokens,
        read.cached_tokens,
        read.completion_tokens,
        read.reasoning_tokens,
    ) == tokens
    assert reply.cost_usd == pytest.approx(cost_usd, abs=1e-15)


def test_a_price_of_the_configuration_wins_over_what_openrouter_reports():
    prices = SHIPPED.with_overrides({MODELS[OPENROUTER]: {"input": 1e6, "output": 0}})
    answer = with_usage({"prompt_tokens": 7, "completion_tokens": 3, "cost": 0.5})
    _, reply = asked(OPENROUTER, answer, prices=prices)
    assert (reply.cost_usd, reply.price_version) == (7.0, "config")
    _, reply = asked(OPENROUTER, answer)
    assert (reply.cost_usd, reply.price_version) == (0.5, None)


@pytest.mark.parametrize(
    ("usage", "cost_usd"),
    [
        ({"cost": 0.5, "is_byok": False, "cost_details": {"upstream_inference_cost": 9.5}}, 0.5),
        ({"cost": 0.5, "is_byok": True, "cost_details": {"upstream_inference_cost": 9.5}}, 10.0),
        ({"cost": 0.5, "cost_details": {"upstream_inference_cost": 9.5}}, 10.0),
        ({"cost": 0.5, "is_byok": True}, None),
        ({"cost": 0.5, "cost_details": None}, 0.5),
        ({"cost": 0}, 0.0),
        ({"cost": -1}, None),
        ({"cost": True}, None),
        ({"cost": float("nan")}, None),
        ({"cost": "0.5"}, None),
        ({}, None),
    ],
)
def test_a_reported_cost_is_an_amount_or_unknown(usage, cost_usd):
    assert reported_cost({"usage": usage}) == cost_usd


# -- errors


def error(status: int, body: Any, **headers: str) -> Answer:
    return Answer(body, status, headers)


def openai_form(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


EXTRA = {
    "object": "error",
    "message": {
        "detail": [
            {"type": "extra_forbidden", "loc": ["body", "foo"], "msg": "Extra inputs are not permitted"}
        ]
    },
    "type": "invalid_request_error",
    "param": None,
    "code": None,
}  # fmt: skip
LONG = "This model's maximum context length is 4096 tokens. However, your request has 9000 input tokens."

CANDIDATES_FAULTS = [
    (MISTRAL, error(422, EXTRA), "http_422"),
    (
        MISTRAL,
        error(400, {"object": "error", "message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length", "type": "invalid_request_error", "code": "3051"}),
        "http_400",
    ),
    (DEEPSEEK, error(400, openai_form(LONG, type="invalid_request_error")), "http_400"),
    (DEEPSEEK, error(422, openai_form("Failed to deserialize the JSON body")), "http_422"),
    (DEEPSEEK, chat_answer("", finish_reason="content_filter"), "refusal"),
    (OPENROUTER, chat_answer(None, content=[{"type": "refusal", "refusal": "I will not."}]), "refusal"),
    (
        OPENROUTER,
        error(403, openai_form("flagged", code=403, metadata={"reasons": ["violence"], "flagged_input": "…", "provider_name": "OpenAI"})),
        "refusal",
    ),
    (
        OPENROUTER,
        error(403, openai_form("blocked", code=403, metadata={"error_type": "content_policy_violation"})),
        "refusal",
    ),
    (OPENROUTER, error(404, openai_form("No endpoints found that can handle the requested parameters.", code=404)), "http_404"),
    (OPENROUTER, error(400, openai_form(LONG, code=400)), "http_400"),
    (OPENROUTER, Answer(openai_form(LONG, code=400)), "http_400"),  # with status 200
    (OLLAMA, error(404, openai_form('model "m" not found, try pulling it first', type="not_found_error")), "http_404"),
    (OLLAMA, error(400, openai_form("invalid message format", type="invalid_request_error")), "http_400"),
    (VLLM, error(400, {"object": "error", "message": LONG, "type": "BadRequestError", "param": None, "code": 400}), "http_400"),
    (VLLM, error(404, openai_form("The model `m` does not exist.", type="NotFoundError", code=404)), "http_404"),
    (LLAMA_CPP, error(400, openai_form("the request exceeds the available context size", type="exceed_context_size_error", code=400, n_prompt_tokens=9000, n_ctx=4096)), "http_400"),
]  # fmt: skip


@pytest.mark.parametrize(("endpoint", "answer", "kind"), CANDIDATES_FAULTS)
def test_what_the_parameters_caused_is_the_candidates_fault(endpoint, answer, kind):
    fault = fault_of(endpoint, answer)
    assert isinstance(fault, CandidateFault)
    assert fault.error_type == kind


# -- the page


def test_the_pages_examples_are_valid_and_reach_their_servers():
    page = (ROOT / "docs/targets.md").read_text(encoding="utf-8")
    part = page.partition("### Other servers")[2].partition("\n## ")[0]
    found = set()
    for block in blocks(part, "yaml"):
        tree = yaml.safe_load(block)
        prices = SHIPPED.with_overrides(tree.get("prices", {}))
        target = target_of(
            tree["api"],
            prices=prices,
            search_space__parameters=SPACE,
        )
        params = {"system": "a"}
        assert target.worst_case(params, CASE).usd is not None
        request: Any = target.request(params, CASE)
        found.add(request["base_url"])
    assert found == {MISTRAL, DEEPSEEK, OPENROUTER, OLLAMA}
