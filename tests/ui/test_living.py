"""Pages of what goes on: empty stores, runs under way, production, changes, many rows."""

import json
import os
import re
import subprocess
import sys
import time

import httpx
import pytest

from convergence.service.auth import allowed_hosts
from convergence.service.server import Service, ServiceOptions
from convergence.ui.guard import UiGuard
from convergence.ui.server import guarded
from convergence.ui.sessions import BrowserSessions
from tasks.inputs.loader import load
from tasks.pages.changes import StoreMark
from tasks.pages.source import PageSource
from tasks.run.opener import prepare_run
from tasks.serving.settings import RuntimeArm, RuntimeConfig
from tasks.serving.systems import Systems
from tasks.store.runtime.promotions import champion_of, set_champion
from tasks.store.runtime.rows import Champion
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import begin_guard
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.bandits import Bandit
from tests.support.optimizations import write_project
from tests.support.page_viewer import READER, actions, column, sections, store_of, tokens
from tests.support.searching import search
from tests.support.stepped_runs import begin, play, play_generation
from tests.support.store_rows import run_record
from tests.support.writing_runs import PARENT, write_project as write_project_of_texts
from tests.ui.conftest import Open


def test_an_empty_store_says_the_next_command(tmp_path, opened: Open):
    viewer = opened(tmp_path / "none").enter()
    for name in ("overview", "production"):
        assert sections(viewer.page(name))[""].endswith("Next: convergence optimize")
    assert viewer.page("sql", q="select count(*) from runs")["rows"] == [[0]]
    assert not (tmp_path / "none").exists()


def test_a_run_under_way_shows_what_its_journal_has_beyond_its_tables(tmp_path, opened: Open):
    run = prepare_run(load(write_project(tmp_path)))
    viewer = opened(store_of(tmp_path)).enter()
    with run:
        source = PageSource(ParquetStore(store_of(tmp_path)))
        before = StoreMark.of(source.store.path)
        plan = run.ask()
        for assignment in plan.assignments[:2]:
            run.evaluate(assignment, generation=0)
        page = viewer.page(f"runs/{run.run_id}")
        assert sections(page)[""].startswith("running known, started ")
        assert [one["text"] for one in actions(page)] == ["Stop"]
        found = re.search(
            r"Generation 1 of at most 4: (\d+) evaluations? settled", sections(page)["Progress"]
        )
        assert found is not None
        assert int(found[1]) > 0
        assert f"{found[1]} calls" in sections(page)[""]
        assert column(viewer.page("overview"), "status", of="Runs") == ["running"]
        assert viewer.page(f"runs/{run.run_id}/leaderboard")["rows"] == []
        assert viewer.page(f"runs/{run.run_id}/answers")["cases"] == []
        changes = before.changes_to(StoreMark.of(source.store.path))
        assert [(one.kind, one.run_id) for one in changes] == [("cells", run.run_id)]
        source.close()
        assert play_generation(run)
        assert column(viewer.page("overview"), "generations", of="Runs") == ["1"]
        run.evaluate(run.ask().assignments[0], generation=1)
        n_calls = run.journal.totals(run.run_id).n_attempts
    assert column(viewer.page("overview"), "spent", of="Runs") == [f"{n_calls} calls"]


