"""A disk that is full or read-only: a clear message, and nothing acknowledged is lost."""

import os
import subprocess

import pytest

from convergence_core.errors import StoreFormatError, StoreWriteError
from convergence_core.ports import CallIntent, Settlement
from tasks.store.journal.lease import Lease
from tasks.store.journal.sqlite_journal import SqliteJournal
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.store_rows import RUN, generation_tables, run_record

N_BALLAST = 1_000_000


def random_text(n: int) -> str:
    return os.urandom(n // 2).hex()


def test_a_full_disk_hides_the_generation_and_keeps_the_others(small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(N_BALLAST))
    store = ParquetStore(small_disk / "store")
    published: list[int] = []

    def fill() -> None:
        for generation in range(100):
            tables = generation_tables(generation=generation, text=random_text(60_000))
            store.publish(RUN, generation, tables)
            published.append(generation)

    with pytest.raises(StoreWriteError, match="disk is full") as caught:
        fill()
    assert ": No space left on device. The disk is full" in str(caught.value)
    assert store.rows("SELECT max(generation) AS g FROM evaluations") == [{"g": published[-1]}]
    assert list(store.path.rglob("*.tmp")) == []
    ballast.unlink()
    store.publish(RUN, published[-1] + 1, generation_tables(generation=published[-1] + 1))
    last = store.checkpoint(RUN)
    assert last is not None
    assert last.generation == published[-1] + 1
    assert store.check() == {}


def call(journal: SqliteJournal, number: int) -> None:
    key = str(number)
    intent = CallIntent(
        call_key=key,
        run_id=RUN,
        generation=0,
        eval_id=key,
        purpose="evaluation",
        provider="test",
        model=None,
        request_sha256="",
        lease_s=60.0,
    )
    (claim,) = journal.claim([intent], "me")
    journal.settle(
        [
            Settlement(
                call_key=key,
                attempt=claim.attempt,
                state="done",
                outcome=random_text(20_000),
                started_us=1,
                ended_us=2,
            )
        ]
    )


def test_a_full_disk_loses_no_acknowledged_answer(small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(N_BALLAST))
    journal = SqliteJournal(small_disk / "store")
    acknowledged: list[str] = []

    def fill() -> None:
        for number in range(1_000):
            call(journal, number)
            acknowledged.append(str(number))

    with pytest.raises(StoreWriteError, match="disk is full"):
        fill()
    assert len(acknowledged) > 10
    assert len(journal.answers(acknowledged)) == len(acknowledged)
    ballast.unlink()
    call(journal, -1)
    journal.close()
    with SqliteJournal(small_disk / "store") as again:
        assert len(again.answers([*acknowledged, "-1"])) == len(acknowledged) + 1
    assert ParquetStore(small_disk / "store").check() == {}


def test_an_export_to_a_full_disk_leaves_nothing(small_disk, tmp_path):
    store = ParquetStore(tmp_path / "store")
    sql = "SELECT hash(range) AS h FROM range(1_000_000)"
    with pytest.raises(StoreWriteError, match="disk is full"):
        store.export(sql, small_disk / "out.parquet")
    assert list(small_disk.iterdir()) == []


def test_a_read_only_store_can_be_read_and_says_why_it_cannot_be_written(small_disk):
    store = ParquetStore(small_disk / "store")
    store.publish(RUN, 0, generation_tables())
    SqliteJournal(store.path).close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    store = ParquetStore(store.path)
    assert store.rows("SELECT count(*) AS n FROM evaluations") == [{"n": 6}]
    for write in (
        lambda: store.publish(RUN, 1, generation_tables(generation=1)),
        lambda: store.save_run(run_record()),
        lambda: SqliteJournal(store.path),
        lambda: Lease(store.path, "bot").acquire(),
    ):
        with pytest.raises(StoreWriteError, match="Make the folder writable"):
            write()
    with pytest.raises(StoreWriteError, match="Make the folder writable"):
        store.export("SELECT 1", small_disk / "out.parquet")


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    for opened in (ParquetStore, SqliteJournal):
        with pytest.raises(StoreFormatError, match=r"thesis\.txt"):
            opened(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_files_are_for_their_owner_alone(tmp_path):
    root = tmp_path / "deep/store"
    store = ParquetStore(root)
    store.save_run(run_record())
    store.publish(RUN, 0, generation_tables())
    SqliteJournal(root).close()
    files = [path for path in root.rglob("*") if path.is_file()]
    folders = [root.parent, root, *(path for path in root.rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    assert len(files) >= 9
