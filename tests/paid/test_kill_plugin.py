"""kill -9 while a plugin's target is asked: nothing that was answered is asked, or paid, twice."""

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tasks.store.tables.parquet_store import ParquetStore
from tests.paid import books
from tests.support.configuration_files import write_configuration
from tests.support.http_server import Answer, LoopbackServer, Request
from tests.support.paid_runs import STORE, is_done, start
from tests.support.plugin_packages import install

EACH_USD = 0.002
MOST_USD = 0.005
WORKERS = 4
CODE = f"""
import httpx

from convergence.plugins import InfrastructureFault, Reply, WorstCase


class Times:
    provider = "times"

    def __init__(self, context):
        self.url = context.options["url"]
        self.client = httpx.AsyncClient(timeout=30)

    def request(self, params, case):
        return {{"n": case.input["n"], "k": params["k"]}}

    def worst_case(self, params, case):
        return WorstCase(usd={MOST_USD})

    async def call(self, params, case):
        try:
            answer = await self.client.post(self.url, json=self.request(params, case))
        except httpx.HTTPError as error:
            raise InfrastructureFault(str(error), error_type="network") from None
        return Reply(value=answer.json()["result"], latency_ms=1.0, cost_usd={EACH_USD})

    async def aclose(self):
        await self.client.aclose()


def make(context):
    return Times(context)
"""


def asked(body: Any) -> str:
    return json.dumps(body, sort_keys=True)


def write_project(folder: Path, url: str) -> None:
    folder.mkdir()
    cases = [{"id": f"c{n}", "input": {"n": n}, "expected": str(3 * n)} for n in range(1, 9)]
    tree: dict[str, Any] = {
        "api": {"name": "times", "plugin": "times", "plugin_options": {"url": url}},
        "search_space": {"parameters": {"k": {"type": "int", "min": 1, "max": 9, "default": 2}}},
        "evaluation": {
            "test_cases": {"inline": cases, "holdout": 0.25},
            "metrics": {"right": {"type": "exact_match", "weight": 1}},
        },
        "optimization": {
            "seed": 5,
            "evolution": {"population_size": 4, "generations": 3, "elite_size": 1},
            "execution": {"parallel_workers": WORKERS, "early_stopping": {"enabled": False}},
        },
        "budget": {"max_usd": 1.0},
        "output": {"formats": ["json"]},
    }
    write_configuration(folder, tree, {})


def requests_of(folder: Path) -> dict[str, str]:
    """Call → what the service was asked by it."""
    rows = ParquetStore(folder / STORE).rows(
        "select distinct e.call_key, p.text from evaluations e "
        "join payloads p on p.run_id = e.run_id and p.payload_sha256 = e.request_sha256"
    )
    return {str(row["call_key"]): asked(json.loads(str(row["text"]))["request"]) for row in rows}


@pytest.mark.slow
def test_a_plugin_s_answers_are_paid_once_through_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    packages = tmp_path / "packages"
    install(packages, "acme-times", CODE, {"convergence.targets": {"times": "make"}})
    monkeypatch.syspath_prepend(str(packages))

    def answer(request: Request) -> Answer:
        if request.body is None:
            return Answer(status=400)
        return Answer({"result": str(request.body["n"] * request.body["k"])})

    folder = tmp_path / "run"
    in_flight: set[tuple[str, int]] = set()
    with LoopbackServer(answer, delay_s=0.03) as server:
        write_project(folder, server.url)
        n_kills = 0
        for n_more in (3, 11, 17):
            wanted = len(server.requests) + n_more
            done_before = books.done(books.ledger(folder))
            process = start(folder)
            while process.is_alive() and len(server.requests) < wanted:
                time.sleep(0.002)
            assert process.is_alive(), "it ended before it was killed"
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join(30)
            n_kills += 1
            rows = books.ledger(folder)
            assert done_before <= books.done(rows), "an answer was forgotten"
            in_flight |= books.under_way(rows)
        assert in_flight, "no kill met a call in flight"
        last = start(folder)
        last.join(120)
        assert (last.exitcode, is_done(folder)) == (0, True)
        # A process may be killed between a request's headers and its body, which is no question.
        whole = [request.body for request in server.requests if request.body is not None]
    arrived = Counter(map(asked, whole))
    rows = books.ledger(folder)
    given_up, request_of = books.lost(rows), requests_of(folder)
    answered = Counter(request_of[key] for key in books.done(rows))
    finished = Counter(row["call_key"] for row in rows if row["state"] == "done")
    assert max(finished.values()) == 1, "a call was paid twice"
    assert given_up == in_flight
    assert len(given_up) <= WORKERS * n_kills
    # What came more often than once had been in flight when a process was killed.
    extra = arrived - answered
    assert not answered - arrived
    assert not extra - Counter(request_of[key] for key, _ in given_up)
    assert books.cost(rows) == pytest.approx(answered.total() * EACH_USD, abs=1e-12)
    lost = [row for row in rows if row["error_type"] == "lost"]
    assert {row["maybe_usd"] for row in lost} == {MOST_USD}
    sys.modules.pop("acme_times", None)
