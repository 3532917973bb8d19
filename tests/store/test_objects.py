"""A store on object storage: published whole, never replaced, fetched elsewhere, read by DuckDB.

The server is ours and speaks S3's protocol; with ``moto`` installed, its server is asked as well.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from convergence_core.errors import StoreError, StoreFormatError, StoreWriteError
from convergence_core.store import ParquetStore
from convergence_core.store.expiry import remove
from convergence_core.store.mirror import Mirror, bind, bound_to
from tasks.loading import load
from tasks.opening import prepare_run
from tasks.storage import ready_store
from tests.docs.test_documents import blocks
from tests.support.object_server import ObjectServer, object_server
from tests.support.optimizations import start_command, write_project
from tests.support.preferring_runs import play
from tests.support.store_rows import RUN, final_tables, generation_tables, run_record

pytest.importorskip("obstore", reason="needs obstore: pip install '.[objects]'")

URL = "s3://results/nightly"
SECRET = "s3cr3t/5e2b61f0a9"  # noqa: S105 - of a server that lives as long as the tests


def use(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    with object_server() as (kept, endpoint):
        use(monkeypatch, endpoint)
        yield kept


def opened(folder: Path) -> ParquetStore:
    bind(folder, URL)
    store = ParquetStore(folder)
    assert store.mirror is not None
    store.mirror.pull()
    return store


def write(store: ParquetStore, *, n_generations: int = 2, done: bool = True) -> None:
    store.save_run(run_record())
    for generation in range(n_generations):
        store.publish(RUN, generation, generation_tables(generation=generation))
    if done:
        store.publish(RUN, -1, final_tables())
        store.finish_run(run_record(status="done", n_generations=n_generations))


def answers(store: ParquetStore) -> list[dict[str, object]]:
    return store.rows("select * exclude (prefect_flow_run_id) from generations order by all")


def names(kept: ObjectServer) -> set[str]:
    return {path.removeprefix("results/nightly/") for path in kept.objects}


def test_another_machine_reads_what_this_one_published(server: ObjectServer, tmp_path: Path):
    here = opened(tmp_path / "here")
    write(here, done=False)
    there = opened(tmp_path / "there")
    assert answers(there) == answers(here)
    assert there.checkpoint(RUN) == here.checkpoint(RUN)
    assert there.run(RUN).status == "running"
    write(here)
    assert there.mirror is not None
    assert there.mirror.pull() > 0
    assert there.run(RUN).status == "done"
    assert answers(there) == answers(here)
    assert there.mirror.pull() == 0
    assert there.check() == []


def test_markers_come_last_and_no_file_is_replaced_but_a_runs_row(
    server: ObjectServer, tmp_path: Path
):
    write(opened(tmp_path))
    put = [path for method, path, _ in server.requests if method == "PUT"]
    of_first = [path for path in put if "g00000" in path]
    assert "/live/generations/" in of_first[-1]
    assert "/final/runs/" in put[-1]
    twice = {path for path in put if put.count(path) > 1}
    assert twice <= {f"results/nightly/live/runs/run_id={RUN}/run.parquet"}


def test_a_second_writer_of_a_generation_changes_nothing(server: ObjectServer, tmp_path: Path):
    write(opened(tmp_path / "one"), n_generations=1, done=False)
    before = dict(server.objects)
    bind(tmp_path / "two", URL)
    late = ParquetStore(tmp_path / "two")
    late.publish(RUN, 0, generation_tables())
    refused = [path for _, path, status in server.requests if status == 412]
    assert any("/live/generations/" in path for path in refused)
    assert dict(server.objects) == before


def test_what_an_uncommitted_try_left_is_replaced(server: ObjectServer, tmp_path: Path):
    store = opened(tmp_path / "one")
    tables = generation_tables()
    marker = f"results/nightly/live/generations/run_id={RUN}/g00000.parquet"
    store.publish(RUN, 0, tables)
    del server.objects[marker]  # killed before it
    other = opened(tmp_path / "two")
    other.publish(RUN, 0, generation_tables(n=4))
    assert marker in server.objects
    third = opened(tmp_path / "three")
    assert third.rows("select count(*) as n from evaluations") == [{"n": 4}]


def test_sweeping_retention_and_reopening_reach_the_address(server: ObjectServer, tmp_path: Path):
    store = opened(tmp_path)
    write(store)
    assert any(name.startswith("live/evaluations/") for name in names(server))
    store.sweep(2**62)
    assert not any(name.startswith("live/evaluations/") for name in names(server))
    store.reopen_run(store.run(RUN))
    assert f"final/runs/run_id={RUN}/part-0.parquet" not in names(server)
    assert f"live/generations/run_id={RUN}/g00001.parquet" in names(server)
    remove(tmp_path, RUN)
    assert names(server) == {"store.json"}


def test_what_cannot_be_published_is_an_error_and_invisible_here(
    server: ObjectServer, tmp_path: Path
):
    store = opened(tmp_path)
    write(store, n_generations=1, done=False)
    server.refuses = True
    with pytest.raises(StoreWriteError, match="credentials") as caught:
        store.publish(RUN, 1, generation_tables(generation=1))
    assert SECRET not in str(caught.value)
    server.refuses = False
    assert [row["generation"] for row in store.rows("select generation from generations")] == [0]
    store.publish(RUN, 1, generation_tables(generation=1))
    assert answers(opened(tmp_path / "elsewhere")) == answers(store)


def test_a_folder_that_was_local_is_pushed(server: ObjectServer, tmp_path: Path):
    write(ParquetStore(tmp_path / "old"))
    bind(tmp_path / "old", URL)
    mirror = Mirror(tmp_path / "old", URL)
    assert mirror.pull() == 0
    assert mirror.push() > 0
    assert not any(name.startswith("live/") for name in names(server)), "the run is finished"
    assert mirror.push() == 0
    assert answers(opened(tmp_path / "new")) == answers(ParquetStore(tmp_path / "old"))


def test_a_folder_belongs_to_one_address(server: ObjectServer, tmp_path: Path):
    bind(tmp_path, URL)
    bind(tmp_path, URL)
    assert bound_to(tmp_path) == URL
    with pytest.raises(StoreFormatError, match=r"storage\.local"):
        bind(tmp_path, "s3://results/other")
    (tmp_path / "remote.json").write_text("[]")
    with pytest.raises(StoreFormatError, match=r"storage\.path"):
        bound_to(tmp_path)


def test_a_newer_store_is_refused(server: ObjectServer, tmp_path: Path):
    server.put("results/nightly/store.json", b'{"format": 99}', only_new=True)
    with pytest.raises(StoreFormatError, match="format 99"):
        opened(tmp_path)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from convergence_core.store.mirror import check_installed

    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(StoreError, match=r"pip install 'convergence-optimizer\[objects\]'"):
        check_installed()


@pytest.mark.slow
def test_a_run_publishes_there_and_another_machine_has_it(server: ObjectServer, tmp_path: Path):
    size = {"population_size": 3, "generations": 1}
    for machine in ("one", "two"):
        write_project(
            tmp_path / machine, storage={"path": URL}, optimization__evolution=size,
            evaluation__test_cases={"path": "cases.json", "holdout": 0.2},
        )  # fmt: skip
    run = prepare_run(load(tmp_path / "one/optimization.yaml"))
    result = play(run)
    there = ParquetStore(ready_store(load(tmp_path / "two/optimization.yaml")))
    (found,) = there.runs()
    assert (found.run_id, found.status) == (result.run_id, "done")
    assert not any("sqlite" in name for name in names(server)), "the journal stays"
    assert not any(SECRET.encode() in data for data, _ in server.objects.values())
    write_project(tmp_path / "reader", storage={"path": URL})
    done = start_command("store", "sync", "--publish", "--json", cwd=tmp_path / "reader")
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    assert json.loads(out)["n_published"] == 0
    assert ParquetStore(tmp_path / "reader/convergence-data").run(found.label).status == "done"


def test_duckdb_reads_the_address_itself_as_the_document_says(
    server: ObjectServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    store = opened(tmp_path)
    write(store)
    text = (Path(__file__).parents[2] / "docs/object-storage.md").read_text(encoding="utf-8")
    (snippet,) = blocks(text, "python")
    exec(compile(snippet, "object-storage.md", "exec"), {})  # noqa: S102 - our own document
    ((n, mean),) = store.query("select count(*), avg(reward) from evaluations").rows
    assert capsys.readouterr().out == f"({n}, {mean})\n"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("moto") is None, reason="needs moto: pip install 'moto[server,s3]'")
def test_another_server_agrees(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", f"from moto.server import main; main(['-p', '{port}'])"],
        env={**os.environ, "AWS_ACCESS_KEY_ID": "tester"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        transport = httpx.HTTPTransport(retries=20)
        with httpx.Client(transport=transport, timeout=60) as client:
            client.put(f"http://127.0.0.1:{port}/results").raise_for_status()
        use(monkeypatch, f"http://127.0.0.1:{port}")
        here = opened(tmp_path / "here")
        write(here)
        bind(tmp_path / "late", URL)
        ParquetStore(tmp_path / "late").publish(RUN, 0, generation_tables())
        there = opened(tmp_path / "there")
        assert answers(there) == answers(here)
        remove(tmp_path / "here", RUN)
        assert opened(tmp_path / "empty").runs() == []
    finally:
        process.terminate()
        process.wait()
