"""What is written before a generation is evaluated: durable at once, visible with the generation; and whose rows are refused."""

from pathlib import Path
from typing import Any

import pytest

from tasks.store.tables.parquet_store import ParquetStore
from tests.support.store_rows import RUN, ahead_tables, final_tables, generation_tables, run_record

COUNT = (
    "select generation, count(*) as n, min(text) as text from commitments group by 1 order by 1"
)


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    found = ParquetStore(tmp_path / "store")
    found.save_run(run_record())
    return found


def test_it_is_on_disk_at_once_and_seen_with_its_generation(store: ParquetStore):
    store.write_ahead(RUN, 0, ahead_tables())
    (path,) = (store.path / "live/commitments").glob("*/g00000.parquet")
    assert path.stat().st_size > 0
    assert store.rows(COUNT) == []
    store.publish(RUN, 0, generation_tables())
    assert store.rows(COUNT) == [{"generation": 0, "n": 3, "text": "thought none"}]


def test_a_generation_that_is_planned_anew_is_written_anew_until_it_is_published(
    store: ParquetStore,
):
    store.write_ahead(RUN, 0, ahead_tables(text="old"))
    store.write_ahead(RUN, 0, ahead_tables(text="new"))
    store.publish(RUN, 0, generation_tables())
    assert store.rows(COUNT)[0]["text"] == "new none"
    # Publishing again changes nothing of it.
    store.publish(RUN, 0, generation_tables())
    assert store.rows(COUNT) == [{"generation": 0, "n": 3, "text": "new none"}]


def test_it_is_kept_through_the_end_of_a_run_and_given_to_the_one_that_goes_on(
    store: ParquetStore,
):
    for generation in (0, 1):
        store.write_ahead(RUN, generation, ahead_tables(generation=generation))
        store.publish(RUN, generation, generation_tables(generation=generation))
    store.publish(RUN, -1, final_tables())
    store.finish_run(run_record(status="done"))
    assert [row["n"] for row in store.rows(COUNT)] == [3, 3]
    store.continue_run(RUN, "01J8ZC0000000000000000WXYZ")
    assert [row["n"] for row in store.rows(COUNT)] == [6, 6]


@pytest.mark.parametrize("wrong", [{"generation": 1}, {"generation": None}, {"run_id": "other"}])
@pytest.mark.parametrize("is_left_out", [False, True])
def test_rows_of_another_run_or_generation_are_refused_and_so_are_those_that_name_none(
    store: ParquetStore, wrong: dict[str, Any], is_left_out: bool
):
    ahead, late = ahead_tables(), generation_tables()
    for rows in (ahead["commitments"], late["evaluations"]):
        changed = {**rows[-1], **wrong}
        left = [name for name in changed if not (is_left_out and name in wrong)]
        rows[-1] = {name: changed[name] for name in left}
    with pytest.raises(ValueError, match=f"a row of commitments must be of run {RUN} and gen"):
        store.write_ahead(RUN, 0, ahead)
    with pytest.raises(ValueError, match=f"a row of evaluations must be of run {RUN} and gen"):
        store.publish(RUN, 0, late)
    assert list((store.path / "live").glob("*/*/g*.parquet")) == []
    final = final_tables()
    final["evaluations"][0] = {**final["evaluations"][0], "generation": 0}
    with pytest.raises(ValueError, match="and generation None, but is of"):
        store.publish(RUN, -1, final)
