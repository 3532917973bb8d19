"""A damaged file is named, to people and to callers, and never skipped."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import StoreDamagedError
from tasks.store.journal.sqlite_journal import SqliteJournal
from tasks.store.tables.parquet_store import ParquetStore
from tests.store.journals import Clock, intent, settled
from tests.support.store_rows import RUN, final_tables, generation_tables, run_record


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def flipped(path: Path) -> None:
    """Damage the pages and leave the footer, which a count reads alone."""
    content = bytearray(path.read_bytes())
    content[20:200] = bytes(byte ^ 0x55 for byte in content[20:200])
    path.write_bytes(content)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A store that no test changes; building one takes a third of a second."""
    store = ParquetStore(tmp_path_factory.mktemp("built") / "it's a store")
    store.save_run(run_record())
    for generation in range(2):
        store.publish(RUN, generation, generation_tables(generation=generation, n=40))
    store.publish(RUN, -1, final_tables())
    return store.path


@pytest.fixture
def store(built, tmp_path):
    return ParquetStore(shutil.copytree(built, tmp_path / built.name))


def file_of(store: ParquetStore, table: str, name: str = "g00001.parquet") -> Path:
    return store.path / "live" / table / f"run_id={RUN}" / name


@pytest.mark.parametrize("damage", [emptied, halved, zeroed, flipped])
def test_check_names_a_damaged_file(store, damage):
    damage(file_of(store, "evaluations"))
    ((path, reason),) = store.check().items()
    assert path == file_of(store, "evaluations")
    assert reason


def test_a_whole_store_has_nothing_to_report(store):
    SqliteJournal(store.path).close()
    assert store.check() == {}
    store.finish_run(run_record(status="done"))
    assert store.check() == {}
    assert ParquetStore(store.path.parent / "none").check() == {}


@pytest.mark.parametrize("damage", [emptied, halved, zeroed, flipped])
def test_readers_raise_and_name_the_file(store, damage):
    damage(file_of(store, "evaluations"))
    with pytest.raises(StoreDamagedError, match=r"evaluations/run_id=.*g00001\.parquet"):
        store.rows("SELECT max(eval_id), max(error), max(call_key), max(case_id) FROM evaluations")


@pytest.mark.parametrize("damage", [emptied, halved, zeroed])
def test_a_damaged_checkpoint_or_run_is_named(store, damage):
    damage(file_of(store, "generations"))
    with pytest.raises(StoreDamagedError, match=r"generations/run_id=.*g00001\.parquet"):
        store.checkpoint(RUN)
    damage(file_of(store, "runs", "run.parquet"))
    with pytest.raises(StoreDamagedError, match=r"run\.parquet"):
        store.runs()


