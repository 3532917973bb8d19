"""Whole runs on every runner: the same result as in threads, limits and kills included."""

import importlib.util
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import RunInterruptedError
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.optimizations import ledger, tables_of, write_project

pytestmark = pytest.mark.slow

AT = "optimization__execution__"
EXTRAS = {"processes": None, "ray": "ray"}


def project(folder: Path, runner: str, **changes: Any) -> Path:
    """Write a project of 200 candidates, ten generations of twenty."""
    size: dict[str, Any] = (
        {} if runner == "threads" else {f"{AT}runner": runner, f"{AT}processes": 2}
    )
    size |= {
        "optimization__algorithm": "random",
        "optimization__evolution__population_size": 20,
        "optimization__evolution__generations": 10,
    }
    return write_project(folder, **(size | changes))


def result_of(folder: Path) -> tuple[str, str]:
    """Return what a run found, without its name, its time and the configuration's runner."""
    tables = tables_of(folder / "convergence-data")
    for run in tables["runs"]:
        run.pop("config_sha256")
    best = next((folder / "results").glob("*/best_config.json"))
    found = json.loads(best.read_bytes())
    for name in ("timestamp", "optimization_run"):
        del found["_README"][name]
    return json.dumps(tables, default=str), json.dumps(found)


@pytest.fixture(scope="module")
def in_threads(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    from tests.support.searching import search

    folder = tmp_path_factory.mktemp("threads")
    search(project(folder, "threads"))
    return result_of(folder)


@pytest.mark.parametrize("runner", EXTRAS)
def test_200_candidates_end_with_the_same_result(
    runner: str, tmp_path: Path, in_threads: tuple[str, str]
):
    package = EXTRAS[runner]
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"the extra `{runner}` is not installed")
    from tests.support.searching import search

    search(project(tmp_path, runner))
    tables, best = result_of(tmp_path)
    assert tables == in_threads[0]
    assert best == in_threads[1]
    assert len(json.loads(tables)["candidates"]) >= 200


WRAPPED = """
import asyncio

LOOPS = {}


async def later(name, value):
    await asyncio.sleep(0)
    # A client that is kept between calls belongs to the loop of the first one.
    if LOOPS.setdefault(name, asyncio.get_running_loop()) is not asyncio.get_running_loop():
        raise RuntimeError("another event loop")
    return value


def answer(case, params):
    return later("answer", case["n"])


def worth(result, expected):
    return later("worth", 1.0)
"""


def test_async_functions_behind_wrappers_keep_one_loop_in_each_process(tmp_path: Path):
    from tests.support.searching import search

    few = {f"optimization__evolution__{name}": 4 for name in ("population_size", "generations")}
    config = project(tmp_path, "processes", **few)
    (tmp_path / "target.py").write_text(WRAPPED, encoding="utf-8")
    search(config)
    evaluations = tables_of(tmp_path / "convergence-data")["evaluations"]
    assert len(evaluations) >= 100
    assert {(row["status"], row["reward"]) for row in evaluations} == {("ok", 1.0)}


def test_a_run_whose_worker_is_killed_ends_like_the_unbroken_one(
    tmp_path: Path, in_threads: tuple[str, str]
):
    from tasks.inputs.loader import load
    from tasks.run.opener import prepare_run
    from tasks.runners.worker_pool import ProcessRunner
    from tests.support.searching import finish

    run = prepare_run(load(project(tmp_path, "processes")))
    assert run.resources.pool is not None
    runner = run.resources.pool.runner
    assert isinstance(runner, ProcessRunner)
    first = min(runner.pids)

    def kill() -> None:
        while len(ledger(tmp_path)) < 100:
            os.sched_yield()
        os.kill(first, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    finish(run)
    killer.join()
    assert first not in runner.pids
    assert result_of(tmp_path) == in_threads
    # What was in flight is asked again: at most the share of one process.
    asked = ledger(tmp_path)
    assert len(asked) <= len(set(asked)) + repeats_of(tmp_path) + 2


def repeats_of(folder: Path) -> int:
    """Return how often the run was meant to ask what it had asked, e.g. on fresh repeats."""
    store = ParquetStore(folder / "convergence-data")
    (row,) = store.rows("select count(*) - count(distinct call_key) as n from evaluations")
    (kinds,) = store.rows(
        "select count(distinct e.case_id || c.params_json) as n, count(*) as total "
        "from evaluations e join candidates c using (run_id, candidate_id)"
    )
    assert row["n"] == 0
    return int(str(kinds["total"])) - int(str(kinds["n"]))


def test_a_stopped_run_starts_no_call_and_goes_on_when_resumed(
    tmp_path: Path, in_threads: tuple[str, str]
):
    from tasks.inputs.loader import load
    from tasks.run.opener import prepare_run, resume_run
    from tests.support.searching import finish

    run = prepare_run(load(project(tmp_path, "processes")))

    def stop() -> None:
        while len(ledger(tmp_path)) < 100:
            os.sched_yield()
        run.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(RunInterruptedError):
        finish(run)
    stopper.join()
    n_asked = len(ledger(tmp_path))
    assert ParquetStore(tmp_path / "convergence-data").run(run.run_id).status == "stopped"
    finish(resume_run(tmp_path / "convergence-data"))
    assert result_of(tmp_path) == in_threads
    assert len(ledger(tmp_path)) > n_asked


def test_ten_calls_per_second_are_never_more_than_eleven_over_four_processes(tmp_path: Path):
    from tests.support.http_server import Answer, LoopbackServer
    from tests.support.searching import search

    with LoopbackServer(lambda _: Answer({"result": 0.5})) as server:
        host = server.url.removeprefix("http://")
        config = project(
            tmp_path,
            "processes",
            api={"name": "known", "kind": "http", "endpoint": f"{server.url}/x"},
            optimization__evolution__population_size=4,
            optimization__evolution__generations=2,
            **{
                f"{AT}processes": 4,
                f"{AT}parallel_workers": 16,
                f"{AT}calls_per_second": {host: 10},
            },
        )
        search(config)
        arrived = sorted(server.arrived_s)
    assert len(arrived) > 60
    windows = [sum(t <= other < t + 1.0 for other in arrived) for t in arrived]
    assert max(windows) <= 11, windows
    # It is a limit, and no brake: the queue never runs dry while a generation lasts.
    assert sorted(windows)[len(windows) // 2] >= 6
