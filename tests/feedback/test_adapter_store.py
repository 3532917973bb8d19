"""Adapters: one at most is active, a changed mark makes stale, and rollback restores what was."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from convergence_core.errors import AdapterNotFoundError, AdapterRefusedError
from convergence_core.feedback.records import Rating
from tasks.store.feedback.adapter_files import folder_sha256
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.removal import forget_user
from tasks.store.feedback.training_rounds import TrainingRounds, open_marks
from tests.feedback.adapters import PASSED, activated, rated, registered, saved_adapter
from tests.feedback.answers import answer


@pytest.fixture
def adapters(store: FeedbackStore) -> AdapterStore:
    return AdapterStore(store)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return saved_adapter(tmp_path / "trained")


def statuses(adapters: AdapterStore) -> dict[str, str]:
    return {one.version: one.status for one in adapters.records()}


def active(adapters: AdapterStore, role: str = "assistant") -> str | None:
    found = adapters.active(role)
    return None if found is None else found.version


def rate(store: FeedbackStore, name: str, value: int, user: str = "ann") -> None:
    store.rate(Rating(interaction_id=name, user_id=user, rating=value))


def test_an_adapter_is_registered_whole_with_every_field(
    store: FeedbackStore, adapters: AdapterStore, source: Path
):
    (source / "notes.txt").write_text("left where it is")
    marks = (rated(store, "a"), rated(store, "b"))
    version = adapters.register(
        source, role="assistant", base_model="tiny", objective="qrpo", marks=marks
    )
    one = adapters.record(version)
    assert one.version == "assistant-0001"
    assert (one.role, one.base_model, one.parent, one.objective) == (
        "assistant", "tiny", None, "qrpo",
    )  # fmt: skip
    assert (one.status, one.reason, one.n_rows, one.is_removed) == ("candidate", None, 2, False)
    assert (one.created_us, one.decided_us) == (7_000, 7_000)
    folder = adapters.folder(version)
    assert folder == store.root / "adapters" / version
    assert sorted(file.name for file in folder.iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors",
    ]  # fmt: skip
    assert one.folder_sha256 == folder_sha256(folder) == folder_sha256(source)
    assert all(file.stat().st_mode & 0o077 == 0 for file in (folder, *folder.iterdir()))
    assert adapters.active("assistant") is None
    assert store.fetch("SELECT interaction_id, user_id, event_seq FROM adapter_rows ORDER BY 1") == [
        ("a", "ann", marks[0].seq), ("b", "ann", marks[1].seq),
    ]  # fmt: skip
    assert store.fetch("SELECT version, status, changed_by FROM adapter_events") == [
        (version, "candidate", "training")
    ]


def test_a_version_is_never_used_twice_and_is_safe_in_paths(adapters: AdapterStore, source: Path):
    names = [
        registered(adapters, source, role=role)
        for role in ("code", "assistant", "code", "../My role/é", "code-0001")
    ]
    assert names == [
        "code-0001",
        "assistant-0001",
        "code-0002",
        "_My_role_-0001",
        "code_0001-0001",
    ]
    adapters.reject("code-0002", "worse", "gate")
    assert registered(adapters, source, role="code") == "code-0003"
    assert {one.version for one in adapters.records("code")} == {
        "code-0001", "code-0002", "code-0003",
    }  # fmt: skip


def test_at_most_one_adapter_of_a_role_is_active(adapters: AdapterStore, source: Path):
    first, second = activated(adapters, source), activated(adapters, source)
    other = activated(adapters, source, role="code")
    assert statuses(adapters) == {first: "inactive", second: "active", other: "active"}
    adapters.activate(second, "cli")
    assert adapters.record(second).reason == "passed every check"
    adapters.activate(first, "cli", reason="it was nicer")
    one = adapters.record(first)
    assert (one.status, one.reason) == ("active", "it was nicer")
    assert adapters.record(second).reason == f"{first} took its place"


def test_the_database_itself_refuses_a_second_active_adapter(tmp_path: Path, source: Path):
    with FeedbackStore(tmp_path / "store") as store:
        adapters = AdapterStore(store)
        activated(adapters, source)
        registered(adapters, source)
        with pytest.raises(apsw.ConstraintError), store.database.transaction() as connection:
            connection.execute("UPDATE adapters SET status = 'active'")
        assert active(adapters) == "assistant-0001"


def test_what_did_not_pass_its_checks_is_not_activated(adapters: AdapterStore, source: Path):
    version = adapters.register(
        source, role="assistant", base_model="tiny", objective="qrpo", marks=()
    )
    with pytest.raises(AdapterRefusedError, match="none is recorded"):
        adapters.activate(version, "cli")
    failed = replace(PASSED, passed=False, value=float("nan"), words="KL is 9 nats.")
    adapters.record_checks(version, [failed])
    with pytest.raises(AdapterRefusedError, match=r"every check .*, but KL is 9 nats"):
        adapters.activate(version, "cli")
    (kept,) = adapters.checks(version)
    assert kept == replace(failed, value=None)
    adapters.record_checks(version, [PASSED])
    assert adapters.checks(version) == (PASSED,)
    adapters.activate(version, "cli")
    with pytest.raises(AdapterNotFoundError, match="`version` must be that of a registered"):
        adapters.record_checks("nobody-0001", [PASSED])
    with pytest.raises(AdapterNotFoundError):
        adapters.activate("nobody-0001", "cli")


def test_rollback_restores_what_answered_before_and_opens_the_marks_again(
    store: FeedbackStore, adapters: AdapterStore, tmp_path: Path
):
    first, second = rated(store, "a"), rated(store, "b")
    one = activated(adapters, saved_adapter(tmp_path / "1", 1), first)
    two = activated(adapters, saved_adapter(tmp_path / "2", 2), second, parent=one)
    rated(store, "c")
    assert [used for _, _, used in open_marks(store, "assistant")] == [True, True, False]
    assert adapters.rollback("assistant", "cli") == one
    assert statuses(adapters) == {one: "active", two: "rolled_back"}
    assert adapters.record(one).reason == f"{two} was rolled back"
    assert [used for _, _, used in open_marks(store, "assistant")] == [True, False, False]
    assert folder_sha256(adapters.folder(one)) == folder_sha256(tmp_path / "1")
    assert adapters.rollback("assistant", "cli") is None
    assert active(adapters) is None
    with pytest.raises(AdapterRefusedError, match="an active adapter to roll back"):
        adapters.rollback("assistant", "cli")
    adapters.activate(two, "cli")
    assert [used for _, _, used in open_marks(store, "assistant")] == [False, True, False]


@pytest.mark.parametrize("change", ["edit", "withdrawal"])
def test_a_changed_rating_makes_stale_what_learned_from_it_and_what_came_of_that(
    store: FeedbackStore, adapters: AdapterStore, source: Path, change: str
):
    mark, other = rated(store, "a"), rated(store, "b")
    before = activated(adapters, source, other)
    one = activated(adapters, source, mark)
    child = activated(adapters, source, parent=one)
    waiting = registered(adapters, source, mark)
    rate(store, "a", 2, "bob")
    rate(store, "b", 4)
    assert active(adapters) == child, "another's rating and a double click change nothing"
    if change == "edit":
        rate(store, "a", 1)
    else:
        store.unrate("a", "ann")
    assert statuses(adapters) == {
        before: "active", one: "stale", child: "stale", waiting: "stale",
    }  # fmt: skip
    words = "edited" if change == "edit" else "undone"
    assert adapters.record(child).reason == f"a rating it learned from was {words}"
    assert adapters.record(before).reason == f"{child} became stale"
    rate(store, "b", 1)
    assert active(adapters) is None, "the base model answers"
    opened = {mark.interaction_id: used for mark, _, used in open_marks(store, "assistant")}
    assert opened == {"b": False, "a": False}


def test_forgetting_removes_what_was_learned_from_a_user(
    store: FeedbackStore, adapters: AdapterStore, source: Path, monkeypatch: pytest.MonkeyPatch,
    url: str | None,
):  # fmt: skip
    if url is not None:
        monkeypatch.setenv("CONVERGENCE_RUNTIME", url)
    others = rated(store, "b", user="bob")
    store.log(answer("c", user_id="bob", is_shared=True))
    rate(store, "c", 5)
    by_ann = next(m for m, _, _ in open_marks(store, "assistant") if m.interaction_id == "c")
    mine = rated(store, "a", user="cid")
    store.log(answer("d", user_id="bob"))
    rate(store, "d", 5, "bob")
    safe_mark = next(m for m, _, _ in open_marks(store, "assistant") if m.interaction_id == "d")
    safe = activated(adapters, source, safe_mark)
    learned = [registered(adapters, source, mark) for mark in (others, by_ann, mine)]
    child = activated(adapters, source, parent=learned[2])
    checkpoints = TrainingRounds(store).folder("r1")
    checkpoints.mkdir(parents=True)
    (checkpoints / "rows.jsonl").write_text("what ann wrote")
    report = forget_user(store.root, "ann")
    assert report.n_adapters == 4
    assert statuses(adapters) == {safe: "active", child: "stale"} | dict.fromkeys(learned, "stale")
    assert adapters.record(child).reason == "a user it learned from was forgotten"
    for version in (*learned, child):
        assert adapters.record(version).is_removed
        assert not adapters.folder(version).exists()
        assert "they were removed" in str(adapters.files_problem(adapters.record(version)))
    assert adapters.files_problem(adapters.record(safe)) is None
    assert not checkpoints.exists()
    assert store.fetch("SELECT user_id FROM adapter_rows WHERE user_id = 'ann'") == []
    with pytest.raises(AdapterRefusedError, match="one was forgotten while it was trained"):
        registered(adapters, source, mine)
    with pytest.raises(AdapterRefusedError, match="one was forgotten"):
        registered(adapters, source, parent=child)
    folders = {file.name for file in (store.root / "adapters").iterdir()}
    assert folders == {safe, ".lock"}


def test_files_that_a_kill_has_left_of_a_forgotten_user_go_when_the_store_is_opened(
    store: FeedbackStore, adapters: AdapterStore, source: Path
):
    version = registered(adapters, source, rated(store, "a"))
    with store.database.transaction() as connection:
        connection.execute("UPDATE adapters SET is_removed = 1")
    assert not AdapterStore(store).folder(version).exists()


@pytest.mark.parametrize("what", ["missing", "link", "folder", "pipe"])
def test_files_that_are_not_plain_are_refused_and_nothing_is_registered(
    adapters: AdapterStore, source: Path, what: str
):
    file = source / "adapter_model.safetensors"
    file.rename(source / "elsewhere")
    if what == "link":
        file.symlink_to("elsewhere")
    if what == "folder":
        file.mkdir()
    if what == "pipe":
        os.mkfifo(file)
    with pytest.raises(
        AdapterRefusedError, match=r"plain files, but adapter_model\.safetensors is"
    ):
        registered(adapters, source)
    assert adapters.records() == []
    assert [file.name for file in (adapters.root / "adapters").iterdir()] == [".lock"]


def test_what_a_killed_registration_has_left_is_replaced(adapters: AdapterStore, source: Path):
    registered(adapters, source)
    torn = adapters.root / "adapters" / ".candidate.0.tmp"
    torn.mkdir()
    orphan = adapters.folder("assistant-0002")
    orphan.mkdir()
    (orphan / "adapter_model.safetensors").write_bytes(b"half")
    version = registered(adapters, source)
    assert version == "assistant-0002"
    assert folder_sha256(orphan) == folder_sha256(source)
    assert not torn.exists()


def test_adapters_that_are_registered_and_activated_at_once_are_all_kept(
    tmp_path: Path, url: str | None, source: Path
):
    stores = [FeedbackStore(tmp_path / "store", url=url) for _ in range(4)]
    rows = [AdapterStore(one) for one in stores]
    mark = rated(stores[0], "a")
    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(lambda one: activated(one, source), rows * 3))
        learned = pool.submit(registered, rows[0], source, mark)
        edited = pool.submit(rate, stores[1], "a", 1)
        edited.result()
    assert sorted(versions) == [f"assistant-{number:04d}" for number in range(1, 13)]
    found = statuses(rows[0])
    assert list(found.values()).count("active") == 1
    assert found[learned.result()] == "stale", "whichever came first"
    for one in stores:
        one.close()
