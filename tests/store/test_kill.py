"""kill -9 at any moment: nothing acknowledged is lost, nothing is there twice or by half."""

import random
import select
import signal
from pathlib import Path

import pytest

from tasks.store.tables.parquet_store import ParquetStore
from tests.support.children import run_child, start_child
from tests.support.store_rows import RUN, generation_tables

N_FILES = 6  # payloads, candidates, evaluations, estimates, attempts, generations


def visible(path: Path) -> list[int]:
    """Return the visible generations after having checked that each is whole."""
    store = ParquetStore(path)
    generations = [r["generation"] for r in store.rows("FROM generations ORDER BY generation")]
    for table in ("evaluations", "candidates", "attempts"):
        found = store.rows(f"SELECT * FROM {table} ORDER BY ALL")  # noqa: S608 - a test's SQL
        expected = [
            row for g in generations for row in generation_tables(generation=int(str(g)))[table]
        ]
        assert len(found) == len(expected), table
    return [int(str(generation)) for generation in generations]


def kill_randomly(path: Path, rng: random.Random, n_kills: int, n_generations: int) -> None:
    acknowledged = -1
    for _ in range(n_kills):
        with start_child("tests.store.publisher", path, RUN, n_generations, 0) as child:
            assert child.stdout is not None
            for _ in range(rng.randint(1, 2)):
                line = child.stdout.readline()
                acknowledged = int(line) if line else acknowledged
            # A moment within the next publication, which takes some 20 ms.
            select.select([child.stdout], [], [], rng.uniform(0, 0.02))
            child.send_signal(signal.SIGKILL)
            rest = child.stdout.read().split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        generations = visible(path)
        assert generations == list(range(len(generations)))
        assert len(generations) > acknowledged
    assert ParquetStore(path).check() == {}


@pytest.mark.slow
def test_random_kills_lose_nothing(tmp_path):
    kill_randomly(tmp_path, random.Random(1), n_kills=15, n_generations=500)


@pytest.mark.parametrize(
    "operation",
    [
        *range(1, 2 * N_FILES + 1, 3),
        *(
            pytest.param(operation, marks=pytest.mark.slow)
            for operation in range(1, 2 * N_FILES + 1)
            if operation % 3 != 1
        ),
    ],
)
def test_a_kill_between_any_two_files_leaves_a_whole_store(tmp_path, operation):
    with start_child("tests.store.publisher", tmp_path, RUN, 1, operation) as child:
        output, _ = child.communicate()
    assert (child.returncode, output) == (-signal.SIGKILL, "")
    assert visible(tmp_path) == ([0] if operation == 2 * N_FILES else [])
    assert run_child("tests.store.publisher", tmp_path, RUN, 2, 0)[-1] == "1"
    assert visible(tmp_path) == [0, 1]


def test_tables_of_a_killed_try_do_not_outlive_it(tmp_path):
    store = ParquetStore(tmp_path)
    broken = generation_tables()
    broken["generations"] = [{**broken["generations"][0], "raw_best_reward": "high"}]
    with pytest.raises(ValueError, match="raw_best_reward"):
        store.publish(RUN, 0, broken)
    tables = generation_tables()
    tables["payloads"] = []
    store.publish(RUN, 0, tables)
    assert store.rows("SELECT count(*) AS n FROM payloads") == [{"n": 0}]
