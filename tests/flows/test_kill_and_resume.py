"""kill -9 at any point, run again: the run ends as the unbroken one, nothing paid twice."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import pytest

from convergence.cli.locations import open_store
from tasks.store.tables.interrupted_runs import with_current_status
from tasks.store.tables.parquet_store import ParquetStore
from tests.paid import books
from tests.support.killed_command import STEPS_FILE
from tests.support.optimizations import ROOT, ledger, tables_of, write_project
from tests.support.paid_runs import STORE

SIZE: Final[dict[str, Any]] = {
    "optimization__evolution": {"population_size": 4, "generations": 2},
    "output": {"formats": ["json"]},
}
WORKERS: Final = 4
"""Calls in flight, as ``write_project`` has them."""
END_S: Final = 900.0
"""Only ends what hangs."""
SERVER: Final = b"tasks.prefect_support.temporary_server"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.prefect,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What a store holds that no kill may take from it."""

    answers: dict[str, tuple[object, ...]]
    """What is durable of each call that was answered."""
    attempts: frozenset[tuple[str, int]]
    committed: Counter[tuple[object, ...]]
    """Evaluations of committed generations."""


def read_books(folder: Path) -> Books:
    rows = books.ledger(folder)
    committed = (
        ParquetStore(folder / STORE)
        .query(
            "select generation, candidate_id, case_id, replicate, role, status, reward, call_key "
            "from evaluations where generation >= 0"
        )
        .rows
    )
    return Books(
        answers={
            row["call_key"]: (row["attempt"], row["ended_at"], row["cost_usd"])
            for row in rows
            if row["state"] == "done"
        },
        attempts=frozenset(books.made(rows)),
        committed=Counter(tuple(row) for row in committed),
    )