@pytest.mark.parametrize(
    ("table", "is_finished"),
    [("generations", False), ("attempts", True)],
)
def test_no_flipped_bit_stays_unseen(store, table, is_finished):
    file = file_of(store, table, "run.parquet" if table == "runs" else "g00001.parquet")
    if is_finished:
        store.finish_run(run_record(status="done"))
        file = store.path / "final" / table / f"run_id={RUN}" / "part-0.parquet"
    whole = file.read_bytes()
    for at in range(3, len(whole), len(whole) // 4):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert file in store.check(), f"byte {at} of {len(whole)}"
        with pytest.raises(StoreDamagedError, match=file.name):
            ParquetStore(store.path).rows(f"FROM {table}")
    file.write_bytes(whole)
    assert store.check() == {}


@pytest.mark.parametrize("table", ["evaluations", "attempts"])
@pytest.mark.parametrize("is_finished", [False, True])
def test_a_missing_file_is_named_by_check_and_by_a_query_that_needs_it(store, table, is_finished):
    file = file_of(store, table)
    if is_finished:
        store.finish_run(run_record(status="done"))
        file = store.path / "final" / table / f"run_id={RUN}" / "part-0.parquet"
    file.unlink()
    assert [*store.check()] == [file]
    with pytest.raises(StoreDamagedError, match=f"{table}/.*{file.name} .*is missing"):
        store.rows(f"FROM {table}")
    assert store.rows("SELECT count(*) AS n FROM candidates") == [{"n": 4}]


def test_a_missing_commit_marker_is_named_when_a_later_one_is_there(store):
    file = file_of(store, "generations", "g00000.parquet")
    file.unlink()
    assert file in store.check()
    with pytest.raises(StoreDamagedError, match=r"g00000\.parquet"):
        store.rows("SELECT count(*) FROM generations")


def test_check_names_a_damaged_journal(store):
    journal = store.path / "journal.sqlite"
    journal.write_bytes(b"no database" * 1_000)
    assert [*store.check()] == [journal]
    with pytest.raises(StoreDamagedError, match=r"journal\.sqlite"):
        SqliteJournal(store.path)


@pytest.fixture
def paid(tmp_path):
    """A store whose journal holds attempts of every kind, and when it is."""
    clock, root = Clock(), tmp_path / "paid"
    ParquetStore(root).save_run(run_record())
    with SqliteJournal(root, now_us=clock) as journal:

        def claim(key: str, eval_id: str, **values: Any) -> None:
            journal.claim([intent(call_key=key, eval_id=eval_id, **values)], "me")

        claim("a", "first", max_usd=0.5, max_tokens=100)
        journal.settle([settled(call_key="a", outcome="é", ended_us=8, cost_usd=0.25)])
        claim("b", "failing")
        outcome = {"error_type": "timeout", "message": "é"}
        journal.settle([settled(call_key="b", state="failed", outcome=outcome)])
        claim("a", "cached", run_id="S")
        claim("a", "newer", run_id="T", fresh_since_us=10)
        journal.settle([settled(call_key="a", attempt=2, outcome="new", ended_us=20)])
        claim("c", "under way", max_usd=0.75)
        claim("d", "lost", run_id="S", max_usd=0.75, max_tokens=7)
        assert len(journal.abandon("S")) == 1
    return ParquetStore(root), clock


def ledger_of(store: ParquetStore, clock: Clock) -> list[object]:
    """Return what the journal says of attempts; how long runs were active is under no digest."""
    with SqliteJournal(store.path, now_us=clock) as journal:
        attempts = [journal.attempts(run, generation=None, all_generations=True) for run in "RST"]
        answers = journal.answers(["a", "b", "c", "d"])
        totals = [replace(journal.totals(run), active_s=0.0) for run in "RST"]
        return [*attempts, answers, *totals]


def test_no_flipped_bit_of_the_journal_changes_what_is_read_unseen(paid):
    store, clock = paid
    path = store.path / "journal.sqlite"
    whole, expected = path.read_bytes(), ledger_of(store, clock)
    assert store.check() == {}
    for n, at in enumerate([at for at, byte in enumerate(whole) if byte][::97]):
        for beside in store.path.glob("journal.sqlite-*"):
            beside.unlink()
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << n % 8]) + whole[at + 1 :])
        assert store.check() or ledger_of(store, clock) == expected, f"bit {n % 8} of byte {at}"


@pytest.mark.parametrize(
    ("change", "row"),
    [
        (
            "UPDATE attempts SET cost_usd = 0.26 WHERE eval_id = 'first'",
            "first, attempt 1 of call a",
        ),
        ("UPDATE attempts SET error = '{}' WHERE call_key = 'b'", "failing, attempt 1 of call b"),
        ("UPDATE calls SET outcome = '\"n3w\"'", "newer, attempt 2 of call a"),
        ("UPDATE attempts SET maybe_usd = 0 WHERE call_key = 'd'", "lost, attempt 1 of call d"),
        ("UPDATE attempts SET state = 'cached', attempt = 2 WHERE eval_id = 'cached'", "cached, "),
        (
            "UPDATE attempts SET provider = CAST(x'74ff' AS TEXT) WHERE eval_id = 'first'",
            "first, ",
        ),
    ],
)
def test_a_changed_row_of_the_journal_is_named_by_check_and_by_who_resumes(paid, change, row):
    store, clock = paid
    with SqliteJournal(store.path, now_us=clock) as journal:
        with journal._database.transaction() as connection:
            connection.execute(change)
        refusals = []
        for run in "RST":
            try:
                journal.abandon(run)
            except StoreDamagedError as error:
                refusals.append(str(error))
    (refusal,) = refusals
    assert f", evaluation {row}" in refusal
    assert "Restore the journal from a backup" in refusal
    assert store.check() == {store.path / "journal.sqlite": refusal}
