"""What calls of a function cost: as it says, else the price of a request, else nobody knows."""

import asyncio
from typing import Any

import pytest

from convergence_core.budget.prices import PriceTable
from convergence_core.errors import CandidateFault
from convergence_core.ports import WorstCase
from convergence_core.records import Case, Usage
from tasks.targets.request_price import RequestPrice
from tests.support.sessions import function_target

CASE = Case(case_id="c", input={"x": 3}, expected=3)
NO_PRICES = PriceTable(version="2026-01-01")
PRICES = NO_PRICES.with_overrides({"function": {"request": 0.002}})


def use(function, prices, *, calls=True) -> Any:
    price = RequestPrice.of(prices, "function")
    target = function_target(function, workers=1, timeout_s=10.0, price=price)

    async def go() -> Any:
        try:
            return await target.call({"k": 2}, CASE) if calls else target.worst_case({}, CASE)
        finally:
            await target.aclose()

    return asyncio.run(go())


def answer(case_input, params):
    return "r"


def test_a_price_per_request_is_its_cost_and_its_worst_case():
    reply = use(answer, PRICES)
    assert (reply.cost_usd, reply.price_version) == (0.002, "config")
    assert use(answer, PRICES, calls=False) == WorstCase(usd=0.002)


def failing(case_input, params):
    raise ValueError("no")


def billed_of(function, prices) -> Any:
    with pytest.raises(CandidateFault) as caught:
        use(function, prices)
    return caught.value.billed


def test_a_call_that_failed_costs_its_request():
    billed = billed_of(failing, PRICES)
    assert (billed.cost_usd, billed.price_version) == (0.002, "config")
    assert billed_of(failing, NO_PRICES) is None


def test_a_failure_that_is_reported_with_its_cost_is_billed_so():
    def reports(case_input, params):
        return {"success": False, "error": "e", "cost_usd": 0.5, "tokens_in": 3, "model": "m"}

    for prices in (None, PRICES):
        billed = billed_of(reports, prices)
        assert (billed.cost_usd, billed.price_version, billed.model) == (0.5, None, "m")
        assert billed.usage == Usage(prompt_tokens=3)
