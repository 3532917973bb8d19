"""Stores and libraries of other versions: refused by name, or served more slowly."""

import json

import apsw
import pytest

from convergence_core.errors import StoreError, StoreFormatError, StoreWriteError
from convergence_core.store import ParquetStore, SqliteJournal, sqlite
from convergence_core.store.protocols import CallIntent
from tests.support.store_rows import run_record

INTENT = CallIntent(
    call_key="k",
    run_id="R",
    generation=0,
    eval_id="e",
    purpose="evaluation",
    provider="test",
    model=None,
    request_sha256="",
    lease_s=60.0,
)


@pytest.mark.parametrize(
    ("version", "sound"),
    [
        ("3.40.1", False),
        ("3.44.5", False),
        ("3.44.6", True),
        ("3.45.0", False),
        ("3.50.6", False),
        ("3.50.7", True),
        ("3.51.2", False),
        ("3.51.3", True),
        ("3.54.1", True),
        ("4.0.0", True),
    ],
)
def test_versions_that_can_lose_commits_in_wal_mode_are_known(version, sound):
    assert sqlite.wal_is_sound(version) is sound


def test_the_installed_sqlite_is_sound():
    assert sqlite.wal_is_sound(sqlite.library_version())


def test_an_unsound_sqlite_falls_back_to_a_rollback_journal(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "library_version", lambda: "3.40.1")
    with pytest.warns(RuntimeWarning, match=r"SQLite 3\.40\.1 can lose commits.*apsw"):
        journal = SqliteJournal(tmp_path)
    assert [claim.state for claim in journal.claim([INTENT], "me")] == ["granted"]
    with journal._database.reading() as connection:
        assert connection.pragma("journal_mode") == "delete"
        assert connection.pragma("synchronous") == 3
    assert not (tmp_path / "journal.sqlite-wal").exists()
    journal.close()


def test_a_store_of_a_newer_format_is_refused_by_name(tmp_path):
    ParquetStore(tmp_path).save_run(run_record())
    (tmp_path / "store.json").write_text(json.dumps({"format": 2}))
    for opened in (ParquetStore, SqliteJournal):
        with pytest.raises(StoreFormatError, match=r"format 2.*up to 1.*Upgrade"):
            opened(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[]", "not JSON", '{"format": "x"}'])
def test_a_marker_that_cannot_be_read_is_refused(tmp_path, text):
    (tmp_path / "store.json").write_text(text)
    with pytest.raises(StoreFormatError, match=r"store\.json|format x"):
        ParquetStore(tmp_path)


def test_a_journal_of_a_newer_version_is_refused(tmp_path):
    SqliteJournal(tmp_path).close()
    connection = apsw.Connection(str(tmp_path / "journal.sqlite"))
    connection.pragma("user_version", 2)
    connection.close()
    with pytest.raises(StoreFormatError, match=r"version 2.*up to 1.*Upgrade"):
        SqliteJournal(tmp_path)


def test_a_closed_journal_says_so(tmp_path):
    journal = SqliteJournal(tmp_path)
    journal.close()
    with pytest.raises(StoreError, match="closed"):
        journal.totals("R")


def test_a_journal_that_could_not_sync_is_not_used_again(tmp_path, monkeypatch):
    journal = SqliteJournal(tmp_path)

    def fail(descriptor):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("convergence_core.store.sqlite.os.fsync", fail)
        with pytest.raises(StoreWriteError, match="Input/output error"):
            journal.claim([INTENT], "me")
    with pytest.raises(StoreWriteError, match="Input/output error"):
        journal.totals("R")
    journal.close()
