"""``up``, ``deploy``, a night, a killed worker, the next night, ``down``: as a person would."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deployments.nightly import services
from deployments.nightly.plan import ZOMBIE_S, ZOMBIES, Notified, plan
from tasks.store import ParquetStore
from tasks.store.journal.process_marks import process
from tests.cli.test_watcher import children_of
from tests.docs.test_documents import README, blocks
from tests.support.http_server import LoopbackServer, error_answer
from tests.support.optimizations import ledger, write_project
from tests.support.prefect_server import free_port

WAIT_S = 600.0
"""Only ends what hangs."""


def command(home: Path, script: str, *, cwd: Path, code: int = 0) -> str:
    """Run a block as in a terminal, with Prefect's home of the test; return what it printed."""
    environment = {name: v for name, v in os.environ.items() if name != "PREFECT_API_URL"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=cwd,
        env={
            **environment,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PREFECT_HOME": str(home),
            "PREFECT_WORKER_QUERY_SECONDS": "1",
        },
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == code, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def eventually(look: Any, why: str, within_s: float = WAIT_S) -> Any:
    """Return what ``look`` returns once that is true."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, why
        time.sleep(0.2)
    return found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "home"
    try:
        yield folder
    finally:
        services.down(folder)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_commands_of_the_readme_start_deploy_and_run_a_night(tmp_path: Path, home: Path):
    port = free_port()
    here = tmp_path / "checkout"
    write_project(here / "data/quickstart")
    first, second = [b for b in blocks(README, "sh") if "convergence up" in b or "nightly" in b][
        :2
    ]
    first = first.replace("convergence up", f"convergence up --port {port}")
    second = second.replace("4200", str(port))
    said = command(home, first, cwd=here)
    assert f"http://127.0.0.1:{port}" in said
    assert "optimize/nightly" in said
    again = command(home, first, cwd=here)
    assert f"http://127.0.0.1:{port}" in again
    watched = second.replace("generations=3", "generations=2 --watch --watch-timeout 200")
    assert "finished successfully" in command(home, watched, cwd=here)
    (run,) = ParquetStore(here / "data/quickstart/convergence-data").runs()
    assert (run.status, run.n_generations) == ("done", 2)
    found = services.running(home)
    assert found is not None
    assert "Ended" in command(home, "convergence down", cwd=here)
    assert not found.are_alive
    assert children_of(found.worker.pid) == children_of(found.server.pid) == {}
    assert "Nothing was started" in command(home, "convergence down", cwd=here)


async def states_of(api_url: str) -> dict[str, str]:
    """Return flow run → state, as the server has it."""
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings(updates={PREFECT_API_URL: api_url}):
        async with get_client() as client:
            found = await client.read_flow_runs()
    return {run.name: str(run.state.name) for run in found if run.state}


@pytest.mark.slow
@pytest.mark.timeout(1800)  # 90 s of silence, and a server that starts twice on a busy machine
def test_a_run_killed_with_its_worker_is_told_crashed_and_taken_up_by_the_next(
    tmp_path: Path, home: Path
):
    port = free_port()
    config = write_project(tmp_path / "p", optimization__evolution__generations=3)
    up = f"convergence up --port {port}"
    command(home, f"export TARGET_DELAY_S=0.1; {up}; convergence deploy {config}", cwd=tmp_path)
    found = services.running(home)
    assert found is not None
    command(
        home,
        f"export PREFECT_API_URL={found.api_url}\nprefect deployment run optimize/nightly",
        cwd=tmp_path,
    )
    store = ParquetStore(tmp_path / "p/convergence-data")
    eventually(lambda: len(ledger(tmp_path / "p")) > 20, "nothing was asked")
    (killed,) = store.runs()
    family = [found.worker.pid]
    for pid in family:
        family += children_of(pid)
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    asked = ledger(tmp_path / "p")
    assert store.run(killed.run_id).status == "running"

    def are_told() -> bool:
        states = asyncio.run(states_of(found.api_url))
        return states[killed.label] == "Crashed" and "Running" not in states.values()

    eventually(are_told, "nobody noticed", within_s=ZOMBIE_S + 120)
    services.down(home)
    command(home, up, cwd=tmp_path)
    command(
        home,
        f"export PREFECT_API_URL={found.api_url}\n"
        "prefect deployment run optimize/nightly --watch --watch-timeout 200",
        cwd=tmp_path,
    )
    (run,) = store.runs()
    assert (run.run_id, run.status) == (killed.run_id, "done")
    assert len(ledger(tmp_path / "p")) >= len(asked)
    repeated = store.rows(
        "select call_key, count(*) as n from attempts where state = 'done' group by 1 having n > 1"
    )
    assert repeated == []


@pytest.mark.prefect
@pytest.mark.slow
def test_deploying_twice_leaves_one_of_each(tmp_path: Path):
    from deployments.nightly.deploy import deploy

    place: dict[str, Any] = {
        "pool": "twice", "folder": tmp_path, "system": "s", "suffix": "-twice"
    }  # fmt: skip
    notified = Notified(slack_env="ALERTS_URL")
    loud = plan(tmp_path / "c.yaml", tmp_path, system="s", suffix="-twice", notified=notified)
    one = deploy(loud, timezone="Europe/Berlin", **place)
    two = deploy(loud, timezone="UTC", **place)
    assert one == two
    assert len(one) == 5
    assert asyncio.run(automations("convergence-twice: ")) == sorted(one[1:])
    teller = next(d for d in asyncio.run(deployed("alerts-twice")))
    assert teller.parameters == {"webhook_env": None, "slack_env": "ALERTS_URL"}
    planned = plan(tmp_path / "c.yaml", tmp_path, system="s", suffix="-twice")
    deploy(planned, timezone="UTC", **place)
    assert asyncio.run(automations("convergence-twice: ")) == [], "nobody is to be told any more"
    assert asyncio.run(automations(ZOMBIES)) == [ZOMBIES]
    found = asyncio.run(deployed("-twice"))
    assert {d.name for d in found} == {
        f"{name}-twice" for name in ("nightly", "adhoc", "hourly", "daily", "weekly")
    }
    by_name = {d.name: d for d in found}
    (schedule,) = by_name["nightly-twice"].schedules
    assert (schedule.schedule.cron, schedule.schedule.timezone) == ("0 2 * * *", "UTC")
    assert by_name["adhoc-twice"].schedules == []
    (off,) = by_name["weekly-twice"].schedules
    assert not off.active
    nightly = by_name["nightly-twice"]
    assert nightly.parameters == {"config": str(tmp_path / "c.yaml")}
    assert "system:s" in nightly.tags
    assert nightly.version
    form = nightly.parameter_openapi_schema["properties"]
    assert "goes on with" in form["resume"]["description"]
    assert form["generations"]["anyOf"][0]["minimum"] == 1


async def deployed(suffix: str) -> list[Any]:
    """Return the deployments whose names end so."""
    from prefect.client.orchestration import get_client

    async with get_client() as client:
        return [d for d in await client.read_deployments() if d.name.endswith(suffix)]


async def automations(prefix: str) -> list[str]:
    """Return the names of all automations whose names begin so, sorted."""
    from prefect.client.orchestration import get_client

    async with get_client() as client:
        found = await client.read_automations()
    return sorted(one.name for one in found if one.name.startswith(prefix))


def test_up_refuses_an_address_where_something_else_answers(tmp_path: Path):
    from convergence_core.errors import PrefectServerError

    with LoopbackServer(lambda _: error_answer(404)) as other:
        found = re.search(r":(\d+)", other.url.removeprefix("http://"))
        assert found is not None
        with pytest.raises(PrefectServerError, match="--port"):
            services.up(
                tmp_path, host="127.0.0.1", port=int(found[1]), pool="p", working_dir=tmp_path
            )
    assert services.running(tmp_path) is None
    assert services.down(tmp_path) is None


def test_a_process_that_only_has_the_old_number_is_not_ended(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        mark = process(other.pid)
        stranger = {**_json(mark), "started": "1"}
        told = {"url": "http://127.0.0.1:9", "pool": "p", "server": stranger, "worker": stranger}
        (tmp_path / "convergence.json").write_text(json.dumps(told))
        found = services.down(tmp_path)
        assert found is not None
        assert other.poll() is None
        other.communicate(b"\n")


def _json(mark: Any) -> dict[str, str]:
    from dataclasses import asdict

    return asdict(mark)
