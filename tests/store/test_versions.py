"""Stores and libraries of other versions: refused by name, or served more slowly."""

import json

import pytest

from convergence_core.errors import StoreError, StoreFormatError, StoreWriteError
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


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.51.2"])
def test_a_sqlite_that_can_lose_commits_is_refused(tmp_path, monkeypatch, version):
    monkeypatch.setattr("apsw.sqlite_lib_version", lambda: version)
    with pytest.raises(StoreError, match=rf"3\.51\.3 or later, but is {version}.*apsw"):
        SqliteJournal(tmp_path)


@pytest.mark.parametrize("version", ["3.51.3", "3.52.0", "4.0.0"])
def test_a_sound_sqlite_is_accepted(monkeypatch, version):
    monkeypatch.setattr("apsw.sqlite_lib_version", lambda: version)
    assert sqlite.checked_version() == version


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
