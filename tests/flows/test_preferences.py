"""Preferences through the real flow: killed inside the subflow, shown as artifacts, run alone."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from convergence_core.store import ParquetStore
from tests.support.optimizations import start_command
from tests.support.planted_server import planted_server
from tests.support.preferring_runs import STORE, World, planted_world, write_preferring

SIZE: dict[str, Any] = {
    "optimization__evolution": {"population_size": 6, "generations": 3},
    "society__sao": {"every": 2, "n_samples": 8, "audit_items": 10, "batch_size": 1},
}


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    return ParquetStore(folder / STORE).rows(sql)


def finish(folder: Path, *arguments: str) -> str:
    process = start_command(*arguments, cwd=folder)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, f"{out}\n{err}"
    return out


def kill_inside(folder: Path, world: World, what: str, n: int) -> None:
    """Kill -9 once the subflow has made so many requests of a kind."""
    process = start_command("optimize", "--quiet", cwd=folder)
    while process.poll() is None and world.n_asked[what] < n:
        time.sleep(0.002)
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def check_flow_runs_and_artifacts() -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        ArtifactFilter,
        ArtifactFilterKey,
        FlowRunFilter,
        FlowRunFilterName,
    )

    with get_client(sync_client=True) as client:
        found = client.read_artifacts(
            artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=["codes-preferences"]))
        )
        played = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(
                name=FlowRunFilterName(any_=["sao before generation 02"])
            )
        )
    assert played
    newest = str(max(found, key=lambda artifact: str(artifact.created)).data)
    assert "> prompt: What shall I do about" in newest
    assert "| before generation | prompts | pairs | kept |" in newest


@pytest.mark.slow
@pytest.mark.prefect
def test_a_run_killed_inside_the_subflow_repeats_no_call_and_no_pair(tmp_path: Path):
    found = {}
    for name, (what, n) in {
        "unbroken": ("", 0),
        "answering": ("answer", 7),
        "judging": ("judgement", 12),
    }.items():
        folder, world = tmp_path / name, planted_world()
        with planted_server(world) as server:
            write_preferring(folder, server.url, **SIZE)
            if n:
                kill_inside(folder, world, what, n)
                assert rows(folder, "select * from preferences") == []
                finish(folder, "resume", "--quiet")
            else:
                finish(folder, "optimize", "--quiet")
        calls = rows(
            folder,
            "select call_key, count(*) as n, count(*) filter (state = 'done') as done "
            "from attempts where purpose = 'sao' group by call_key",
        )
        # One request was in flight at the kill; nobody saw its end, so it alone may be made again.
        assert all(row["done"] <= 1 for row in calls)
        assert sum(row["n"] - 1 for row in calls) <= (1 if n else 0)
        pairs = rows(
            folder,
            "select count(*) as n, count(distinct pair_id) as d, count(distinct persona) as p "
            "from preferences",
        )
        assert pairs[0]["n"] == pairs[0]["d"] == pairs[0]["p"] > 0
        kept = rows(
            folder,
            "select persona, kind, p12, p21, dropped_by from preferences order by persona",
        )
        found[name] = kept
    for name in ("answering", "judging"):
        both = list(zip(found[name], found["unbroken"], strict=True))
        assert all((a["persona"], a["kind"]) == (b["persona"], b["kind"]) for a, b in both)
        # The request in flight may have been answered anew, in other words: that pair alone differs.
        assert sum(a != b for a, b in both) <= 1, name
    check_flow_runs_and_artifacts()


@pytest.mark.slow
@pytest.mark.prefect
def test_the_flow_runs_alone_on_what_an_optimization_left(tmp_path: Path):
    from flows.sao import sao

    world = planted_world()
    with planted_server(world) as server:
        path = write_preferring(tmp_path, server.url, **SIZE)
        finish(tmp_path, "optimize", "--quiet")
        n_kept = sao(config=str(path))
    runs = rows(tmp_path, "select status, n_generations, reason from runs order by started_at")
    assert runs[-1] == {"status": "done", "n_generations": 3, "reason": "all 3 rounds were run"}
    newest = rows(
        tmp_path,
        "select count(*) as n from preferences where dropped_by is null "
        "and run_id = (select max(run_id) from runs)",
    )
    assert newest[0]["n"] == n_kept > 0
