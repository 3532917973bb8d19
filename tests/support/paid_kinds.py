"""Small paid runs of each kind of target against a faulty service that keeps a separate bill.

A number determines a run's limits, its service's faults, and its concurrent calls. The check compares the service's
bill with the run's ledger, and both with the limits.
"""

import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from convergence_core.result import RunResult
from tasks.functions.user_functions import load_function
from tasks.http.retries import Backoff
from tasks.mock.mock_server import MockServer
from tasks.mock.options import MockOptions
from tests.paid import books
from tests.support import agents
from tests.support.anthropic_form import anthropic_routes
from tests.support.http_server import Answer, LoopbackServer, Request
from tests.support.paid_runs import PRICES, begin, play, write_project
from tests.support.plugin_packages import install

FAULTS: Final = (0.0, 0.1, 0.3)
REQUEST_USD: Final = 0.0004
"""The HTTP service's bill for a request."""
WORST_USD: Final = 0.001
"""Maximum cost of one call of the function or the plugin."""

FUNCTION: Final = """
import hashlib
import threading

BILL, LOCK = [], threading.Lock()


def answer(case, params):
    number = int(hashlib.sha256(repr((case, params)).encode()).hexdigest(), 16)
    with LOCK:
        BILL.append({worst} * (number % 1000) / 999)
        cost = BILL[-1]
    if number % 7 == 0:
        raise ValueError("no answer to that")
    return {{"result": str(number % 10), "cost_usd": cost}}
"""
PLUGIN: Final = '''
import hashlib
import threading

from convergence.plugins import CandidateFault, InfrastructureFault, Reply, WorstCase

BILL, LOCK = [], threading.Lock()


class Shop:
    """Charges by the answer, and fails now and then without a charge."""

    provider = "shop"

    def __init__(self, context):
        pass

    def request(self, params, case):
        return {{"params": dict(params), "case": case.input}}

    def worst_case(self, params, case):
        return WorstCase(usd={worst}, tokens=10)

    async def call(self, params, case):
        with LOCK:
            n = len(BILL)
            BILL.append(0.0)
        number = int(hashlib.sha256(repr((params, case.input, n)).encode()).hexdigest(), 16)
        if number % 5 == 0:
            raise InfrastructureFault("come back", error_type="http_429", retry_after_s=0.0)
        if number % 11 == 0:
            raise CandidateFault("no answer to that", error_type="refused")
        with LOCK:
            BILL[n] = {worst} * (number % 1000) / 999
        return Reply(value=str(number % 10), latency_ms=1.0, cost_usd=BILL[n])

    async def aclose(self):
        pass
'''


@dataclass(slots=True)
class Outcome:
    """Result of a run, by its ledger and by its service."""

    kind: str
    budget: Mapping[str, float]
    result: RunResult
    n_calls: int
    """Requests that reached the service."""
    billed_usd: float
    """By the service."""
    ledger_usd: float
    """With what may have been paid."""
    ledger_tokens: int
    n_rows: int
    """Requests in the ledger."""
    broken: list[str] = field(default_factory=list)
    """Broken rules."""

    @property
    def share(self) -> float | None:
        """What the service billed, of ``max_usd``; ``None``: there is no such limit."""
        cap = self.budget.get("max_usd")
        return None if cap is None else self.billed_usd / cap


def drawn(seed: int) -> dict[str, Any]:
    """Return the keys of a small run with random limits."""
    rng = random.Random(seed)
    budget: dict[str, float] = {}
    kinds = rng.sample(["max_calls", "max_usd", "max_tokens"], rng.choice([1, 1, 2, 3]))
    if "max_calls" in kinds:
        budget["max_calls"] = rng.randrange(1, 60)
    if "max_usd" in kinds:
        budget["max_usd"] = 10 ** rng.uniform(-4.5, -1.5)
    if "max_tokens" in kinds:
        budget["max_tokens"] = rng.randrange(300, 20_000)
    return {
        "budget": budget,
        "optimization__seed": seed,
        "optimization__evolution": {
            "population_size": rng.randrange(2, 4), "generations": rng.randrange(1, 3), "elite_size": 1,
        },
        "optimization__execution": {
            "parallel_workers": rng.choice([1, 3, 8]),
            "max_retries": rng.choice([0, 1, 3]),
            "max_rate_limit_retries": rng.choice([0, 2]),
            "early_stopping": {"enabled": False},
        },
        "evaluation__cases_per_candidate": rng.choice([2, 5]),
        "evaluation__test_cases__holdout": rng.choice([0.0, 0.2]),
    }  # fmt: skip


