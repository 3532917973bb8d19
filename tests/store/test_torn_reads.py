"""Readers beside writers, a compactor and a sweeper never see part of a generation."""

from pathlib import Path

import pytest

from tasks.store.tables.parquet_store import ParquetStore
from tasks.store.tables.query import open_views
from tasks.store.tables.resolver import resolve
from tasks.store.tables.retention import sweep
from tests.support.children import start_child
from tests.support.store_rows import RUN, final_tables, generation_tables, run_record

ANOMALIES = """
WITH e AS (SELECT run_id, generation, count(*) AS n, count(DISTINCT eval_id) AS n_distinct
           FROM evaluations GROUP BY ALL),
     a AS (SELECT run_id, generation, count(*) AS n FROM attempts GROUP BY ALL),
     c AS (SELECT run_id, generation, count(*) AS n FROM candidates GROUP BY ALL),
     g AS (SELECT run_id, generation, sum(n_evaluations) AS n FROM generations GROUP BY ALL)
SELECT run_id, generation, g.n, e.n, e.n_distinct, a.n, c.n
FROM g FULL JOIN e USING (run_id, generation) FULL JOIN a USING (run_id, generation)
       FULL JOIN c USING (run_id, generation)
WHERE generation IS NOT NULL
  AND (g.n, g.n, g.n, 2) IS DISTINCT FROM (e.n, e.n_distinct, a.n, c.n)
"""


@pytest.mark.slow
def test_readers_see_whole_generations_while_others_write_compact_and_sweep(tmp_path):
    store = ParquetStore(tmp_path)
    n_seen = 0
    writers = [start_child("tests.store.churner", tmp_path, name, 4) for name in ("A", "B")]
    while any(writer.poll() is None for writer in writers):
        assert store.rows(ANOMALIES) == []
        found = store.rows("SELECT count(*) AS n FROM generations")[0]["n"]
        assert isinstance(found, int)
        assert found >= n_seen, "a committed generation vanished for a moment"
        n_seen = found
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert store.rows("SELECT count(*) AS n FROM generations") == [{"n": 24}]
    assert store.rows("SELECT status, count(*) AS n FROM runs GROUP BY ALL") == [
        {"status": "done", "n": 8}
    ]


@pytest.fixture
def half_published(tmp_path):
    """One whole generation, and one whose writer ended before the commit marker."""
    store = ParquetStore(tmp_path)
    store.publish(RUN, 0, generation_tables())
    tables = generation_tables(generation=1)
    tables["generations"] = [{**tables["generations"][0], "n_evaluations": "many"}]
    with pytest.raises(ValueError, match="n_evaluations"):
        store.publish(RUN, 1, tables)
    return store


def test_half_a_generation_is_invisible(half_published):
    assert half_published.rows(ANOMALIES) == []
    assert half_published.rows("SELECT max(generation) AS g FROM evaluations") == [{"g": 0}]


def live_files(store: ParquetStore) -> list[Path]:
    return list(store.path.glob("live/*/*/*.parquet"))


def finished(path: Path) -> ParquetStore:
    store = ParquetStore(path)
    store.save_run(run_record())
    store.publish(RUN, 0, generation_tables())
    store.publish(RUN, -1, final_tables())
    store.finish_run(run_record(status="done"))
    return store


def test_a_reader_that_listed_live_files_can_finish_within_the_grace(tmp_path):
    store = ParquetStore(tmp_path)
    store.save_run(run_record())
    store.publish(RUN, 0, generation_tables())
    with open_views(tmp_path, resolve(tmp_path)) as views:
        store.finish_run(run_record(status="done"))
        assert views.execute("SELECT count(*) FROM evaluations").fetchall() == [(6,)]


def test_live_files_go_when_the_grace_is_over_and_nothing_is_missing(tmp_path):
    store = finished(tmp_path)
    before = store.rows("SELECT * FROM evaluations ORDER BY ALL")
    ended_us = (
        (tmp_path / "final" / "runs" / f"run_id={RUN}" / "part-0.parquet").stat().st_mtime_ns
    ) // 1_000
    assert store.sweep(ended_us + 24 * 3_600_000_000 - 1) == 0
    n_live = len(live_files(store))
    assert n_live > 5
    assert store.sweep(ended_us + 24 * 3_600_000_000) == n_live
    assert live_files(store) == []
    assert store.rows("SELECT * FROM evaluations ORDER BY ALL") == before
    store.finish_run(run_record(status="done"))
    assert store.rows("SELECT * FROM evaluations ORDER BY ALL") == before


def test_leftovers_of_killed_writers_go_after_an_hour(tmp_path):
    store = ParquetStore(tmp_path)
    store.publish(RUN, 0, generation_tables())
    folder = tmp_path / "live" / "evaluations" / f"run_id={RUN}"
    leftover = folder / ".g00001.parquet.abc.tmp"
    leftover.write_bytes(b"PAR1")
    written_us = leftover.stat().st_mtime_ns // 1_000
    sweep(tmp_path, written_us + 3_600_000_000 - 1, 0)
    assert leftover.exists()
    sweep(tmp_path, written_us + 3_600_000_000, 0)
    assert not leftover.exists()
    assert len(list(folder.iterdir())) == 1
