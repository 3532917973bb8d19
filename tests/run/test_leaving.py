"""A run that a signal leaves is stopped, not failed; one that has ended is found, not begun again."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from convergence_core.records import canonical_json
from tasks.calls import session
from tasks.run.adoption import awaits_adoption, concluded_by
from tasks.run.opener import open_run
from tasks.run.run import Run
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.http_server import Answer, LoopbackServer
from tests.support.optimizations import write_project
from tests.support.results import made_up_result

SMALL = {"optimization__evolution": {"population_size": 3, "generations": 1}}


def opened(folder: Path, flow_run_id: str = "f1", **overrides: object) -> Run:
    config = folder / "optimization.yaml"
    if not config.exists():
        write_project(folder, **{**SMALL, **overrides})
    return open_run(str(config), None, flow_run_id=flow_run_id, resume="auto")


class Signal(BaseException):
    """As Prefect raises it in a flow run that is cancelled."""


@pytest.mark.parametrize(
    ("error", "status"), [(Signal, "stopped"), (SystemExit, "stopped"), (ValueError, "failed")]
)
def test_a_signal_stops_a_run_and_an_error_fails_it(
    error: type[BaseException], status: str, tmp_path: Path
):
    run = opened(tmp_path)
    with pytest.raises(error), run:
        raise error
    record = ParquetStore(tmp_path / "convergence-data").run(run.run_id)
    assert record.status == status
    again = opened(tmp_path, "f2")
    again.close()
    assert again.run_id == run.run_id, "both can go on"


def test_calls_in_flight_are_kept_when_a_signal_leaves_a_run(tmp_path: Path):
    with LoopbackServer(lambda _: Answer({"result": 0.5}), delay_s=1.5) as server:
        api = {"name": "known", "endpoint": server.url, "response": {"result_field": "result"}}
        run = opened(tmp_path, api=api)
        assignment = run.ask().assignments[0]
        with ThreadPoolExecutor(1) as pool:
            trial = pool.submit(run.session.evaluate, assignment, 0)
            while not server.requests:
                assert not trial.done()
            with pytest.raises(Signal), run:
                raise Signal
            statuses = [evaluation.status for evaluation in trial.result().evaluations]
        assert statuses.count("ok") == len(server.requests) > 0
    assert set(statuses) <= {"ok", "skipped"}


MEASURE = """
import asyncio
import pathlib

FOLDER = pathlib.Path({folder!r})


async def measure(result, expected, params, metric):
    (FOLDER / "begun").touch()
    while not (FOLDER / "go").exists():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)  # longer than it takes to leave without waiting for it
    return 1.0
"""
METRICS = {"slow": {"type": "function", "function": "measure.py:measure"}}


@pytest.mark.parametrize("ends", [True, False])
def test_what_is_measured_when_a_signal_leaves_a_run_is_kept_or_given_up_and_nobody_waits(
    ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(session, "STOP_GRACE_S", 10.0 if ends else 0.1)
    (tmp_path / "measure.py").write_text(MEASURE.format(folder=str(tmp_path)), encoding="utf-8")
    run = opened(tmp_path, evaluation__metrics=METRICS)
    assignment = run.ask().assignments[0]
    with ThreadPoolExecutor(2) as pool:
        trial = pool.submit(run.session.evaluate, assignment, 0)
        while not (tmp_path / "begun").exists():
            assert not trial.done()

        def let_it_end() -> None:
            while not run.is_stopping:
                time.sleep(0.01)
            (tmp_path / "go").touch()

        released = pool.submit(let_it_end) if ends else None
        with pytest.raises(Signal), run:
            raise Signal
        if released is None:
            with pytest.raises(RuntimeError, match="was closed before all cells were measured"):
                trial.result(timeout=60)
        else:
            released.result(timeout=60)
            statuses = [one.status for one in trial.result(timeout=60).evaluations]
            assert "ok" in statuses
            assert set(statuses) <= {"ok", "skipped"}


def test_a_flow_run_that_is_run_again_finds_what_it_has_finished(tmp_path: Path):
    run = opened(tmp_path, promotion__require_adoption=False)
    config = str(tmp_path / "optimization.yaml")
    assert concluded_by(config, None, "f1") is None, "it has not ended"
    result = made_up_result()
    with run:
        run.finish("all 1 generations were run", canonical_json(result.to_json()))
    found = concluded_by(config, None, "f1")
    assert found is not None
    record, path = found
    assert (record.run_id, path) == (run.run_id, run.store.path)
    assert not awaits_adoption(record, result)
    assert concluded_by(config, None, "f2") is None
    assert concluded_by(config, None, None) is None
