"""Ids of runs, and what importing the store costs."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

import tasks.store
from convergence_core.errors import StoreError
from tasks.store import SqliteJournal, label_of, new_run_id
from tasks.store.layout import check_run_id

TIMES = st.integers(0, 2**48 * 1_000 - 1)
BYTES = st.binary(min_size=10, max_size=10)


def test_a_known_ulid():
    # The example of the ULID specification: 1469922850259 ms.
    assert new_run_id(1_469_922_850_259_000, bytes(10)) == "01ARZ3NDEK" + "0" * 16
    assert new_run_id(2**48 * 1_000 - 1, b"\xff" * 10) == "7" + "Z" * 25


@given(first=TIMES, second=TIMES, noise=BYTES, more=BYTES)
def test_ids_sort_by_time_and_are_file_names(first, second, noise, more):
    one, two = new_run_id(first, noise), new_run_id(second, more)
    if first // 1_000 < second // 1_000:
        assert one < two
    assert check_run_id(one) == one
    assert len(one) == 26


@pytest.mark.parametrize(("now_us", "noise"), [(0, bytes(9)), (-1, bytes(10)), (2**60, bytes(10))])
def test_wrong_times_and_noise_are_refused(now_us, noise):
    with pytest.raises(ValueError, match="run id"):
        new_run_id(now_us, noise)


def test_the_label_ends_like_the_id():
    assert label_of("support_bot", "01ARZ3NDEKTSV4RRFFQ69G7F3A") == "support_bot-7f3a"


def test_the_protocols_load_neither_duckdb_nor_sqlite():
    code = (
        "import sys, convergence_core.ports, tasks.store.tables.rows\n"
        "print(sorted({'duckdb', 'apsw', 'polars', 'sqlite3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_exists():
    assert sorted(tasks.store.__all__) == tasks.store.__all__
    for name in tasks.store.__all__:
        assert getattr(tasks.store, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        _ = tasks.store.nothing


def test_a_journal_is_not_used_in_a_fork(tmp_path, monkeypatch):
    journal = SqliteJournal(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: -1)
        with pytest.raises(StoreError, match="fork"):
            journal.totals("R")
    journal.close()
