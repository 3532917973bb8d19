"""What answers of chat models cost, and what they can cost at most."""

from typing import Any

import pytest

from convergence_core.budget.prices import PriceTable
from convergence_core.ports import WorstCase
from convergence_core.records import Case
from tests.support.chat_servers import (
    CASE,
    CHAT_APIS,
    ask,
    azure_api,
    fault_of,
    groq_api,
    sent,
    target_of,
)
from tests.support.configurations import chat_api
from tests.support.http_server import Answer, LoopbackServer, chat_answer

PRICES = PriceTable.from_mapping(
    {
        "version": "2026-01-01",
        "providers": {
            "openai-compatible": {
                "m": {"input": 2, "output": 8, "cached_input": 0.5, "max_output_tokens": 1000},
                "served": {"input": 1, "output": 4},
            },
            "azure": {"m": {"input": 3, "output": 9}},
            "groq-compatible": {"m": {"input": 0.1, "output": 0.2}},
            "gemini-compatible": {"m": {"input": 0.3, "output": 2.5, "cached_input": 0.03}},
        },
    }
)


@pytest.fixture(params=CHAT_APIS)
def kind(request):
    return request.param


def with_usage(usage: Any, model: str = "m") -> Answer:
    answer = chat_answer("hello", model=model)
    answer.body["usage"] = usage
    return answer


@pytest.mark.parametrize(
    ("api", "answer", "cost_usd"),
    [
        (
            chat_api,
            with_usage(
                {
                    "prompt_tokens": 1000,
                    "completion_tokens": 100,
                    "prompt_tokens_details": {"cached_tokens": 400},
                    "completion_tokens_details": {"reasoning_tokens": 60},
                }
            ),
            (600 * 2 + 400 * 0.5 + 100 * 8) / 1e6,
        ),
        (azure_api, with_usage({"prompt_tokens": 10, "completion_tokens": 5}), 75 / 1e6),
        (groq_api, with_usage({"prompt_tokens": 10, "completion_tokens": 5}), 2 / 1e6),
        (
            chat_api,  # a gateway that passes Anthropic's block on
            with_usage({"input_tokens": 100, "cache_read_input_tokens": 50, "output_tokens": 10}),
            (100 * 2 + 50 * 0.5 + 10 * 8) / 1e6,
        ),
    ],
)
def test_every_shape_of_usage_has_its_price(api, answer, cost_usd):
    _, reply = sent(api, answer=answer, prices=PRICES)
    assert reply.cost_usd == pytest.approx(cost_usd, abs=1e-12)
    assert reply.price_version == "2026-01-01"


def cost_of(answer: Answer, prices: PriceTable = PRICES, **api: Any) -> Any:
    _, reply = sent(lambda url: chat_api(url, **api), answer=answer, prices=prices)
    return reply.cost_usd, reply.price_version


MILLION = {"prompt_tokens": 500_000, "completion_tokens": 500_000}


def test_a_price_of_the_configuration_for_the_model_that_was_asked_wins():
    prices = PRICES.with_overrides({"m": {"input": 5.0, "output": 5.0}})
    assert cost_of(with_usage(MILLION, "served"), prices) == (5.0, "config")
    prices = prices.with_overrides({"served": {"input": 7.0, "output": 5.0}})
    assert cost_of(with_usage(MILLION, "served"), prices) == (6.0, "config")


def of_tier(tier: str) -> Answer:
    answer = with_usage(MILLION)
    answer.body["service_tier"] = tier
    return answer


@pytest.mark.parametrize(
    ("answer", "options", "cost_usd"),
    [
        (of_tier("default"), {}, 5.0),
        (of_tier("priority"), {}, None),
        (of_tier("flex"), {}, None),
        (with_usage(MILLION), {"web_search_options": {}}, None),
        (with_usage({**MILLION, "server_tool_use": {"web_search_requests": 0}}), {}, 5.0),
        (with_usage({**MILLION, "server_tool_use": {"web_search_requests": 2}}), {}, None),
        (with_usage({"prompt_tokens": 0, "completion_tokens": 0}), {}, None),
        (with_usage({"prompt_tokens": 9, "completion_tokens": 0}), {}, None),
    ],
)
def test_what_is_charged_apart_from_the_table_makes_the_cost_unknown(answer, options, cost_usd):
    request = {"options": {"model": "m", **options}}
    assert cost_of(answer, request=request)[0] == cost_usd


def test_the_name_that_a_server_answers_with_gives_an_unpriced_model_no_price():
    request = {"options": {"model": "qwen"}}
    assert cost_of(with_usage(MILLION, "m"), request=request) == (None, None)


def test_each_text_of_a_batch_may_fill_the_models_context():
    price = {"input": 1, "output": 0, "context_tokens": 8000}
    prices = PriceTable.from_mapping(
        {"version": "v", "providers": {"openai-compatible": {"e": price}}}
    )
    target = target_of(chat_api("http://127.0.0.1:1"), prices=prices)
    body: Any = {"model": "e", "input": ["x" * 9000] * 3}
    assert target.forwarded("embeddings", body).worst.usd == pytest.approx(3 * 8000 / 1e6)


@pytest.mark.parametrize("more", [{"web_search_options": {}}, {"service_tier": "priority"}])
def test_without_a_known_price_there_is_no_worst_case(more):
    assert worst_of(chat_api, max_tokens=9, **more).usd is None


@pytest.mark.parametrize(
    ("api", "answer"),
    [
        (chat_api, chat_answer("", model="m")),
        (chat_api, chat_answer(None, model="m", refusal="no")),
    ],
)
def test_an_answer_of_no_use_is_billed_all_the_same(api, answer):
    billed = fault_of(api, answer, prices=PRICES).billed
    price = PRICES.find("openai-compatible", "m")
    assert billed is not None
    assert price is not None
    assert billed.usage.total == 10
    assert billed.cost_usd == price.cost(billed.usage)
    assert (billed.price_version, billed.model) == ("2026-01-01", "m")


# -- worst cases


def worst_of(api: Any, prices: PriceTable = PRICES, case: Case = CASE, **options: Any) -> Any:
    request = {"options": {"model": "m", **options}}
    target = target_of(api("https://a.example", request=request), prices=prices)
    return target.worst_case({"temperature": 0.5}, case)


def test_the_worst_case_bounds_what_the_call_costs(kind):
    answer = chat_answer("hello")
    with LoopbackServer(lambda _: answer) as server:
        api = CHAT_APIS[kind](server.url, request={"options": {"model": "m", "max_tokens": 50}})
        worst = target_of(api, prices=PRICES).worst_case({"temperature": 0.5}, CASE)
        reply = ask(api, prices=PRICES)
    assert worst.usd is not None
    assert worst.tokens is not None
    assert reply.cost_usd is not None
    assert reply.usage.total is not None
    assert worst.usd >= reply.cost_usd > 0
    assert worst.tokens >= reply.usage.total


def test_without_a_limit_the_models_longest_answer_counts():
    unlimited = worst_of(chat_api)
    assert unlimited.usd - worst_of(chat_api, max_tokens=1).usd == pytest.approx(999 * 8 / 1e6)
    assert worst_of(groq_api) == WorstCase()  # no price says how long its answers are
    models = {"openai": {"m": {"input": 1, "output": 1, "max_output_tokens": 9}}}
    elsewhere = PriceTable.from_mapping({"version": "v", "providers": models})
    worst, of_one = worst_of(chat_api, elsewhere), worst_of(chat_api, elsewhere, max_tokens=1)
    assert (worst.usd, worst.tokens - of_one.tokens) == (None, 8)
