"""Retention removes what it says and nothing else, also where it is killed halfway."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from convergence_core.ports import RunRecord
from tasks.run.maintenance import DAY_US, maintain_store
from tasks.store.clock import wall_clock_us
from tasks.store.runtime.promotions import set_champion
from tasks.store.runtime.rows import Champion
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.parquet_store import ParquetStore
from tasks.store.tables.retention import due, orphans, remove
from tests.support.store_rows import generation_tables, run_record

HOUR_US = DAY_US // 24


def filled(folder: Path, *ages_in_days: int, name: str = "s") -> ParquetStore:
    """Return a store with one finished run of each age, named r0, r1, …"""
    store = ParquetStore(folder)
    for i, age in enumerate(ages_in_days):
        began = wall_clock_us() - age * DAY_US
        record = replace(run_record(f"r{i}"), name=name, label=f"{name}-{i}", started_us=began)
        store.save_run(record)
        store.publish(f"r{i}", 0, generation_tables(f"r{i}", 0))
        store.finish_run(replace(record, status="done"))
    return store


def files_of(folder: Path, run_id: str) -> list[Path]:
    return [path for path in folder.rglob(f"run_id={run_id}/*") if path.is_file()]


def test_old_finished_runs_are_due_but_the_two_latest_and_the_protected():
    def record(run_id: str, age: int, **changes: Any) -> RunRecord:
        return run_record(
            run_id, **{"name": "a", "status": "done", **changes}, started_us=100 - age
        )

    records = [
        record("young", 1),
        record("second", 50),
        record("third", 60),
        record("stopped", 70, status="stopped"),
        record("champion", 80),
        record("other", 90, name="b"),
        record("fifth", 95),
    ]
    found = due(records, before_us=60, protected=frozenset({"champion"}))
    assert [r.run_id for r in found] == ["third", "fifth"]
    assert due(records, before_us=0) == []


def test_maintenance_removes_old_runs_whole_and_leaves_the_rest(tmp_path: Path):
    store = filled(tmp_path, 100, 90, 80, 2)
    of_run = "select * from evaluations where run_id = $run_id"
    before = {r.run_id: store.rows(of_run, {"run_id": r.run_id}) for r in store.runs()}
    dry = maintain_store(tmp_path, keep_days=30, dry_run=True)
    assert dry.removed == ("s-1", "s-0")
    assert {run.run_id for run in store.runs()} == {"r0", "r1", "r2", "r3"}
    done = maintain_store(tmp_path, keep_days=30)
    assert (done.removed, done.n_runs, done.damage) == (("s-1", "s-0"), 2, ())
    assert {run.run_id for run in store.runs()} == {"r2", "r3"}
    for run_id in ("r2", "r3"):
        assert store.rows(of_run, {"run_id": run_id}) == before[run_id] != []
    assert files_of(tmp_path, "r0") == files_of(tmp_path, "r1") == []
    assert maintain_store(tmp_path, keep_days=30).removed == ()
    assert maintain_store(tmp_path).n_runs == 2


def test_a_run_that_a_champion_came_from_stays(tmp_path: Path):
    filled(tmp_path, 100, 90, 3, 2)
    with RuntimeStore(tmp_path) as state:
        set_champion(
            state,
            Champion(system="s", candidate_id="c", params={}, run_id="r0", reason="-", created_us=1),
        )  # fmt: skip
    assert maintain_store(tmp_path, keep_days=30).removed == ("s-1",)
    assert files_of(tmp_path, "r0") != []


def test_a_removal_that_was_killed_is_ended_by_the_next(tmp_path: Path):
    store = filled(tmp_path, 100, 90, 3, 2)
    marker = next(tmp_path.glob("final/runs/run_id=r0/*"))
    marker.unlink()  # as `remove` begins
    next(tmp_path.glob("live/runs/run_id=r0/*"), marker).unlink(missing_ok=True)
    assert "r0" not in {run.run_id for run in store.runs()}
    assert store.check() == {}
    assert orphans(tmp_path, before_us=wall_clock_us() - HOUR_US) == []  # somebody may be writing
    assert orphans(tmp_path, before_us=wall_clock_us() + HOUR_US) == ["r0"]
    remove(tmp_path, "r0")
    assert files_of(tmp_path, "r0") == []
    assert orphans(tmp_path, before_us=wall_clock_us() + HOUR_US) == []
