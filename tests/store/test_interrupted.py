"""A killed run says ``running`` in its row; who looks finds that its process is gone."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from convergence_core.ports import RunRecord
from tasks.store.journal.lease import Lease
from tasks.store.layout import JOURNAL_FILE
from tasks.store.tables import interrupted_runs
from tasks.store.tables.interrupted_runs import (
    mark_interrupted,
    settle_interrupted,
    with_current_status,
)
from tasks.store.tables.object_storage import bind
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.children import start_child
from tests.support.store_rows import run_record


def running(number: int, name: str = "bot", **changes: Any) -> RunRecord:
    run_id = f"01KAAAAAAAAAAAAAAAAAAAA{number:03d}"
    return run_record(run_id, name=name, label=f"{name}-{number:04d}", **changes)


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    store = ParquetStore(tmp_path / "store")
    for record in (running(1), running(2, "other"), running(3, status="stopped")):
        store.save_run(record)
    return store


@contextmanager
def killed_holder(store: ParquetStore) -> Iterator[None]:
    """Let a process take the lease on ``bot`` and kill it."""
    with start_child("tests.store.holder", store.path) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.wait()
        yield


def statuses(store: ParquetStore) -> dict[str, str]:
    return {record.label: record.status for record in with_current_status(store, store.runs())}


def test_a_run_whose_process_lives_is_running_and_others_are_interrupted(store: ParquetStore):
    with Lease(store.path, "bot").acquire():
        found = statuses(store)
    assert found == {
        "bot-0001": "running", "other-0002": "interrupted", "bot-0003": "stopped",
    }  # fmt: skip


def test_a_run_whose_process_was_killed_is_interrupted_and_says_how_to_go_on(store: ParquetStore):
    with killed_holder(store):
        found = with_current_status(store, store.runs("bot"))
    (killed,) = [record for record in found if record.label == "bot-0001"]
    assert killed.status == "interrupted"
    assert "`convergence resume bot-0001`" in (killed.reason or "")
    assert store.run("bot-0001").status == "running", "looking writes nothing"


def test_a_killed_run_is_found_through_the_log_it_left(store: ParquetStore):
    with killed_holder(store):
        assert (store.path / f"{JOURNAL_FILE}-wal").exists()
        assert statuses(store)["bot-0001"] == "interrupted"


def test_a_lease_is_read_where_nothing_can_be_written(store: ParquetStore):
    Lease(store.path, "bot").acquire().close()
    before = {path.name: path.stat().st_mtime_ns for path in store.path.iterdir()}
    store.path.chmod(0o500)
    try:
        assert statuses(store)["bot-0001"] == "interrupted"
    finally:
        store.path.chmod(0o700)
    # Root may write everywhere, so the folder is compared as well.
    assert {path.name: path.stat().st_mtime_ns for path in store.path.iterdir()} == before


def test_the_next_run_of_the_system_writes_what_it_knows_of_the_dead(store: ParquetStore):
    holder = running(4)
    store.save_run(holder)
    dead = [record.run_id for record in store.runs() if record.label == "bot-0001"]
    assert mark_interrupted(store, holder) == dead
    assert mark_interrupted(store, holder) == dead  # also of those who were marked before
    assert {record.label: record.status for record in store.runs()} == {
        "bot-0001": "interrupted", "other-0002": "running", "bot-0003": "stopped",
        "bot-0004": "running",
    }  # fmt: skip


def rows_of(store: ParquetStore) -> dict[str, str]:
    return {record.label: record.status for record in store.runs()}


def test_a_lease_that_was_taken_since_we_looked_is_respected(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch
):
    with killed_holder(store):
        seen = with_current_status(store, store.runs())
    monkeypatch.setattr(interrupted_runs, "with_current_status", lambda *_: seen)
    with Lease(store.path, "bot").acquire():
        settle_interrupted(store)
        assert rows_of(store)["bot-0001"] == "running"


def test_another_machines_run_of_the_same_address_is_left_as_it_is(store: ParquetStore):
    bind(store.path, "s3://results/nightly")
    Lease(store.path, "third").acquire().close()
    mirrored = ParquetStore(store.path)
    settle_interrupted(mirrored)
    assert rows_of(mirrored)["other-0002"] == "running"
    assert statuses(mirrored)["other-0002"] == "running", "its lease is in its own folder"
    with killed_holder(store):
        assert statuses(mirrored)["bot-0001"] == "interrupted", "its process was here"
