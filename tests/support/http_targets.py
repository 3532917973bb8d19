"""Short ways to ask an HTTP target once."""

import asyncio
from typing import Any

import pytest

from convergence_core.budget.prices import PriceTable
from convergence_core.errors import EvaluationFault
from convergence_core.ports import Target
from convergence_core.records import Case
from tasks.inputs.environment import Environment
from tasks.inputs.factories import make_target
from tasks.secrets.redaction import Secrets
from tests.support.configurations import http_api, loaded
from tests.support.http_server import LoopbackServer

CASE = Case(case_id="a", input={"q": "one", "k": 0, "deep": {"list": ["x", "y"]}}, expected="1")
NO_PRICES = PriceTable(version="2026-01-01")


def made_target(made, environ=None) -> Target:
    return make_target(made, Environment(secrets=Secrets(environ or {}), prices=NO_PRICES))


def ask(api, *, params=None, case=CASE, environ=None, base_dir=".", **sections) -> Any:
    made = loaded(base_dir, api=api, **sections)

    async def go() -> Any:
        target = made_target(made, environ)
        try:
            return await target.call({"k": 2} if params is None else params, case)
        finally:
            await target.aclose()

    return asyncio.run(go())


def fault_of(server_answer, **more) -> EvaluationFault:
    with (
        LoopbackServer(lambda _: server_answer) as server,
        pytest.raises(EvaluationFault) as caught,
    ):
        ask(http_api(server.url, **more))
    return caught.value
