"""A person cancels, adopts and is told: on a real server with a real worker, as in a browser."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convergence_core import caveats
from tasks.store.runtime.promotions import champion_of
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.http_server import Answer, LoopbackServer
from tests.support.nightly import Night, eventually
from tests.support.optimizations import ledger, write_project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SECRET = "T0KEN-4d1f6a90"  # noqa: S105 - of a server that lives as long as the tests
CASES = [{"id": f"c{n:03d}", "input": {"n": n}, "expected": None} for n in range(60)]


@pytest.fixture(scope="module")
def receiver() -> Iterator[LoopbackServer]:
    with LoopbackServer(lambda _: Answer({"ok": True})) as server:
        yield server


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, receiver: LoopbackServer) -> Iterator[Night]:
    folder = tmp_path_factory.mktemp("night")
    found = Night(
        folder / "home",
        TARGET_DELAY_S="0.1",
        ALERTS_URL=f"{receiver.url}/hook/{SECRET}",
        CHAT_URL=f"{receiver.url}/chat/{SECRET}",
    )
    try:
        found.up(folder)
        yield found
    finally:
        found.down()


def project(folder: Path, name: str, **overrides: Any) -> tuple[Path, ParquetStore]:
    """Write a system of that name whose gate can pass."""
    folder.mkdir(parents=True)
    (folder / "many.json").write_text(json.dumps(CASES))
    config = write_project(
        folder,
        api__name=name,
        evaluation__test_cases={"path": "many.json", "holdout": 0.5},
        optimization__evolution={"population_size": 4, "generations": 2},
        **overrides,
    )
    return config, ParquetStore(folder / "convergence-data")


def test_cancelling_ends_the_calls_keeps_what_was_paid_and_leaves_a_run_that_goes_on(
    night: Night, tmp_path: Path
):
    config = write_project(
        tmp_path / "p", api__name="cancelled", optimization__evolution__generations=6
    )
    night.command(f"convergence deploy {config} --name c", cwd=tmp_path)
    night.prefect("deployment run optimize/nightly-c", cwd=tmp_path)
    eventually(lambda: len(ledger(tmp_path / "p")) > 40, "nothing was asked")
    run = night.of_deployments()[-1]
    night.prefect(f"flow-run cancel {run['id']}", cwd=tmp_path)
    time.sleep(5)  # the promise: no call starts later
    asked = ledger(tmp_path / "p")

    def family() -> dict[str, str]:
        found = [r for r in night.flow_runs() if "system:cancelled" in r["tags"]]
        return {r["id"]: r["state_name"] for r in found} | {
            r["id"]: r["state_name"] for r in night.flow_runs() if r["id"] == run["id"]
        }

    eventually(lambda: family()[run["id"]] == "Cancelled", "the page does not say so")
    assert set(family().values()) <= {"Cancelled", "Completed"}, "no ghost"
    assert ledger(tmp_path / "p") == asked
    store = ParquetStore(tmp_path / "p/convergence-data")
    (stopped,) = store.runs()
    assert (stopped.status, stopped.label) == ("stopped", night.of_deployments()[-1]["name"])
    paid = store.rows("select count(*) as n from attempts where state = 'done'")[0]["n"]

    night.prefect("deployment run optimize/nightly-c --watch --watch-timeout 300", cwd=tmp_path)
    (ended,) = store.runs()
    assert (ended.run_id, ended.status) == (stopped.run_id, "done")
    rows = store.rows(
        "select call_key, count(*) as n from attempts where state = 'done' group by 1"
    )
    assert len(rows) >= int(str(paid))
    assert all(row["n"] == 1 for row in rows), "nothing was paid twice"
    assert len(ledger(tmp_path / "p")) == len(rows)


def test_a_night_waits_until_somebody_adopts_on_the_page_or_in_a_terminal(
    night: Night, receiver: LoopbackServer, tmp_path: Path
):
    for name in ("paged", "typed", "declined"):
        config, _ = project(tmp_path / name, name)
        told = "--notify-webhook ALERTS_URL --notify-slack CHAT_URL" if name == "paged" else ""
        night.command(f"convergence deploy {config} --name {name} {told}", cwd=tmp_path)
        night.prefect(f"deployment run optimize/nightly-{name}", cwd=tmp_path)

    def waiting() -> dict[str, dict[str, Any]]:
        found = {r["name"].split("-")[0]: r for r in night.of_deployments()}
        return {n: r for n, r in found.items() if r["state_name"] == "Suspended"}

    eventually(lambda: {"paged", "typed", "declined"} <= waiting().keys(), "nobody waits")
    waited = waiting()
    for name in waited:
        (run,) = ParquetStore(tmp_path / name / "convergence-data").runs()
        assert (run.status, run.label) == ("done", waited[name]["name"])
        with RuntimeStore(tmp_path / name / "convergence-data") as state:
            assert champion_of(state, name) is None

    night.resume(waited["paged"]["id"], adopt=True)
    night.resume(waited["declined"]["id"], adopt=False)
    said = night.command("convergence promote --yes", cwd=tmp_path / "typed")
    assert "continues" in said

    def ended() -> bool:
        states = {r["id"]: r["state_name"] for r in night.of_deployments()}
        # A run that was answered is scheduled again until the worker takes it: not among these.
        return all(states.get(r["id"]) == "Completed" for r in waited.values())

    eventually(ended, "they do not go on")
    for name, reason in (("paged", "Prefect's page"), ("typed", "promoted from typed")):
        (run,) = ParquetStore(tmp_path / name / "convergence-data").runs()
        with RuntimeStore(tmp_path / name / "convergence-data") as state:
            champion = champion_of(state, name)
            assert champion is not None
            assert champion.run_id == run.run_id
            assert reason in champion.reason
    with RuntimeStore(tmp_path / "declined/convergence-data") as state:
        assert champion_of(state, "declined") is None
    assert len(ParquetStore(tmp_path / "declined/convergence-data").runs()) == 1

    def told_of_the_gate() -> set[str]:
        return {
            r.path.split("/")[1]
            for r in receiver.requests
            if "Better than the defaults: +" in r.body["text"] and caveats.CASES in r.body["text"]
        }

    eventually(lambda: told_of_the_gate() == {"hook", "chat"}, "nobody was told of the gate")


def test_people_are_told_of_budget_failure_and_drift_and_no_address_is_kept(
    night: Night, receiver: LoopbackServer, tmp_path: Path
):
    config, _ = project(tmp_path / "spent", "spent", budget__max_calls=100)
    night.command(
        f"convergence deploy {config} --name spent --notify-webhook ALERTS_URL", cwd=tmp_path
    )
    night.prefect("deployment run optimize/nightly-spent", cwd=tmp_path)
    night.prefect("deployment run optimize/adhoc-spent --param config=nowhere.yaml", cwd=tmp_path)
    night.prefect(
        "event emit convergence.drift --resource-id convergence.system.spent "
        """--payload '{"text": "Drift: it went down."}'""",
        cwd=tmp_path,
    )

    def told() -> dict[str, str]:
        bodies = [r.body for r in receiver.requests if r.path.startswith("/hook/")]
        return {b["event"]: b["text"] for b in bodies if b["system"] == "spent"}

    wanted = {"convergence.drift", "convergence.budget", "prefect.flow-run.Failed"}
    eventually(lambda: wanted <= told().keys(), f"told only {told().keys()}")
    assert told()["convergence.drift"] == "Drift: it went down."
    assert "80 % of budget.max_calls=100 is spent" in told()["convergence.budget"]
    assert "optimize of spent" in told()["prefect.flow-run.Failed"]
    assert "nowhere.yaml" in told()["prefect.flow-run.Failed"]
    kept = [path for path in night.home.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" for path in kept)
    for path in [*kept, *(p for p in tmp_path.rglob("*") if p.is_file())]:
        assert SECRET.encode() not in path.read_bytes(), path
