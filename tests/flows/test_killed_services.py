"""kill -9 of the server and of PostgreSQL in mid-generation: the run goes on, nothing is paid twice."""

import os
import signal
from pathlib import Path

import pytest

from deployments.nightly.plan import ZOMBIE_S
from tasks.store import ParquetStore
from tests.cli.test_watcher import children_of
from tests.store.postgres_server import postgres_server
from tests.support.nightly import Night, eventually
from tests.support.optimizations import ledger, write_project

WORKERS = 4
"""Calls in flight, as ``write_project`` has them."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def begin(night: Night, tmp_path: Path, **overrides: object) -> ParquetStore:
    """Deploy a system, start a night and return once it is in the middle of a generation."""
    config = write_project(tmp_path / "p", optimization__evolution__generations=3, **overrides)
    night.up(tmp_path)
    night.command(f"convergence deploy {config}", cwd=tmp_path)
    night.prefect("deployment run optimize/nightly", cwd=tmp_path)
    eventually(lambda: len(ledger(tmp_path / "p")) > 60, "nothing was asked")
    return ParquetStore(tmp_path / "p/convergence-data")


def take_up(night: Night, tmp_path: Path, store: ParquetStore) -> None:
    """Let the next night go on; then the run is whole, nothing was paid twice, and no ghost runs."""
    (broken,) = store.runs()
    eventually(lambda: store.run(broken.run_id).status != "running", "it does not end")
    if store.run(broken.run_id).status != "done":
        night.prefect("deployment run optimize/nightly --watch --watch-timeout 300", cwd=tmp_path)
    (run,) = store.runs()
    assert (run.run_id, run.status, run.n_generations) == (broken.run_id, "done", 3)
    paid = store.rows(
        "select call_key, count(*) as n from attempts where state = 'done' group by 1"
    )
    assert all(row["n"] == 1 for row in paid)
    unseen = store.rows("select count(*) as n from attempts where error_type = 'lost'")[0]["n"]
    assert len(ledger(tmp_path / "p")) == len(paid) + int(str(unseen)), "every call is told"
    assert int(str(unseen)) <= WORKERS

    def nobody_runs() -> bool:
        states = {found["state_name"] for found in night.flow_runs()}
        return bool(states) and not states & {"Running", "Pending", "Cancelling"}

    eventually(nobody_runs, "a ghost", within_s=ZOMBIE_S + 120)


def test_a_run_survives_its_server(tmp_path: Path):
    night = Night(tmp_path / "home", TARGET_DELAY_S="0.1")
    try:
        store = begin(night, tmp_path)
        found = night.up(tmp_path)
        for pid in (*children_of(found.server.pid), found.server.pid):
            os.kill(pid, signal.SIGKILL)
        again = night.up(tmp_path)
        assert again.server != found.server
        assert again.worker == found.worker, "what lives is left alone"
        take_up(night, tmp_path, store)
    finally:
        night.down()


def test_a_run_survives_the_database_of_its_journal_and_of_its_server(tmp_path: Path):
    database = postgres_server()
    night = Night(
        tmp_path / "home",
        TARGET_DELAY_S="0.1",
        JOURNAL_URL=database.new_schema(),
        PREFECT_API_DATABASE_CONNECTION_URL=database.prefect_url(),
    )
    try:
        store = begin(night, tmp_path, storage__journal="${JOURNAL_URL}")
        database.kill()
        database.start()
        take_up(night, tmp_path, store)
    finally:
        night.down()
