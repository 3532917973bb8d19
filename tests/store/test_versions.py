"""Stores and libraries of other versions: refused by name, or served more slowly."""

import json

import pytest

from convergence_core.errors import StoreFormatError, StoreWriteError
from convergence_core.ports import CallIntent
from convergence_core.records import sha256_hex
from tasks.store import sqlite
from tasks.store.feedback.schema import FEEDBACK
from tasks.store.journal.schema import POSTGRES_JOURNAL, SQLITE_JOURNAL
from tasks.store.journal.sqlite_journal import SqliteJournal
from tasks.store.policy.experience_store import POLICY
from tasks.store.runtime.schema import RUNTIME
from tasks.store.tables.parquet_store import ParquetStore
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
        ("3.52.0", True),
        ("3.54.1", True),
        ("4.0.0", True),
    ],
)
def test_versions_that_can_lose_commits_in_wal_mode_are_known(version, sound):
    assert sqlite.wal_is_sound(version) is sound


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


@pytest.mark.parametrize("version", [1, 99])
def test_a_database_of_another_version_is_refused_by_name(tmp_path, version):
    with SqliteJournal(tmp_path) as journal, journal._database.transaction() as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(StoreFormatError, match=rf"journal.* has version {version}, .*reads 3\."):
        SqliteJournal(tmp_path)


def test_a_journal_that_could_not_sync_is_not_used_again(tmp_path, monkeypatch):
    journal = SqliteJournal(tmp_path)

    def fail(descriptor):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("tasks.store.sqlite.os.fsync", fail)
        with pytest.raises(StoreWriteError, match="Input/output error"):
            journal.claim([INTENT], "me")
    with pytest.raises(StoreWriteError, match="Input/output error"):
        journal.totals("R")
    journal.close()


@pytest.mark.parametrize(
    ("schema", "version", "digest"),
    [
        (SQLITE_JOURNAL, 3, "bb88bee6d576"),
        (POSTGRES_JOURNAL, 2, "3b6081057d6a"),
        (RUNTIME, 5, "47170da6f921"),
        (FEEDBACK, 6, "710b945af828"),
        (POLICY, 2, "765203fe6e21"),
    ],
)
def test_a_changed_table_raises_the_version_of_its_database(schema, version, digest):
    script = "".join(table.script for table in schema.tables)
    assert (schema.version, sha256_hex(script)[:12]) == (version, digest)
