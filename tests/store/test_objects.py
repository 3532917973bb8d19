"""A store on object storage: published whole, never replaced, fetched elsewhere, read by DuckDB.

Our own server speaks S3's protocol and Google's. Azurite, which is Microsoft's, speaks Azure's, and moto
S3's, where they are installed.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

from convergence_core.errors import StoreFormatError, StoreWriteError
from tasks.inputs.loader import load
from tasks.inputs.storage import ready_store
from tasks.run.opener import prepare_run
from tasks.store.tables.object_storage import bind, bound_to
from tasks.store.tables.parquet_store import ParquetStore
from tasks.store.tables.retention import remove
from tests.docs.test_documents import blocks
from tests.support.object_places import (
    AZURE_KEY,
    SECRET,
    Place,
    az_place,
    azure_server,
    azurite,
    moto_place,
    moto_server,
    our_place,
    private_key,
)
from tests.support.optimizations import start_command, write_project
from tests.support.stepped_runs import play
from tests.support.store_rows import RUN, final_tables, generation_tables, run_record

pytest.importorskip("obstore", reason="needs obstore: pip install '.[objects]'")

OURS = ("s3", pytest.param("gs", marks=pytest.mark.slow))
MOTO = pytest.param(
    "moto",
    marks=[
        pytest.mark.slow,
        pytest.mark.skipif(
            find_spec("moto") is None, reason="needs moto: pip install 'moto[s3]' flask flask-cors"
        ),
    ],
)
AZURE = pytest.param(
    "az",
    marks=[
        pytest.mark.slow,
        pytest.mark.skipif(
            azurite() is None,
            reason="needs azurite-blob: npm install azurite, then AZURITE=its path",
        ),
    ],
)
numbers = count()


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def azure() -> Iterator[str]:
    with azure_server() as endpoint:
        yield endpoint


@pytest.fixture(params=[*OURS, MOTO, AZURE])
def place(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    """An empty bucket, and the environment that leads to it."""
    with ExitStack() as stack:
        if request.param in {"s3", "gs"}:
            made = stack.enter_context(our_place(request.param, tmp_path_factory.mktemp("own")))
        elif request.param == "moto":
            made = moto_place(request.getfixturevalue("moto"), f"results-{next(numbers)}")
        else:
            made = az_place(request.getfixturevalue("azure"), f"results-{next(numbers)}")
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


def opened(folder: Path, place: Place) -> ParquetStore:
    bind(folder, place.url)
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


def test_another_machine_reads_what_this_one_published(place: Place, tmp_path: Path):
    here = opened(tmp_path / "here", place)
    write(here, done=False)
    there = opened(tmp_path / "there", place)
    assert answers(there) == answers(here)
    assert there.checkpoint(RUN) == here.checkpoint(RUN)
    assert there.run(RUN).status == "running"
    write(here)
    assert there.mirror is not None
    assert there.mirror.pull() > 0
    assert there.run(RUN).status == "done"
    assert answers(there) == answers(here)
    assert there.mirror.pull() == 0
    assert there.check() == {}


@pytest.mark.parametrize("place", OURS, indirect=True)
def test_markers_come_last_and_no_file_is_replaced_but_a_runs_row(place: Place, tmp_path: Path):
    assert place.server is not None
    write(opened(tmp_path, place))
    put = [path for method, path, _ in place.server.requests if method == "PUT"]
    of_first = [path for path in put if "g00000" in path]
    assert "/live/generations/" in of_first[-1]
    assert "/final/runs/" in put[-1]
    twice = {path for path in put if put.count(path) > 1}
    assert twice <= {f"results/nightly/live/runs/run_id={RUN}/run.parquet"}


def commit_of(generation: int) -> str:
    return f"live/generations/run_id={RUN}/g{generation:05d}.json"


@pytest.mark.parametrize("n", [4, 8])
def test_a_late_writer_of_other_rows_replaces_nothing_and_is_told(
    place: Place, tmp_path: Path, n: int
):
    first = opened(tmp_path / "one", place)
    write(first, n_generations=1, done=False)
    before = place.objects()
    bind(tmp_path / "two", place.url)
    late = ParquetStore(tmp_path / "two")
    tables = generation_tables(n=n, text="late")
    if n == 4:
        tables["payloads"] = []  # what it lacks must not be missed there
    with pytest.raises(StoreWriteError, match=r"another process has published .*g00000"):
        late.publish(RUN, 0, tables)
    assert late.rows("select * from generations") == [], "it does not see its own rows either"
    after = place.objects()
    assert {name: after.get(name) for name in before} == before
    check_reads_like(first, opened(tmp_path / "three", place))
    assert late.mirror is not None
    late.mirror.pull()
    check_reads_like(first, late)


def test_a_late_end_of_a_run_replaces_nothing(place: Place, tmp_path: Path):
    first = opened(tmp_path / "one", place)
    late = opened(tmp_path / "two", place)
    write(first, done=False)
    assert late.mirror is not None
    late.mirror.pull()
    write(first)
    before = place.objects()
    late.publish(RUN, -1, final_tables())
    with pytest.raises(StoreWriteError, match="another process"):
        late.finish_run(run_record(status="done", n_generations=2, reason="late"))
    assert place.objects() == before
    late.publish(RUN, 2, generation_tables(generation=2))
    with pytest.raises(StoreWriteError, match="another process"):
        late.finish_run(run_record(status="done", n_generations=3))
    after = place.objects()
    assert {name: after[name] for name in before if "final/" in name} == {
        name: tag for name, tag in before.items() if "final/" in name
    }
    check_reads_like(first, opened(tmp_path / "three", place))


def check_reads_like(expected: ParquetStore, store: ParquetStore) -> None:
    """Make sure that two stores hold the same rows of all tables."""
    for table in ("generations", "evaluations", "candidates", "attempts", "payloads"):
        sql = f"select * from {table} order by all"  # noqa: S608 - a name of the registry
        assert store.query(sql).rows == expected.query(sql).rows, table


def test_sweeping_retention_and_going_on_reach_the_address(place: Place, tmp_path: Path):
    store = opened(tmp_path / "one", place)
    write(store)
    assert any(name.startswith("live/evaluations/") for name in place.objects())
    store.sweep(2**62)
    assert not any(name.startswith("live/evaluations/") for name in place.objects())
    later = "01J8ZC0000000000000000WXYZ"
    store.save_run(run_record(later))
    store.continue_run(RUN, later)
    assert f"final/runs/run_id={RUN}/part-0.parquet" in place.objects()
    assert commit_of(1).replace(RUN, later) in place.objects()
    check_reads_like(store, opened(tmp_path / "elsewhere", place))
    for run_id in (RUN, later):
        remove(tmp_path / "one", run_id)
    assert set(place.objects()) == {"store.json"}


@pytest.mark.parametrize("place", OURS, indirect=True)
def test_what_cannot_be_published_is_an_error_and_invisible_here(place: Place, tmp_path: Path):
    assert place.server is not None
    store = opened(tmp_path, place)
    write(store, n_generations=1, done=False)
    place.server.refuses = True
    with pytest.raises(StoreWriteError, match="credentials") as caught:
        store.publish(RUN, 1, generation_tables(generation=1))
    assert SECRET not in str(caught.value)
    place.server.refuses = False
    assert [row["generation"] for row in store.rows("select generation from generations")] == [0]
    store.publish(RUN, 1, generation_tables(generation=1))
    assert answers(opened(tmp_path / "elsewhere", place)) == answers(store)


@pytest.mark.parametrize("place", [AZURE], indirect=True)
def test_a_wrong_key_is_an_error_that_does_not_show_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    store = opened(tmp_path, place)
    write(store, n_generations=1, done=False)
    before = place.objects()
    wrong = base64.b64encode(b"withdrawn").decode()
    with monkeypatch.context() as changed:
        changed.setenv("AZURE_STORAGE_ACCOUNT_KEY", wrong)
        late = ParquetStore(tmp_path)
        with pytest.raises(StoreWriteError, match="credentials") as caught:
            late.publish(RUN, 1, generation_tables(generation=1))
    assert wrong not in str(caught.value)
    assert [row["generation"] for row in late.rows("select generation from generations")] == [0]
    assert place.objects() == before


def test_a_folder_belongs_to_one_address(tmp_path: Path):
    url = "s3://results/nightly"
    bind(tmp_path, url)
    bind(tmp_path, url)
    assert bound_to(tmp_path) == url
    with pytest.raises(StoreFormatError, match=r"storage\.local"):
        bind(tmp_path, "s3://results/other")
    (tmp_path / "remote.json").write_text("[]")
    with pytest.raises(StoreFormatError, match=r"storage\.path"):
        bound_to(tmp_path)


@pytest.mark.slow
def test_a_run_publishes_there_and_another_machine_has_it(place: Place, tmp_path: Path):
    size = {"population_size": 3, "generations": 1}
    for machine in ("one", "two"):
        write_project(
            tmp_path / machine, storage={"path": place.url}, optimization__evolution=size,
            evaluation__test_cases={"path": "cases.json", "holdout": 0.2},
        )  # fmt: skip
    run = prepare_run(load(tmp_path / "one/optimization.yaml"))
    result = play(run)
    there = ParquetStore(ready_store(load(tmp_path / "two/optimization.yaml")))
    (found,) = there.runs()
    assert (found.run_id, found.status) == (result.run_id, "done")
    assert not any("sqlite" in name for name in place.objects()), "the journal stays"
    secrets = [SECRET.encode(), AZURE_KEY.encode(), json.dumps(private_key())[1:-1].encode()]
    for name in place.objects():
        data = bytes(place.store.get(name).bytes())
        assert not any(secret in data for secret in secrets)
    write_project(tmp_path / "reader", storage={"path": place.url})
    done = start_command("store", "sync", "--json", cwd=tmp_path / "reader")
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    assert json.loads(out).keys() == {"n_fetched"}
    assert ParquetStore(tmp_path / "reader/convergence-data").run(found.label).status == "done"


def test_duckdb_reads_the_address_itself_as_the_document_says(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    store = opened(tmp_path, place)
    write(store)
    text = (Path(__file__).parents[2] / "docs/object-storage.md").read_text(encoding="utf-8")
    (snippet,) = blocks(text, "python")
    snippet = snippet.replace("s3://results/nightly", place.url)
    exec(compile(snippet, "object-storage.md", "exec"), {})  # noqa: S102 - our own document
    ((n, mean),) = store.query("select count(*), avg(reward) from evaluations").rows
    assert capsys.readouterr().out == f"({n}, {mean})\n"
