"""Processes that share a journal pay each call once, and whoever is killed pays little twice."""

import os
import random
import select
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.store.journal.postgres_journal import PostgresJournal
from tasks.store.journal.sql_journal import Journal
from tasks.store.journal.sqlite_journal import SqliteJournal, open_journal
from tests.store.asker import RUN
from tests.store.postgres_server import postgres_server
from tests.support.children import start_child

N_BATCH = 8


def paid_by_processes(path: Path, n_processes: int, n_calls: int, url: str = "") -> list[str]:
    """Let processes make the same calls at the same time; return the calls that were paid."""
    starting_gun = path / "starting_gun"
    os.mkfifo(starting_gun)
    arguments = (path / "store", path / "paid", n_calls, N_BATCH, url, starting_gun)
    children = [start_child("tests.store.asker", *arguments) for _ in range(n_processes)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    opened = os.open(starting_gun, os.O_RDWR)  # whoever waits to read it goes on now
    for child in children:
        child.communicate()
        assert child.returncode == 0
    os.close(opened)
    return sorted((path / "paid").read_text().split(), key=int)


def test_eight_processes_that_share_a_journal_call_each_of_2000_cells_once(tmp_path):
    paid = paid_by_processes(tmp_path, 8, 2_000)
    assert paid == [str(number) for number in range(2_000)]
    with SqliteJournal(tmp_path / "store") as journal:
        totals = journal.totals(RUN)
        with journal._database.reading() as connection:
            owners = connection.execute("SELECT DISTINCT owner FROM calls").fetchall()
    assert (totals.n_attempts, totals.n_done, totals.cost_usd) == (2_000, 2_000, 2_000.0)
    assert len(owners) > 1, "one process did it all before the others began"


@pytest.mark.slow
def test_processes_that_share_a_postgres_call_each_cell_once(tmp_path):
    url = postgres_server().new_schema()
    paid = paid_by_processes(tmp_path, 4, 400, url)
    assert paid == [str(number) for number in range(400)]
    with PostgresJournal(url) as journal:
        totals = journal.totals(RUN)
    assert (totals.n_attempts, totals.n_done, totals.cost_usd) == (400, 400, 400.0)


@contextmanager
def opened(path: Path, url: str) -> Iterator[Journal]:
    journal = open_journal(path / "store", url or None)
    yield journal
    journal.close()


def n_sessions(url: str) -> int:
    """Return how many clients a Postgres server has; 0 without one."""
    if not url:
        return 0
    import psycopg

    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def kill_and_resume(
    path: Path, rng: random.Random, n_kills: int, n_calls: int, url: str = ""
) -> None:
    ledger = path / "paid"
    arguments = (path / "store", ledger, n_calls, N_BATCH, url)
    acknowledged: set[str] = set()
    n_before = n_sessions(url)
    for round_ in range(n_kills + 1):
        # A server may still carry out what a killed client sent last: the client is gone when its session is.
        while n_sessions(url) > n_before:
            time.sleep(0.01)
        with opened(path, url) as journal:
            journal.abandon(RUN)
            stored = journal.answers([f"key-{n}" for n in acknowledged])
            assert len(stored) == len(acknowledged), "an acknowledged answer is gone"
        paid_before = Counter(ledger.read_text().split()) if round_ else Counter()
        with start_child("tests.store.asker", *arguments) as child:
            assert child.stdout is not None
            if round_ < n_kills:
                select.select([child.stdout], [], [], 30)
                select.select([], [], [], rng.uniform(0, 0.02))
                child.send_signal(signal.SIGKILL)
            output = child.stdout.read()
        whole_lines = output.rpartition("\n")[0]
        again = Counter(ledger.read_text().split()) - paid_before
        assert not acknowledged & again.keys(), "an acknowledged call was paid again"
        acknowledged |= set(whole_lines.split())
    assert acknowledged == {str(n) for n in range(n_calls)}
    n_paid = len(ledger.read_text().split())
    with opened(path, url) as journal:
        totals = journal.totals(RUN)
    n_lost = totals.n_failed
    assert totals.n_done == n_calls
    assert n_paid - n_calls <= n_lost <= n_kills * N_BATCH
    assert totals.maybe_usd == n_lost


def test_kills_lose_no_acknowledged_answer_and_flag_what_may_be_paid_twice(tmp_path):
    kill_and_resume(tmp_path, random.Random(3), n_kills=8, n_calls=2_000)


@pytest.mark.slow
def test_kills_lose_no_acknowledged_answer_in_postgres(tmp_path):
    url = postgres_server().new_schema()
    kill_and_resume(tmp_path, random.Random(5), n_kills=4, n_calls=1_000, url=url)


@pytest.mark.slow
def test_many_kills_lose_no_acknowledged_answer(tmp_path):
    kill_and_resume(tmp_path, random.Random(4), n_kills=100, n_calls=30_000)


def lose_shared_memory(store: Path) -> None:
    (store / "journal.sqlite-shm").unlink()


def tear_the_end_of_the_wal(store: Path) -> None:
    with (store / "journal.sqlite-wal").open("ab") as file:
        file.write(b"\x01" * 3_000)


@pytest.mark.parametrize("damage", [lose_shared_memory, tear_the_end_of_the_wal])
def test_what_was_acknowledged_survives_the_damage_of_a_crash(tmp_path, damage):
    child = start_child("tests.store.asker", tmp_path / "store", tmp_path / "paid", 20_000, 1)
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        acknowledged = child.stdout.read().split()
    damage(tmp_path / "store")
    with SqliteJournal(tmp_path / "store") as journal:
        found = journal.answers([f"key-{n}" for n in acknowledged])
    assert len(found) == len(acknowledged)