@contextmanager
def short_pauses() -> Iterator[None]:
    """Shorten retry delays from seconds to milliseconds."""
    with (
        patch("tasks.calls.paid_calls.Backoff", lambda: Backoff(base_s=0.001, cap_s=0.002)),
        patch("convergence_core.budget.rate_limit.BACK_OFF_S", (0.001, 0.002)),
    ):
        yield


# -- chat kinds, at the mock


def chat_bill(stats: Mapping[str, Any]) -> float:
    """Return the cost of the server's answers by its own count, including truncated ones."""
    usd = 0.0
    for book in (stats["tokens"], stats["untold_tokens"]):
        for model, counts in book.items():
            price = PRICES[model]
            usd += counts["answers"] * price.get("request", 0.0)
            usd += counts["prompt_tokens"] * price["input"] / 1e6
            usd += counts["completion_tokens"] * price["output"] / 1e6
    return usd


CHAT: Final[Mapping[str, Mapping[str, Any]]] = {
    "openai": {},
    "azure": {"api__kind": "azure", "api__endpoint": "{url}"},
    "groq": {"api__kind": "groq", "api__endpoint": "{url}/openai/v1"},
    "gemini": {"api__kind": "gemini", "api__endpoint": "{url}/v1beta/openai"},
    "anthropic": {
        "api__kind": "anthropic", "search_space__parameters__temperature__max": 1.0,
    },
}  # fmt: skip
"""Kind → keys; ``{url}`` is the server's."""


def chat_run(kind: str, folder: Path, seed: int) -> Outcome:
    """Take a run of a chat kind to its end."""
    keys = drawn(seed)
    with MockServer(faults_of(seed), more_routes=anthropic_routes) as server:
        for name, value in CHAT[kind].items():
            keys[name] = value.format(url=server.url) if isinstance(value, str) else value
        write_project(folder, server.url, **keys)
        result = play(begin(folder))
        stats = server.stats()
    return outcome(kind, folder, keys, result, n_calls=stats["calls"], billed=chat_bill(stats))


def agent_run(kind: str, folder: Path, seed: int) -> Outcome:
    """Take a run of agents to its end, whose models are the mock's; their runs themselves cost nothing."""
    keys = drawn(seed)
    choices = {"type": "categorical", "choices": [*PRICES], "default": "swift-1"}
    keys["prices"] = {name: dict(price) for name, price in PRICES.items()}
    keys["search_space__parameters__model"] = choices
    keys["optimization__execution"]["parallel_workers"] = 3
    with MockServer(faults_of(seed)) as server:
        agents.write_project(folder, server.url, **keys)
        result = play(begin(folder))
        stats = server.stats()
    return outcome(kind, folder, keys, result, n_calls=stats["calls"], billed=chat_bill(stats))


def faults_of(seed: int) -> MockOptions:
    """Return the faults of the mock that a run asks."""
    rng = random.Random(-seed - 1)
    return MockOptions(
        seed=seed,
        rate_429=rng.choice(FAULTS),
        rate_500=rng.choice(FAULTS),
        rate_cut=rng.choice(FAULTS),
        rate_invalid=rng.choice((0.0, 0.05)),
        retry_after_s=0.001,
    )


# -- others, each with a bill of its own


def http_run(kind: str, folder: Path, seed: int) -> Outcome:
    """Take a run at an HTTP service to its end; whatever it has worked on, it bills."""
    rng, lock = random.Random(-seed - 1), threading.Lock()
    shares = [rng.choice(FAULTS) for _ in range(3)]
    n_billed = 0

    def answer(request: Request) -> Answer:
        nonlocal n_billed
        with lock:
            fate = rng.random()
            if fate < shares[0]:
                return Answer({"error": "slow down"}, 429, {"retry-after": "0.001"})
            if fate < shares[0] + shares[1]:
                return Answer({"error": "overloaded"}, 529)
            n_billed += 1
            is_cut = fate < sum(shares)
        return Answer(
            {"result": str(len(str(request.body)) % 10)}, cut_after=5 if is_cut else None
        )

    keys = drawn(seed)
    keys["prices"] = {"http": {"request": REQUEST_USD}}
    keys["search_space__parameters"] = {"k": {"type": "int", "min": 1, "max": 50, "default": 1}}
    with LoopbackServer(answer) as server:
        keys["api"] = {"name": "shop", "kind": "http", "endpoint": f"{server.url}/answer"}
        write_project(folder, server.url, **keys)
        result = play(begin(folder))
        n_calls = len(server.requests)
    return outcome(kind, folder, keys, result, n_calls=n_calls, billed=n_billed * REQUEST_USD)


