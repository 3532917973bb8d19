"""Ids of runs, and what importing the store costs."""

import os

import pytest
from hypothesis import given, strategies as st

from convergence_core.errors import StoreError
from tasks.store.journal.sqlite_journal import SqliteJournal
from tasks.store.layout import check_run_id, new_run_id

TIMES = st.integers(0, 2**48 * 1_000 - 1)
BYTES = st.binary(min_size=10, max_size=10)


@given(first=TIMES, second=TIMES, noise=BYTES, more=BYTES)
def test_ids_sort_by_time_and_are_file_names(first, second, noise, more):
    one, two = new_run_id(first, noise), new_run_id(second, more)
    if first // 1_000 < second // 1_000:
        assert one < two
    assert check_run_id(one) == one
    assert len(one) == 26


def test_a_journal_is_not_used_in_a_fork(tmp_path, monkeypatch):
    journal = SqliteJournal(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: -1)
        with pytest.raises(StoreError, match="fork"):
            journal.totals("R")
    journal.close()