def test_events_reach_a_viewer(project, opened: Open):
    viewer = opened(store_of(project)).enter()
    with viewer.client.stream("GET", "/ui/api/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines) == "retry: 3000"
        record = run_record("01JD0000000000000000000001", status="stopped")
        ParquetStore(store_of(project)).save_run(record)
        told = next(line for line in lines if line.startswith("data: "))
    event = json.loads(told.removeprefix("data: "))
    assert event == {"run_id": record.run_id, "kind": "begun"}


@pytest.fixture
def served(project) -> RuntimeStore:
    """The runtime state of a system with two arms and a few rewards."""
    store = RuntimeStore(store_of(project))
    systems = Systems(store)
    systems.configure(RuntimeConfig(system="known"))
    arms = [RuntimeArm(arm_id=name, params={"kind": name}) for name in ("a", "b")]
    systems.offer("known", arms)
    bandit = Bandit(store, "known")
    for n in range(40):
        chosen = bandit.select(f"user-{n}")
        bandit.update(chosen.decision_id, 0.9 if chosen.arm_id == "b" else 0.1)
    for name in ("a", "b"):
        champion = Champion(
            system="known", candidate_id=f"{name}" * 16, params={"kind": name}, run_id=None,
            reason=f"promoted {name}", created_us=1,
        )  # fmt: skip
        set_champion(store, champion)
    begin_guard(
        store, 1, promoted="b", champion="a", alpha=0.05, tolerance=0.0, holdback=0.1,
        steps=(0.05, 0.25),
    )  # fmt: skip
    return store


def test_production_shows_arms_shares_rewards_and_evidence(project, opened: Open, served):
    viewer = opened(store_of(project)).enter()
    page = viewer.page("production/known")
    assert viewer.page("production") == page, "the first system is shown"

    def of_arms(title: str) -> list[str]:
        return column(page, title, of="Arms")

    states = dict(zip(of_arms("configuration"), of_arms("state"), strict=True))
    assert states == {"a": "active", "b": "champion"}
    assert sum(float(share.removesuffix(" %")) for share in of_arms("share")) == pytest.approx(100)
    assert sum(map(int, of_arms("rewards"))) == 40
    assert sum(map(int, of_arms("decisions"))) >= 40
    (plot,) = (plot for one in page["blocks"] if one["is"] == "Plots" for plot in one["plots"])
    tips = [point["tip"] for point in plot["layers"][0]["points"]]
    assert sum(int(tip.split(", ")[1].split()[0]) for tip in tips) == 40
    texts = sections(page)
    assert texts["Live"].startswith("Live since 1970-01-01 00:00:00 UTC: kind b, with ")
    assert "Regret so far" in texts["Live"]
    assert {one["text"]: one["body"] for one in actions(page)} == {
        "Roll back": {}, "Promote": {"candidate_id": "a"},
    }  # fmt: skip
    assert texts["Ramps"] == (
        "b gets 5 % of the requests, a the rest as control. Next: 25 %, all but 10 %."
    )
    assert "kind b: promoted b" in texts["Promotions"]
    assert column(viewer.page("overview"), "champion", of="Systems") == ["kind b"]


def test_a_rollback_is_asked_twice_and_done_once(project, opened: Open, served):
    viewer = opened(store_of(project)).enter()
    refused = viewer.post("production/known/rollback", confirm="unknown")
    assert (refused.status_code, "'known'" in refused.json()["detail"]) == (400, True)
    done = viewer.post("production/known/rollback", confirm="known")
    assert (done.status_code, done.json()) == (
        200, {"sentence": "kind a is the champion of known again."},
    )  # fmt: skip
    champion = champion_of(served, "known")
    assert champion is not None
    assert champion.candidate_id == "a" * 16


def test_what_the_gate_does_not_prove_is_not_promoted(project, opened: Open):
    viewer = opened(store_of(project)).enter()
    answer = viewer.post("production/known/promote", confirm="known", candidate_id="")
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("The gate does not promote it. No clear gain")


def test_what_the_gate_proves_is_promoted_once_its_name_is_repeated(tmp_path, opened: Open):
    cases = [{"id": f"c{n:03d}", "input": {"n": n}, "expected": None} for n in range(60)]
    (tmp_path / "many.json").write_text(json.dumps(cases))
    search(
        write_project(
            tmp_path,
            optimization__evolution={"population_size": 4, "generations": 2},
            evaluation__test_cases={"path": "many.json", "holdout": 0.5},
        )
    )
    viewer = opened(store_of(tmp_path)).enter()
    assert "convergence promote" in sections(viewer.page("overview"))["Needs your attention"]
    path = "production/known/promote"
    assert viewer.post(path, confirm="other", candidate_id="").status_code == 400
    done = viewer.post(path, confirm="known", candidate_id="")
    assert done.status_code == 200
    assert done.json()["sentence"].endswith("is the champion of known now.")
    with RuntimeStore(store_of(tmp_path)) as runtime:
        champion = champion_of(runtime, "known")
    assert champion is not None
    page = viewer.page("production/known")
    assert column(page, "state", of="Arms").count("champion") == 1
    assert "default: no rewards yet." in sections(page)["Live"]
    assert "Needs your attention" not in sections(viewer.page("overview"))
    again = viewer.post(path, confirm="known", candidate_id="")
    assert (again.status_code, "already" in again.json()["detail"]) == (400, True)


@pytest.mark.prefect
@pytest.mark.slow
def test_a_run_of_another_process_is_stopped_and_goes_on_from_the_page(tmp_path, opened: Open):
    write_project(tmp_path, storage__path="./data")
    environment = {**os.environ, "TARGET_DELAY_S": "0.5"}
    command = [sys.executable, "-m", "convergence", "optimize", "optimization.yaml", "--quiet"]
    started = subprocess.Popen(command, cwd=tmp_path, env=environment)
    try:
        viewer = opened(tmp_path / "data").enter()
        row = _waited(lambda: next(iter(viewer.page("runs")["runs"]), None))
        path = f"runs/{row['run_id']}"
        _waited(
            lambda: re.search("[1-9] evaluation", sections(viewer.page(path)).get("Progress", ""))
        )
        assert viewer.post(f"{path}/stop", confirm=row["label"]).status_code == 200
        _waited(lambda: viewer.page("runs")["runs"][0]["status"] == "stopped")
        started.wait(60)
        assert viewer.post(f"{path}/resume", confirm=row["label"]).status_code == 200
        _waited(lambda: viewer.page("runs")["runs"][0]["status"] == "done")
    finally:
        started.kill()


def _waited(look, patience_s: float = 120.0):
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError("it did not happen")


@pytest.mark.slow
def test_the_family_of_a_prompt_is_a_tree_with_what_each_text_changed(tmp_path, opened: Open):
    write_project_of_texts(tmp_path, None)
    play(begin(tmp_path))
    viewer = opened(store_of(tmp_path)).enter()
    run = f"runs/{viewer.page('runs')['runs'][0]['run_id']}"
    page = viewer.page(f"{run}/prompts", parameter="system")
    assert viewer.page(f"{run}/prompts")["parameter"] == page["parameter"] == "system"
    nodes = {node["id"]: node for node in page["nodes"]}
    assert len(nodes) == len(page["nodes"])
    (root,) = [node for node in nodes.values() if node["text"] == PARENT]
    assert (root["parents"], root["operator"], root["effect"]) == ([], None, None)
    written = [node for node in nodes.values() if node["operator"] is not None]
    assert written
    assert all(node["parents"] and node["number"].startswith("#") for node in written)
    assert any(failure["name"] for node in written for failure in node["failures"])
    assert any(root["id"] in node["parents"] for node in written)
    assert any(node["effect"] is not None and node["effect"]["n_shared"] for node in written)
    assert any("recommended" in node["tags"] for node in nodes.values())


def test_the_service_shows_the_pages_beside_its_own_paths(project):
    store = RuntimeStore(store_of(project))
    source, sessions = PageSource(ParquetStore(store_of(project))), BrowserSessions()

    def pages(host: str, port: int) -> UiGuard:
        return guarded(
            source,
            sessions,
            tokens(),
            hosts=allowed_hosts(host, port),
            port=port,
            ends=lambda: False,
        )

    with (
        Service(store, tokens(), ServiceOptions(port=0), pages) as service,
        httpx.Client() as client,
    ):
        assert client.get(f"{service.url}/health").status_code == 401
        bearer = {"Authorization": f"Bearer {READER}"}
        assert client.get(f"{service.url}/health", headers=bearer).status_code == 200
        assert client.get(f"{service.url}/ui/api/overview", headers=bearer).status_code == 401
        entered = client.get(f"{service.url}/ui/?token={sessions.one_time_token()}")
        assert entered.status_code == 303
        assert client.get(f"{service.url}/ui/api/overview").json()["blocks"]
        assert client.get(f"{service.url}/uix").status_code == 401
    source.close()
    store.close()
