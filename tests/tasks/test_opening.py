"""Opening a run: what it finds of earlier ones, and when its clocks begin."""

from dataclasses import replace
from pathlib import Path

from convergence_core.store import ParquetStore
from tasks.loading import load
from tasks.opening import prepare_run
from tests.support.optimizations import write_project


def test_a_run_that_begins_writes_that_a_killed_one_of_its_system_was_interrupted(tmp_path: Path):
    loaded = load(write_project(tmp_path))
    store = ParquetStore(tmp_path / "convergence-data")
    with prepare_run(loaded) as run:
        killed = run.record
    store.save_run(replace(killed, status="running", reason=None))
    with prepare_run(loaded) as run:
        assert store.run(killed.run_id).status == "interrupted"
        assert store.run(run.run_id).status == "running"
