"""Processes that share a journal pay each call once, and whoever is killed pays little twice."""

import random
import select
import signal
from collections import Counter
from pathlib import Path

import pytest

from convergence_core.store import SqliteJournal
from tests.store.asker import RUN
from tests.support.children import start_child

N_BATCH = 8


def test_processes_that_want_the_same_calls_pay_each_exactly_once(tmp_path):
    ledger = tmp_path / "paid"
    children = [
        start_child("tests.store.asker", tmp_path / "store", ledger, 300, N_BATCH)
        for _ in range(4)
    ]
    for child in children:
        child.communicate()
        assert child.returncode == 0
    assert sorted(ledger.read_text().split(), key=int) == [str(n) for n in range(300)]
    with SqliteJournal(tmp_path / "store") as journal:
        totals = journal.totals(RUN)
        assert (totals.n_attempts, totals.n_done, totals.cost_usd) == (300, 300, 300.0)


def kill_and_resume(path: Path, rng: random.Random, n_kills: int, n_calls: int) -> None:
    ledger = path / "paid"
    acknowledged: set[str] = set()
    for round_ in range(n_kills + 1):
        with SqliteJournal(path / "store") as journal:
            journal.abandon(RUN)
            stored = journal.answers([f"key-{n}" for n in acknowledged])
            assert len(stored) == len(acknowledged), "an acknowledged answer is gone"
        paid_before = Counter(ledger.read_text().split()) if round_ else Counter()
        with start_child("tests.store.asker", path / "store", ledger, n_calls, N_BATCH) as child:
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
    with SqliteJournal(path / "store") as journal:
        totals = journal.totals(RUN)
    n_lost = totals.n_failed
    assert totals.n_done == n_calls
    assert n_paid - n_calls <= n_lost <= n_kills * N_BATCH
    assert totals.maybe_usd == n_lost


def test_kills_lose_no_acknowledged_answer_and_flag_what_may_be_paid_twice(tmp_path):
    kill_and_resume(tmp_path, random.Random(3), n_kills=8, n_calls=2_000)


@pytest.mark.slow
def test_many_kills_lose_no_acknowledged_answer(tmp_path):
    kill_and_resume(tmp_path, random.Random(4), n_kills=100, n_calls=30_000)


def test_a_journal_survives_the_loss_of_its_shared_memory_file(tmp_path):
    child = start_child("tests.store.asker", tmp_path / "store", tmp_path / "paid", 20_000, 1)
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        acknowledged = child.stdout.read().split()
    (tmp_path / "store" / "journal.sqlite-shm").unlink()
    with SqliteJournal(tmp_path / "store") as journal:
        found = journal.answers([f"key-{n}" for n in acknowledged])
    assert len(found) == len(acknowledged)


def test_a_torn_end_of_the_wal_costs_only_what_was_not_acknowledged(tmp_path):
    child = start_child("tests.store.asker", tmp_path / "store", tmp_path / "paid", 20_000, 1)
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        acknowledged = child.stdout.read().split()
    wal = tmp_path / "store" / "journal.sqlite-wal"
    with wal.open("ab") as file:
        file.write(b"\x01" * 3_000)
    with SqliteJournal(tmp_path / "store") as journal:
        found = journal.answers([f"key-{n}" for n in acknowledged])
    assert len(found) == len(acknowledged)
