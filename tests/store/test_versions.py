"""Stores and libraries of other versions: refused by name, or served more slowly."""

import json
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from convergence_core.errors import StoreFormatError, StoreWriteError
from convergence_core.ports import CallIntent
from convergence_core.records import Usage, sha256_hex
from tasks.store import ParquetStore, SqliteJournal, sqlite
from tasks.store.database import SqlTable
from tasks.store.feedback.schema import FEEDBACK
from tasks.store.journal.schema import POSTGRES_JOURNAL, SQLITE_JOURNAL
from tasks.store.policy.experience_store import POLICY
from tasks.store.runtime.schema import RUNTIME
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


VERSION_1 = """
CREATE TABLE calls(
  call_key TEXT PRIMARY KEY, state TEXT NOT NULL, owner TEXT NOT NULL, lease_us INTEGER NOT NULL,
  latest_id INTEGER NOT NULL, answer_id INTEGER, request_sha256 TEXT NOT NULL, outcome TEXT
);
CREATE TABLE attempts(
  id INTEGER PRIMARY KEY, previous_id INTEGER, call_key TEXT NOT NULL, attempt INTEGER NOT NULL,
  run_id TEXT NOT NULL, eval_id TEXT NOT NULL, purpose TEXT NOT NULL, generation INTEGER,
  provider TEXT NOT NULL, model TEXT, state TEXT NOT NULL, error_type TEXT, error TEXT,
  tokens_in INTEGER, tokens_out INTEGER, cost_usd REAL, max_usd REAL,
  maybe_usd REAL NOT NULL DEFAULT 0, started_us INTEGER NOT NULL, ended_us INTEGER
);
CREATE INDEX attempts_of_generation ON attempts(run_id, generation);
CREATE UNIQUE INDEX cache_hits ON attempts(call_key, run_id, eval_id, purpose)
  WHERE state = 'cached';
CREATE TABLE leases(
  system TEXT PRIMARY KEY, owner TEXT NOT NULL, pid INTEGER NOT NULL, host TEXT NOT NULL,
  machine TEXT NOT NULL, pid_started TEXT NOT NULL, acquired_us INTEGER NOT NULL,
  expires_us INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO calls VALUES ('k', 'done', 'o', 9, 1, 1, '', '{"value":1}'),
                         ('l', 'started', 'o', 9, 2, NULL, '', NULL);
INSERT INTO attempts VALUES
  (1, NULL, 'k', 1, 'R', 'e', 'evaluation', 0, 'test', 'm', 'done', NULL, NULL, 3, 4, 0.5, NULL, 0,
   5, 6),
  (2, NULL, 'l', 1, 'R', 'f', 'evaluation', 0, 'test', NULL, 'started', NULL, NULL, NULL, NULL,
   NULL, NULL, 0, 7, NULL),
  (3, NULL, 'k', 1, 'R', 'g', 'evaluation', 0, 'test', 'm', 'cached', NULL, NULL, NULL, NULL, 0.0,
   NULL, 0, 8, 8);
PRAGMA user_version = 1;
"""


@pytest.fixture
def version_1(tmp_path):
    """A store whose journal the first version left in the middle of a run."""
    ParquetStore(tmp_path).save_run(run_record())
    connection = apsw.Connection(str(tmp_path / "journal.sqlite"))
    connection.pragma("journal_mode", "wal")
    connection.execute(VERSION_1)
    connection.close()
    return tmp_path


def columns_of(path: Path) -> dict[str, set[tuple[object, ...]]]:
    connection = apsw.Connection(str(path / "journal.sqlite"))
    tables = ("calls", "attempts", "activity", "leases")
    found = {t: connection.execute(f"PRAGMA table_info({t})").fetchall() for t in tables}
    connection.close()
    return {t: {tuple(row[1:4]) for row in rows} for t, rows in found.items()}


def test_a_journal_of_version_1_becomes_one_of_this_and_keeps_its_answers(version_1, tmp_path):
    with SqliteJournal(version_1) as journal:
        totals = journal.totals("R")
        assert (totals.n_attempts, totals.n_in_flight, totals.cost_usd) == (2, 1, 0.5)
        assert (totals.tokens, totals.active_s) == (7, 0.0)
        (claim,) = journal.claim([replace(INTENT, eval_id="g")], "me")
        assert claim.answer is not None
        assert (claim.state, claim.answer.outcome) == ("hit", {"value": 1})
        assert claim.answer.usage == Usage(prompt_tokens=3, completion_tokens=4)
        assert [lost.call_key for lost in journal.abandon("R")] == ["l"]
        (claim,) = journal.claim([replace(INTENT, call_key="l", eval_id="f")], "me")
        assert (claim.state, claim.attempt) == ("granted", 2)
        rows = journal.attempts("R", generation=0)
        assert [row["state"] for row in rows] == ["done", "cached", "failed", "started"]
        assert [row["payer_run_id"] for row in rows] == [None] * 4
    SqliteJournal(tmp_path / "new").close()
    assert columns_of(version_1) == columns_of(tmp_path / "new")
    assert ParquetStore(version_1).check() == []


def test_a_migration_that_fails_leaves_version_1_as_it_was(version_1, monkeypatch):
    before = (version_1 / "journal.sqlite").read_bytes()
    monkeypatch.setattr(SqlTable, "script", lambda *_: "CREATE TABLE calls(oops)")
    with pytest.raises(apsw.SQLError, match="calls"):
        SqliteJournal(version_1)
    assert (version_1 / "journal.sqlite").read_bytes() == before
    monkeypatch.undo()
    with SqliteJournal(version_1) as journal:
        assert journal.totals("R").n_attempts == 2


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
        (SQLITE_JOURNAL, 3, "216d36796b70"),
        (POSTGRES_JOURNAL, 2, "5c3715bd6247"),
        (RUNTIME, 4, "faf54f56bd45"),
        (FEEDBACK, 6, "04463234afb1"),
        (POLICY, 2, "eebddd00ee3d"),
    ],
)
def test_a_changed_table_raises_the_version_by_which_databases_are_upgraded(
    schema, version, digest
):
    script = "".join(table.script(()) for table in schema.tables)
    assert (schema.version, sha256_hex(script)[:12]) == (version, digest)
