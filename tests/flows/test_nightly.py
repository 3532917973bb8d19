"""The shipped deployment, on a real server and a real worker, from `deploy` to SQL."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.nightly.plan import plan
from tests.support.children import run_python
from tests.support.nightly import eventually
from tests.support.optimizations import write_project

ROOT = Path(__file__).parents[2]


def prefect(*arguments: str, home: Path) -> str:
    done = run_python("-m", "prefect", *arguments, check=False, PREFECT_HOME=str(home))
    assert done.returncode == 0, f"prefect {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.prefect
def test_every_entrypoint_loads_without_a_placeholder():
    from prefect.flows import load_flow_from_entrypoint

    deployments = yaml.safe_load((ROOT / "deployments/prefect.yaml").read_text())["deployments"]
    planned = plan(Path("/c"), Path("/s"), system="x")
    assert {
        (d["entrypoint"].replace("/", ".").replace(".py:", "."), d["name"]) for d in deployments
    } == {(one.entrypoint, one.name) for one in planned}
    for entrypoint in [d["entrypoint"] for d in deployments] + [
        "flows.optimize.optimize",
        "flows.train.train",
    ]:
        path = str(ROOT / entrypoint) if ":" in entrypoint else entrypoint
        flow: Any = load_flow_from_entrypoint(path, use_placeholder_flow=False)
        assert flow.name == entrypoint.replace(":", ".").rpartition(".")[2]


@pytest.mark.slow
def test_one_process_refuses_to_serve_without_a_server_that_schedules(tmp_path: Path):
    done = run_python(
        "-m", "deployments.serve", check=False, PREFECT_HOME=str(tmp_path), PREFECT_API_URL=""
    )
    assert done.returncode == 2
    assert "PREFECT_API_URL must name a Prefect server" in done.stderr


async def make_pool(name: str) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate

    async with get_client() as client:
        await client.create_work_pool(WorkPoolCreate(name=name, type="process"), overwrite=True)


async def story_of(label: str) -> tuple[set[str], set[str]]:
    """Return the names of a run's generations and of their tasks, as the server knows them."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterId,
        FlowRunFilterName,
        FlowRunFilterParentFlowRunId,
    )

    async with get_client() as client:
        (run,) = await client.read_flow_runs(
            flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[label]))
        )
        parents = FlowRunFilterParentFlowRunId(any_=[run.id])
        flow_runs = await client.read_flow_runs(
            flow_run_filter=FlowRunFilter(parent_flow_run_id=parents)
        )
        task_runs = await client.read_task_runs(
            flow_run_filter=FlowRunFilter(
                id=FlowRunFilterId(any_=[run.id, *(flow_run.id for flow_run in flow_runs)])
            )
        )
        return {r.name for r in flow_runs}, {t.name for t in task_runs}


def stop(worker: "subprocess.Popen[bytes]") -> None:
    """End a worker; one that a busy machine keeps from ending by itself is killed."""
    worker.terminate()
    try:
        worker.wait(20)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


async def artifacts_of(label: str) -> dict[str, str]:
    """Return description → data of the artifacts that name a run."""
    from prefect.client.orchestration import get_client

    found: list[Any] = []
    async with get_client() as client:
        # A page holds 200, and other tests have written theirs to the same server.
        while len(page := await client.read_artifacts(limit=200, offset=len(found))) == 200:
            found += page
        found += page
    return {str(a.description): str(a.data) for a in found if label in (a.description or "")}


async def log_of(label: str) -> list[str]:
    """Return the lines of the log of the flow run of this name."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName, LogFilter

    async with get_client() as client:
        named = FlowRunFilter(name=FlowRunFilterName(any_=[label]))
        (flow_run,) = await client.read_flow_runs(flow_run_filter=named)
        asked = LogFilter.model_validate({"flow_run_id": {"any_": [flow_run.id]}})
        return [log.message for log in await client.read_logs(log_filter=asked)]


@pytest.mark.prefect
@pytest.mark.slow
def test_nightly_is_deployed_run_by_a_worker_and_read_in_sql(tmp_path: Path):
    from tasks.store.tables.parquet_store import ParquetStore

    config = write_project(tmp_path / "project")
    asyncio.run(make_pool("local"))
    prefect(
        "--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml",
        home=tmp_path,
    )  # fmt: skip
    worker = subprocess.Popen(
        [sys.executable, "-m", "prefect", "worker", "start", "--pool", "local"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PREFECT_HOME": str(tmp_path),
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_LOGGING_LEVEL": "INFO",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        prefect(
            "deployment", "run", "optimize/nightly",
            "--param", f"config={config}", "--param", "generations=2",
            "--watch", "--watch-timeout", "300",
            home=tmp_path,
        )  # fmt: skip
    finally:
        stop(worker)

    store = ParquetStore(tmp_path / "project" / "convergence-data")
    (run,) = store.runs()
    assert (run.status, run.n_generations) == ("done", 2)
    rows = store.rows("select count(*) as n from evaluations where role = 'search'")
    assert rows[0]["n"] != 0

    def evaluated() -> bool:  # task runs are recorded a moment later
        return any(name.startswith("evaluate ") for name in asyncio.run(story_of(run.label))[1])

    eventually(evaluated, "no candidate has a task run", within_s=120)
    flow_names, task_names = asyncio.run(story_of(run.label))
    assert flow_names == {"generation 00", "generation 01"}
    assert any(name.startswith("evaluate x=") for name in task_names), task_names
    shown = asyncio.run(artifacts_of(run.label))
    assert f"Learning curve of {run.label} at its end" in shown
    (board,) = (
        name for name in shown if name.startswith(f"Leaderboard of {run.label} at its end")
    )
    assert board.endswith("first")
    page = shown[f"Links and report of {run.label}"]
    assert f"/{run.label}/report.html" in page
    assert "](/artifacts/key/" in page
    told = asyncio.run(log_of(run.label))
    assert [line.split(":")[0] for line in told if line.startswith("Generation ")] == [
        "Generation 00",
        "Generation 01",
    ]
    assert any(" Next: " in line for line in told)
    assert not [name for name, data in shown.items() if "file:/" in data]
    assert "data:image/png;base64," in shown[f"Learning curve of {run.label} at its end"]
