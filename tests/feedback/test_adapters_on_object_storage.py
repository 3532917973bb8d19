"""Adapters on object storage: one machine trains them, another one answers with them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from convergence_core.errors import StoreWriteError
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.removal import forget_user
from tasks.store.tables.object_storage import bind
from tests.feedback.adapters import activated, rated, registered, saved_adapter
from tests.store.postgres_server import postgres_server
from tests.support.object_places import Place, our_place

pytest.importorskip("obstore", reason="needs obstore: pip install '.[objects]'")

WEIGHTS = "adapter_model.safetensors"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with our_place("s3", tmp_path / "bucket") as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


class Machine:
    """A folder of its own, with the address and the database that all share."""

    def __init__(self, root: Path, place: Place, url: str) -> None:
        bind(root, place.url)
        self.url = url
        self.feedback = FeedbackStore(root, url=url)
        self.adapters = AdapterStore(self.feedback)

    def __enter__(self) -> "Machine":
        self.feedback.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.feedback.close()


@pytest.fixture
def machines(tmp_path: Path, place: Place) -> Iterator[tuple[Machine, Machine]]:
    url = postgres_server().new_schema()
    with (
        Machine(tmp_path / "trains", place, url) as one,
        Machine(tmp_path / "answers", place, url) as two,
    ):
        yield one, two


def published(place: Place) -> set[str]:
    return {name for name in place.objects() if name.startswith("adapters/")}


def test_what_one_machine_trains_another_one_fetches(
    machines: tuple[Machine, Machine], place: Place, tmp_path: Path
):
    trains, answers = machines
    source = saved_adapter(tmp_path / "made")
    version = activated(trains.adapters, source, rated(trains.feedback, "a"))
    found = answers.adapters.active("assistant")
    assert found is not None
    assert found.version == version
    assert not answers.adapters.folder(version).exists()
    assert answers.adapters.files_problem(found) is None
    fetched = answers.adapters.folder(version) / WEIGHTS
    assert fetched.read_bytes() == (source / WEIGHTS).read_bytes()
    assert published(place) == {
        f"adapters/{found.folder_sha256}/{name}" for name in (WEIGHTS, "adapter_config.json")
    }
    # Nothing is left of the way there, and the second look fetches nothing.
    assert list((tmp_path / "answers" / "training").iterdir()) == []
    assert place.server is not None
    n_before = len(place.server.requests)
    assert answers.adapters.files_problem(found) is None
    assert len(place.server.requests) == n_before


def test_other_bytes_at_the_address_are_not_taken(
    machines: tuple[Machine, Machine], place: Place, tmp_path: Path
):
    trains, answers = machines
    version = activated(
        trains.adapters, saved_adapter(tmp_path / "made"), rated(trains.feedback, "a")
    )
    found = answers.adapters.record(version)
    key = f"adapters/{found.folder_sha256}/{WEIGHTS}"
    place.store.put(key, b"other weights")
    problem = answers.adapters.files_problem(found)
    assert problem is not None
    assert not answers.adapters.folder(version).exists()
    place.store.delete(key)
    assert answers.adapters.files_problem(found) is not None


def test_an_address_that_is_away_rejects_no_adapter(
    machines: tuple[Machine, Machine],
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    trains, answers = machines
    first = activated(
        trains.adapters, saved_adapter(tmp_path / "1", 1), rated(trains.feedback, "a")
    )
    second = activated(
        trains.adapters, saved_adapter(tmp_path / "2", 2), rated(trains.feedback, "b")
    )
    for name, value in place.environment.items():
        if value.startswith("http://"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(StoreWriteError, match="Check the address"):
        answers.adapters.rollback("assistant", by="person")
    statuses = {one.version: one.status for one in answers.adapters.records()}
    assert statuses == {first: "inactive", second: "active"}
    # The machine that has the files needs no address.
    assert trains.adapters.rollback("assistant", by="person") == first


def test_forgetting_a_user_removes_the_weights_there_too(
    machines: tuple[Machine, Machine],
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    trains, answers = machines
    gone = registered(
        trains.adapters, saved_adapter(tmp_path / "1", 1), rated(trains.feedback, "a", user="bob")
    )
    kept = registered(
        trains.adapters, saved_adapter(tmp_path / "2", 2), rated(trains.feedback, "b", user="cyd")
    )
    assert len(published(place)) == 4
    # Another machine, which never had the files, is asked to forget.
    monkeypatch.setenv("CONVERGENCE_RUNTIME", answers.url)
    forget_user(answers.feedback.root, "bob")
    sha256 = answers.adapters.record(kept).folder_sha256
    assert {name.split("/")[1] for name in published(place)} == {sha256}
    assert answers.adapters.record(gone).is_removed
    problem = trains.adapters.files_problem(trains.adapters.record(gone))
    assert problem is not None
    assert "forgotten" in problem
