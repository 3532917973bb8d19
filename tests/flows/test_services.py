"""``up``, ``deploy``, a night, killed workers, servers and databases, ``down``: as a person would."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import PrefectServerError
from deployments.nightly import services
from deployments.nightly.plan import ZOMBIE_S, ZOMBIES, plan
from tasks.store.journal.process_marks import process
from tasks.store.tables.parquet_store import ParquetStore
from tests.cli.test_watcher import children_of
from tests.docs.test_documents import README, blocks
from tests.store.postgres_server import postgres_server
from tests.support.http_server import LoopbackServer, error_answer
from tests.support.nightly import Night, eventually
from tests.support.optimizations import ledger, write_project

WORKERS = 4
"""Calls in flight, as ``write_project`` has them."""


@pytest.fixture
def make_night(tmp_path: Path) -> Iterator[Callable[..., Night]]:
    """Returns what makes a night with variables of its own; all of them end with the test."""
    nights: list[Night] = []

    def make(**environment: str) -> Night:
        nights.append(Night(tmp_path / "home", **environment))
        return nights[-1]

    yield make
    for night in nights:
        night.down()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_commands_of_the_readme_start_deploy_and_run_a_night(
    tmp_path: Path, make_night: Callable[..., Night]
):
    night, here = make_night(), tmp_path / "checkout"
    write_project(here / "data/quickstart")
    first, second = [b for b in blocks(README, "sh") if "convergence up" in b or "nightly" in b][
        :2
    ]
    first = first.replace("convergence up", f"convergence up --port {night.port}")
    second = second.replace("4200", str(night.port))
    said = night.command(first, cwd=here)
    assert f"http://127.0.0.1:{night.port}" in said
    assert "optimize/nightly" in said
    assert f"http://127.0.0.1:{night.port}" in night.command(first, cwd=here)
    watched = second.replace("generations=3", "generations=2 --watch --watch-timeout 200")
    assert "finished successfully" in night.command(watched, cwd=here)
    (run,) = ParquetStore(here / "data/quickstart/convergence-data").runs()
    assert (run.status, run.n_generations) == ("done", 2)
    found = services.running(night.home)
    assert found is not None
    assert "Stopped" in night.command("convergence down", cwd=here)
    assert not found.are_alive
    assert children_of(found.worker.pid) == children_of(found.server.pid) == {}
    assert "has started nothing" in night.command("convergence down", cwd=here)


def begin(night: Night, tmp_path: Path, **overrides: object) -> ParquetStore:
    """Deploy a system, start a night and return once it is in the middle of a generation."""
    config = write_project(tmp_path / "p", optimization__evolution__generations=3, **overrides)
    night.up(tmp_path)
    night.command(f"convergence deploy {config}", cwd=tmp_path)
    night.prefect("deployment run optimize/nightly", cwd=tmp_path)
    eventually(lambda: len(ledger(tmp_path / "p")) > 60, "nothing was asked")
    return ParquetStore(tmp_path / "p/convergence-data")


def take_up(night: Night, tmp_path: Path, store: ParquetStore) -> int:
    """Let the next night go on; then the run is whole, nothing was paid twice, no zombie is left.

    Returns:
        How many attempts the books have that the target did not see.
    """
    (broken,) = store.runs()
    if store.run(broken.run_id).status != "done":
        night.prefect("deployment run optimize/nightly --watch --watch-timeout 300", cwd=tmp_path)
    (run,) = store.runs()
    assert (run.run_id, run.status, run.n_generations) == (broken.run_id, "done", 3)
    paid = store.rows(
        "select call_key, count(*) as n from attempts where state = 'done' group by 1"
    )
    assert all(row["n"] == 1 for row in paid)
    unseen = store.rows("select count(*) as n from attempts where error_type = 'lost'")[0]["n"]
    assert int(str(unseen)) <= WORKERS
    eventually(lambda: not night.is_busy(), "a zombie", within_s=ZOMBIE_S + 120)
    return len(paid) + int(str(unseen)) - len(ledger(tmp_path / "p"))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # 90 s of silence, and a server that starts twice on a busy machine
def test_a_run_killed_with_its_worker_crashes_and_is_taken_up_by_the_next(
    tmp_path: Path, make_night: Callable[..., Night]
):
    night = make_night(TARGET_DELAY_S="0.3")
    store = begin(night, tmp_path)
    (killed,) = store.runs()
    found = services.running(night.home)
    assert found is not None
    family = [found.worker.pid]
    for pid in family:
        family += children_of(pid)
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    assert store.run(killed.run_id).status == "running"

    def has_crashed() -> bool:
        states = {run["name"]: run["state_name"] for run in night.flow_runs()}
        return states.get(killed.label) == "Crashed" and not night.is_busy()

    eventually(has_crashed, "nobody noticed", within_s=ZOMBIE_S + 120)
    night.down()
    night.up(tmp_path)
    assert take_up(night, tmp_path, store) >= 0, "every call is in the books"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_survives_its_server(tmp_path: Path, make_night: Callable[..., Night]):
    night = make_night(TARGET_DELAY_S="0.1")
    store = begin(night, tmp_path)
    found = services.running(night.home)
    assert found is not None
    for pid in (*children_of(found.server.pid), found.server.pid):
        os.kill(pid, signal.SIGKILL)
    again = night.up(tmp_path)
    assert again.server != found.server
    assert again.worker == found.worker, "what lives is left alone"
    eventually(lambda: store.runs()[0].status != "running", "it does not end")
    assert take_up(night, tmp_path, store) == 0, "every call is in the books"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_survives_the_database_of_its_journal_and_of_its_server(
    tmp_path: Path, make_night: Callable[..., Night]
):
    database = postgres_server()
    night = make_night(
        TARGET_DELAY_S="0.1",
        JOURNAL_URL=database.new_schema(),
        PREFECT_API_DATABASE_CONNECTION_URL=database.prefect_url(),
    )
    store = begin(night, tmp_path, storage__journal="${JOURNAL_URL}")
    database.kill()
    database.start()
    eventually(lambda: store.runs()[0].status != "running", "it does not end")
    assert take_up(night, tmp_path, store) == 0, "every call is in the books"


@pytest.mark.prefect
@pytest.mark.slow
def test_deploying_twice_leaves_one_of_each(tmp_path: Path):
    from deployments.nightly.deploy import deploy

    place: dict[str, Any] = {
        "pool": "twice", "folder": tmp_path, "system": "s", "suffix": "-twice"
    }  # fmt: skip
    loud = plan(tmp_path / "c.yaml", tmp_path, system="s", suffix="-twice", slack_env="ALERTS_URL")
    first = asyncio.run(deploy(loud, timezone="Europe/Berlin", **place))
    second = asyncio.run(deploy(loud, timezone="UTC", **place))
    assert first == second
    assert len(first) == 5
    assert asyncio.run(automations("convergence-twice: ")) == sorted(first[1:])
    alerts = next(d for d in asyncio.run(deployed("alerts-twice")))
    assert alerts.parameters == {"webhook_env": None, "slack_env": "ALERTS_URL"}
    planned = plan(
        tmp_path / "c.yaml",
        tmp_path,
        system="s",
        suffix="-twice",
        trains=True,
        training_pool="gpu",
    )
    asyncio.run(deploy(planned, timezone="UTC", **place))
    assert asyncio.run(automations("convergence-twice: ")) == [], (
        "nobody is to be notified any more"
    )
    assert asyncio.run(automations(ZOMBIES)) == [ZOMBIES]
    found = asyncio.run(deployed("-twice"))
    assert {d.name for d in found} == {
        f"{name}-twice" for name in ("nightly", "adhoc", "hourly", "daily", "weekly", "idle")
    }
    pools = {d.name: d.work_pool_name for d in found}
    assert pools.pop("idle-twice") == "gpu"
    assert set(pools.values()) == {"twice"}
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
    assert "continues" in form["resume"]["description"]
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
    return sorted(first.name for first in found if first.name.startswith(prefix))


def test_up_refuses_an_address_where_something_else_answers(tmp_path: Path):
    with LoopbackServer(lambda _: error_answer(404)) as other:
        found = re.search(r":(\d+)", other.url.removeprefix("http://"))
        assert found is not None
        with pytest.raises(PrefectServerError, match="--port"):
            services.up(tmp_path, host="127.0.0.1", port=int(found[1]), pool="p")
    assert services.running(tmp_path) is None
    assert services.down(tmp_path) is None


def test_a_process_that_only_has_the_old_number_is_not_ended(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        mark = process(other.pid)
        stranger = {**asdict(mark), "started": "1"}
        noted = {"url": "http://127.0.0.1:9", "pool": "p", "server": stranger, "worker": stranger}
        (tmp_path / "convergence.json").write_text(json.dumps(noted))
        found = services.down(tmp_path)
        assert found is not None
        assert other.poll() is None
        other.communicate(b"\n")
