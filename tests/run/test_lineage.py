"""A finished run is never written again: whoever goes on from it is a new run."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from convergence_core.result import RunResult
from tasks.inputs.loader import load
from tasks.pages.overview import run_rows
from tasks.pages.source import PageSource
from tasks.run.opener import prepare_run, resume_run
from tasks.store.runtime.promotions import looks
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.lineage import TAG
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.http_server import Answer, LoopbackServer, Request
from tests.support.paid_runs import evaluate, play

STORE = "convergence-data"
CASES = 20
SICK = {4, 9, 13, 17}
"""Cases that are not answered while the server is ill."""


class Shop:
    """A server where the larger `k` is better, and the best one is not answered at first."""

    def __init__(self) -> None:
        self.is_ill = True
        self.n_answered = 0

    def __call__(self, request: Request) -> Answer:
        k, q = request.body["k"], request.body["q"]
        if self.is_ill and (k == 3 or q in SICK):
            return Answer({"detail": "busy"}, 409)
        self.n_answered += 1
        return Answer({"result": q if q % 3 < k else -1})


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls wait for milliseconds where a run would wait for seconds."""
    monkeypatch.setattr("convergence_core.budget.rate_limit.BACK_OFF_S", (0.001, 0.002))


@pytest.fixture
def shop() -> Iterator[tuple[Shop, LoopbackServer]]:
    answer = Shop()
    with LoopbackServer(answer) as server:
        yield answer, server


def write(folder: Path, url: str, **budget: Any) -> Path:
    tree = {
        "api": {"name": "shop", "kind": "http", "endpoint": url},
        "search_space": {
            "parameters": {"k": {"type": "categorical", "choices": [1, 2, 3], "default": 1}}
        },
        "evaluation": {
            "test_cases": {"path": "cases.json", "holdout": 0.3},
            "metrics": {"exact_match": {"weight": 1}},
        },
        "optimization": {
            "seed": 3,
            "evolution": {"population_size": 3, "generations": 2, "elite_size": 1},
            "execution": {"max_retries": 0, "early_stopping": {"enabled": False}},
            "warm_start": {"enabled": True},
        },
        "prices": {"http": {"request": 0.01}},
        "budget": budget,
        "output": {"formats": ["json", "csv"]},
    }
    cases = [{"id": f"c{q:02d}", "input": {"q": q}, "expected": q} for q in range(CASES)]
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    path = folder / "optimization.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def files_of(folder: Path, result: RunResult) -> dict[str, str]:
    """Return a hash of each file that a run left: its tables and its results."""
    of_run = [
        path
        for path in (folder / STORE / "final").rglob("*.parquet")
        if path.parent.name == f"run_id={result.run_id}"
    ]
    results = [path for path in (folder / "results" / result.label).iterdir() if path.is_file()]
    assert of_run
    assert results
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in (*of_run, *results)
    }


def roles(folder: Path, run_id: str) -> Counter[object]:
    rows = ParquetStore(folder / STORE).rows(
        "select role from evaluations where run_id = $run and reward is not null", {"run": run_id}
    )
    return Counter(row["role"] for row in rows)


@pytest.mark.slow
def test_errors_of_a_finished_run_are_asked_again_by_a_new_one_and_both_stay(
    tmp_path: Path, shop: tuple[Shop, LoopbackServer]
):
    answer, server = shop
    first = play(prepare_run(load(write(tmp_path, server.url))))
    assert first.best is not None
    assert first.best.params["k"] == 2, "the best one got no answer"
    before, had = files_of(tmp_path, first), roles(tmp_path, first.run_id)
    assert had["holdout"] > 0

    answer.is_ill = False
    n_asked = len(server.requests)
    run = resume_run(tmp_path / STORE, retry_missing=True)
    second = play(run)

    assert second.run_id != first.run_id
    assert second.best is not None
    assert second.best.params["k"] == 3
    assert files_of(tmp_path, first) == before, "a finished run is immutable"
    assert roles(tmp_path, first.run_id) == had
    assert roles(tmp_path, second.run_id)["holdout"] > 0
    again = Counter(request.body["k"] for request in server.requests[n_asked:])
    assert again[1] + again[2] <= 2 * len(SICK) * 2, "what was answered is not asked again"
    rows = ParquetStore(tmp_path / STORE).rows(
        "select state, run_id, count(*) as n from attempts group by all"
    )
    n_done = sum(int(str(row["n"])) for row in rows if row["state"] == "done")
    assert len(server.requests) - n_done == sum(
        int(str(row["n"])) for row in rows if row["state"] == "failed"
    ), "each request stands in one run's books, and in no other's"
    with RuntimeStore(tmp_path / STORE) as store:
        found = [(look.run_id, look.candidate_id) for look in looks(store, "shop")]
    assert found == [
        (first.run_id, first.best.candidate_id),
        (second.run_id, second.best.candidate_id),
    ]
    assert second.facts["continues"] == first.label


@pytest.mark.slow
def test_a_limit_holds_for_a_finished_run_and_its_successors_together(
    tmp_path: Path, shop: tuple[Shop, LoopbackServer]
):
    answer, server = shop
    last = cut = play(prepare_run(load(write(tmp_path, server.url, max_usd=0.2))))
    before = files_of(tmp_path, cut)
    answer.is_ill = False
    for limit in (0.3, 0.4):
        last = play(resume_run(tmp_path / STORE, budget={"max_usd": limit}))
        assert 0.01 * answer.n_answered <= limit + 1e-9
        (usd,) = ParquetStore(tmp_path / STORE).rows("select sum(cost_usd) as usd from attempts")
        assert float(str(usd["usd"])) <= limit + 1e-9
    assert files_of(tmp_path, cut) == before
    store = ParquetStore(tmp_path / STORE)
    record = store.run(last.run_id)
    (paid,) = store.rows("select sum(cost_usd) as usd from attempts")
    assert run_rows(PageSource(store))[0]["counted_usd"] == pytest.approx(paid["usd"])
    assert len(record.tags[TAG].split()) == 2, "it counts what both before it have spent"


@pytest.mark.parametrize("n_copied", [0, 1])
@pytest.mark.slow
def test_a_kill_while_a_run_is_made_from_a_finished_one_loses_nothing(
    tmp_path: Path,
    shop: tuple[Shop, LoopbackServer],
    monkeypatch: pytest.MonkeyPatch,
    n_copied: int,
):
    answer, server = shop
    play(prepare_run(load(write(tmp_path, server.url))))
    answer.is_ill = False
    whole: Callable[..., None] = ParquetStore.publish
    done: list[int] = []

    def publish(self: ParquetStore, run_id: str, generation: int, tables: Any) -> None:
        if len(done) == n_copied:
            raise KeyboardInterrupt
        done.append(generation)
        whole(self, run_id, generation, tables)

    with monkeypatch.context() as patched:
        patched.setattr(ParquetStore, "publish", publish)
        with pytest.raises(KeyboardInterrupt):
            resume_run(tmp_path / STORE, retry_missing=True)
    n_asked = len(server.requests)
    with resume_run(tmp_path / STORE) as run:
        assert run.next_generation == 2
        evaluate(run, run.ask().assignments, 2)
        label = run.label
    assert {request.body["k"] for request in server.requests[n_asked:]} >= {3}
    healed = play(resume_run(tmp_path / STORE, label))
    assert healed.best is not None
    assert healed.best.params["k"] == 3
