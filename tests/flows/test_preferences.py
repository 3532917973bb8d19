"""Preferences through the real flow: killed inside the subflow, shown as artifacts, run alone."""

import time
from pathlib import Path
from typing import Any

import pytest

from tasks.sao.writer import N_AT_ONCE
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.http_server import Answer, Request
from tests.support.optimizations import kill_once, run_command, start_command
from tests.support.planted_server import planted_server
from tests.support.preferring_runs import World, case_truth, quality_of, write_preferring
from tests.support.stepped_runs import STORE

SIZE: dict[str, Any] = {
    "optimization__evolution": {"population_size": 6, "generations": 3},
    "society__sao": {"every": 2, "n_samples": 8, "audit_items": 10},
}


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    return ParquetStore(folder / STORE).rows(sql)


class Held(World):
    """Answers what a round asks up to a number of requests, and holds the others until it is released."""

    most: int | None = None
    n_waiting = 0

    def answer(self, request: Request) -> Answer:
        is_case = "is the code?" in str(request.body.get("messages", [{}])[-1].get("content"))[:40]
        if not is_case:
            self.n_waiting += 1
            while self.most is not None and self.n_answered >= self.most:
                time.sleep(0.002)
            self.n_waiting -= 1
        return super().answer(request)

    @property
    def n_answered(self) -> int:
        """Requests of rounds, probes of the judge among them."""
        return sum(n for what, n in self.n_asked.items() if what != "case")


def held_world() -> Held:
    return Held(quality=quality_of, truth=case_truth, spread=0.4)


def kill_at(folder: Path, world: Held, n: int, *command: str) -> None:
    """Kill -9 inside the subflow, once so many requests were answered and the next one waits."""
    world.most = n
    process = start_command(*command, "--quiet", cwd=folder)
    kill_once(process, lambda: world.n_answered >= n and world.n_waiting > 0)
    world.most = None
    while world.n_waiting:  # what was in flight is answered to nobody
        time.sleep(0.002)


def lost_and_repeated(folder: Path) -> tuple[int, int]:
    """Return how many requests of rounds nobody saw the end of, and how many were answered twice."""
    (found,) = rows(
        folder,
        "select coalesce(sum(n - done), 0) as lost, coalesce(sum(greatest(done - 1, 0)), 0) as again "
        "from (select call_key, count(*) as n, count(*) filter (state = 'done') as done "
        "from attempts where purpose = 'sao' group by call_key)",
    )
    return int(found["lost"]), int(found["again"])


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
    assert "What shall I do about" in newest
    assert "| before generation | prompts | pairs | kept |" in newest


POINTS = (2, 25)
"""Requests of the round that are answered before each kill; ten are in flight at once."""


@pytest.mark.slow
@pytest.mark.prefect
def test_a_run_killed_again_and_again_inside_the_subflow_repeats_no_call_and_no_pair(
    tmp_path: Path,
):
    found = {}
    for name, points in {"unbroken": (), "killed": POINTS}.items():
        folder, world = tmp_path / name, held_world()
        with planted_server(world) as server:
            write_preferring(folder, server.url, **SIZE)
            for k, n in enumerate(points):
                kill_at(folder, world, n, "resume" if k else "optimize")
                assert rows(folder, "select * from preferences") == []
            run_command("resume" if points else "optimize", "--quiet", cwd=folder)
        lost, again = lost_and_repeated(folder)
        assert again == 0
        # Nobody saw the end of what was in flight at a kill, so that alone is asked again.
        assert lost <= N_AT_ONCE * len(points)
        assert bool(lost) == bool(points)
        pairs = rows(
            folder,
            "select count(*) as n, count(distinct pair_id) as d, count(distinct persona) as p "
            "from preferences",
        )
        assert pairs[0]["n"] == pairs[0]["d"] == pairs[0]["p"] > 0
        found[name] = rows(
            folder,
            "select persona, kind, p12, p21, dropped_by from preferences order by persona",
        )
    both = list(zip(found["killed"], found["unbroken"], strict=True))
    assert all((a["persona"], a["kind"]) == (b["persona"], b["kind"]) for a, b in both)
    check_flow_runs_and_artifacts()