@dataclass
class Story:
    """One run's lives."""

    folder: Path
    own_server: bool = False
    """Whether each life starts a temporary Prefect server."""
    n_kills: int = 0
    n_calls: int = 0
    known: Books = field(
        default_factory=lambda: Books(answers={}, attempts=frozenset(), committed=Counter())
    )

    def live(self, last_step: int) -> bool:
        """Let a process go on with the run until that step; return whether it was killed there."""
        runs = ParquetStore(self.folder / STORE).runs()
        process = self._start(last_step, "resume" if runs else "optimize")
        try:
            out, err = process.communicate(timeout=END_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)
        killed = process.returncode == -SIGKILL
        assert killed or process.returncode == 0, f"{out}\n{err}"
        assert "Traceback" not in out + err, err
        self.n_kills += killed
        self._wait_for_servers()
        self._check(killed=killed)
        return killed

    @property
    def is_done(self) -> bool:
        """Whether the run is finished, so that there is nothing to resume."""
        return [run.status for run in ParquetStore(self.folder / STORE).runs()] == ["done"]

    def _start(self, last_step: int, command: str) -> "subprocess.Popen[str]":
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        if self.own_server:
            env["PREFECT_HOME"] = str(self.folder / "prefect")
            del env["PREFECT_API_URL"]
        return subprocess.Popen(
            [
                sys.executable, "-m", "tests.support.killed_command", str(self.folder),
                str(last_step), command, "--quiet",
            ],
            cwd=self.folder, env=env, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def _wait_for_servers(self) -> None:
        """Return once no temporary server of this run's home is left."""
        deadline = time.monotonic() + END_S
        while left := list(servers_of(self.folder / "prefect")):
            assert time.monotonic() < deadline, f"temporary servers are left: {left}"
            time.sleep(0.05)  # another process ends; there is nothing to wait on

    def _check(self, *, killed: bool) -> None:
        root = self.folder / STORE
        store = ParquetStore(root)
        if not store.runs():
            assert ledger(self.folder) == [], "calls were made before the run was in the store"
            return
        assert all(
            record.status != "running" for record in with_current_status(store, store.runs())
        )
        open_store(root, None)  # as each command that reads does
        ((status,),) = store.query("select status from runs").rows
        assert status in ({"interrupted", "done"} if killed else {"done"})
        self._compare(read_books(self.folder))

    def _compare(self, now: Books) -> None:
        """Hold what is there after a life against what was there before it."""
        known, self.known = self.known, now
        kept = {key: now.answers.get(key) for key in known.answers}
        assert kept == known.answers, "an answer that was paid for is lost"
        assert not known.committed - now.committed, "a committed evaluation is lost"
        begun = now.attempts - known.attempts
        assert not known.answers.keys() & {key for key, _ in begun}, (
            "an answered call was made again"
        )
        n_before, self.n_calls = self.n_calls, len(ledger(self.folder))
        assert self.n_calls - n_before <= len(begun), (
            "a call was made that the journal does not know"
        )
        # Each answer came from a call of its own, and all others were in flight at a kill.
        assert len(now.answers) <= self.n_calls <= len(now.answers) + self.n_kills * WORKERS


def servers_of(home: Path) -> Iterator[int]:
    """Give the temporary Prefect servers of a home."""
    wanted = f"PREFECT_HOME={home}".encode()
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            is_server = folder.name.isdigit() and SERVER in (folder / "cmdline").read_bytes()
            if is_server and wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def waiting_flow_runs(folders: Sequence[Path]) -> list[str]:
    """Return the flow runs of these folders' runs that the server believes to be about to begin."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
    )
    from prefect.client.schemas.objects import StateType

    runs = {ParquetStore(folder / STORE).runs()[0].run_id for folder in folders}
    pending = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PENDING]))
    )
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(flow_run_filter=pending)
    return [one.name for one in found if one.parameters.get("run_id") in runs]


def winner_of(folder: Path) -> object:
    file = next((folder / "results").glob("*/best_config.json"))
    return json.loads(file.read_text(encoding="utf-8"))["config"]


def unbroken_run(folder: Path, **size: Any) -> tuple[Story, int]:
    """Return a run that nothing broke, and of how many steps it was."""
    write_project(folder, **size)
    story = Story(folder)
    assert not story.live(0)
    return story, int((folder / STEPS_FILE).read_text())


def end_by_kills(story: Story, steps: Sequence[int], **size: Any) -> None:
    """Take a run to its end through kills at these steps of its whole life."""
    write_project(story.folder, **size)
    reached = 0
    for step in steps:
        if story.is_done or not story.live(step - reached):
            return
        reached = step
    if not story.is_done:
        assert not story.live(0)


def kill_and_compare(tmp_path: Path, n_kills: int, n_runs: int, seed: int, **size: Any) -> None:
    """Kill runs at so many steps, one in each equal part of a life; hold them to the unbroken run.

    A run that ended before its last step, since a resumed one skips some, leaves its kill to another.
    """
    unbroken, n_steps = unbroken_run(tmp_path / "unbroken", **size)
    rng = random.Random(seed)
    points = [int((part + rng.random()) * n_steps / n_kills) + 1 for part in range(n_kills)]
    stories: list[Story] = []
    while (n_left := n_kills - sum(story.n_kills for story in stories)) > 0:
        of_runs = [points[number::n_runs] for number in range(n_runs)]
        if stories:
            of_runs = [[rng.choice(points)] for _ in range(n_left)]
        begun = [
            Story(tmp_path / f"broken-{number}", own_server=number == 0)
            for number in range(len(stories), len(stories) + len(of_runs))
        ]
        with ThreadPoolExecutor(2) as threads:
            list(
                threads.map(
                    lambda pair: end_by_kills(*pair, **size), zip(begun, of_runs, strict=True)
                )
            )
        stories += begun
    for story in stories:
        check_end(story, unbroken)
    assert waiting_flow_runs([story.folder for story in stories]) == []


def check_end(story: Story, unbroken: Story) -> None:
    """Hold a broken run's end against the unbroken one."""
    root, whole = (one.folder / STORE for one in (story, unbroken))
    assert tables_of(root) == tables_of(whole)
    made, expected = Counter(ledger(story.folder)), Counter(ledger(unbroken.folder))
    assert not expected - made, "a call of the unbroken run is missing"
    n_lost = len(books.lost(books.ledger(story.folder)))
    assert (made - expected).total() <= n_lost <= story.n_kills * WORKERS
    assert winner_of(story.folder) == winner_of(unbroken.folder)


def test_runs_killed_at_six_steps_end_like_the_unbroken_one(tmp_path: Path):
    kill_and_compare(tmp_path, 6, 2, seed=2, **SIZE)