def function_run(kind: str, folder: Path, seed: int) -> Outcome:
    """Take a run of a function to its end, which says what each call has cost."""
    keys = drawn(seed)
    keys["prices"] = {"function": {"request": WORST_USD}}
    keys["search_space__parameters"] = {"k": {"type": "int", "min": 1, "max": 50, "default": 1}}
    module = f"paid_function_{seed}_{folder.name.replace('-', '_')}"
    keys["api"] = {"name": "shop", "kind": "function", "function": f"{module}.py:answer"}
    write_project(folder, "", **keys)
    (folder / f"{module}.py").write_text(FUNCTION.format(worst=WORST_USD), encoding="utf-8")
    run = begin(folder)
    bill = load_function(f"{module}.py:answer", folder, key="api.function").__globals__["BILL"]
    result = play(run)
    return outcome(kind, folder, keys, result, n_calls=len(bill), billed=sum(bill))


def plugin_run(kind: str, folder: Path, seed: int) -> Outcome:
    """Take a run of an installed package's target to its end."""
    keys = drawn(seed)
    keys["search_space__parameters"] = {"k": {"type": "int", "min": 1, "max": 50, "default": 1}}
    package = f"paid-shop-{seed}"
    keys["api"] = {"name": "shop", "kind": "plugin", "plugin": package}
    site = folder / "site"
    install(
        site, package, PLUGIN.format(worst=WORST_USD), {"convergence.targets": {package: "Shop"}}
    )
    sys.path.insert(0, str(site))
    try:
        write_project(folder, "", **keys)
        result = play(begin(folder))
        bill = sys.modules[package.replace("-", "_")].BILL
    finally:
        sys.path.remove(str(site))
        sys.modules.pop(package.replace("-", "_"), None)
    return outcome(kind, folder, keys, result, n_calls=len(bill), billed=sum(bill))


KINDS: Final[Mapping[str, Callable[[str, Path, int], Outcome]]] = {
    **dict.fromkeys(CHAT, chat_run),
    "http": http_run,
    "function": function_run,
    "plugin": plugin_run,
    "agno": agent_run,
}
"""Kind → how a run of it is taken to its end: its name, a folder, a number."""


def run_of(kind: str, folder: Path, seed: int) -> Outcome:
    """Take the run of a kind and a number to its end, in a folder of its own."""
    with short_pauses():
        return KINDS[kind](kind, folder, seed)


def outcome(
    kind: str,
    folder: Path,
    keys: Mapping[str, Any],
    result: RunResult,
    *,
    n_calls: int,
    billed: float,
) -> Outcome:
    """Return a run's result with its broken rules."""
    rows = [row for row in books.ledger(folder) if row["state"] != "cached"]
    # An agent's run is a call of the plan, and none of its service's.
    n_asked = len([row for row in rows if kind != "agno" or row["purpose"] == "agent"])
    usd = sum((row["cost_usd"] or 0.0) + (row["maybe_usd"] or 0.0) for row in rows)
    tokens = sum((row["tokens_in"] or 0) + (row["tokens_out"] or 0) for row in rows)
    found = Outcome(
        kind=kind,
        budget=keys["budget"],
        result=result,
        n_calls=n_calls,
        billed_usd=billed,
        ledger_usd=usd,
        ledger_tokens=tokens,
        n_rows=n_asked,
    )
    held = {
        "each request stands in the ledger": n_calls == n_asked,
        "the result counts the ledger's calls": len(rows) == result.n_calls,
        "the ledger holds what the service billed": billed <= usd * (1 + 1e-9) + 1e-15,
        "max_calls": len(rows) <= found.budget.get("max_calls", len(rows)),
        "max_usd": usd <= found.budget.get("max_usd", usd) * (1 + 1e-9),
        "max_tokens": tokens <= found.budget.get("max_tokens", tokens),
    }
    found.broken = [name for name, holds in held.items() if not holds]
    return found
