"""Feedback in the tables, once; and forgetting a user, of whom no text is left anywhere."""

from pathlib import Path

import pytest

from convergence.__main__ import run
from convergence_core.feedback.records import AnswerComparison, Rating
from tasks.serving.fold import fold_store
from tasks.serving.offers import offer_of
from tasks.serving.settings import RuntimeConfig
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.removal import forget_user
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.object_storage import bind
from tasks.store.tables.parquet_store import ParquetStore
from tasks.store.tables.tables import FEEDBACK_TABLES
from tests.feedback.answers import answer
from tests.store.postgres_server import postgres_server
from tests.support.bandits import Bandit
from tests.support.object_places import our_place

TEXT = "the-parcel-of-ann"
NOTHING = {table.name: 0 for table in FEEDBACK_TABLES}


def rate(store: FeedbackStore, one: str, user: str = "ann", **mark: object) -> None:
    store.rate(Rating(interaction_id=one, user_id=user, **mark))  # type: ignore[arg-type]


def fill(store: FeedbackStore) -> None:
    """Log two answers to each of two users, rate, edit, take back and compare."""
    for user in ("ann", "bob"):
        for number in (1, 2):
            store.log(answer(f"{user}-{number}", prompt=f"Where is the-parcel-of-{user}?",
                             user_id=user, response=f"With the-parcel-of-{user}{'!' * (number - 1)}", is_shared=True))  # fmt: skip
    rate(store, "ann-1", rating=2, reason=f"{TEXT} is wrong")
    rate(store, "ann-1", rating=5)
    rate(store, "ann-1", "bob", thumbs="down", reason=f"I know {TEXT}")
    rate(store, "bob-1", "bob", rating=4)
    rate(store, "bob-2", "bob", rating=1)
    store.unrate("bob-2", "bob")
    rate(store, "bob-1", "ann", rating=3)
    for user in ("ann", "bob"):
        store.compare(
            AnswerComparison(chosen_id=f"{user}-1", rejected_id=f"{user}-2", user_id=user)
        )


def test_feedback_is_folded_once_and_views_show_what_counts(tmp_path: Path):
    path = tmp_path / "store"
    with FeedbackStore(path) as store:
        fill(store)
        first = fold_store(path)
        assert first.feedback == NOTHING | {"interactions": 4, "ratings": 7, "comparisons": 2}
        assert set(fold_store(path).feedback.values()) == {0}
        rate(store, "bob-2", "bob", rating=2)
    assert fold_store(path).feedback == NOTHING | {"ratings": 1}
    tables = ParquetStore(path)
    found = tables.rows(
        "SELECT interaction_id, rater_id, rating, thumbs, reward, prompt, response "
        "FROM rated_answers ORDER BY ALL"
    )
    marks = [
        (r["interaction_id"], r["rater_id"], r["rating"], r["thumbs"], r["reward"]) for r in found
    ]
    assert marks == [
        ("ann-1", "ann", 5, None, 1.0),
        ("ann-1", "bob", None, "down", -1.0),
        ("ann-2", None, None, None, None),
        ("bob-1", "ann", 3, None, 0.0),
        ("bob-1", "bob", 4, None, 0.5),
        ("bob-2", "bob", 2, None, -0.5),
    ]
    assert found[0]["prompt"] == f"Where is {TEXT}?"
    assert found[0]["response"] == f"With {TEXT}"
    pairs = tables.rows("SELECT rater_id, chosen, rejected FROM answer_pairs ORDER BY ALL")
    assert [pair["rater_id"] for pair in pairs] == ["ann", "bob"]
    whole = tables.rows("SELECT * FROM interactions WHERE interaction_id = 'ann-1'")[0]
    assert (whole["is_shared"], whole["sampling_json"], whole["cost_usd"]) == (True, "{}", None)


def files_with(folder: Path, text: str) -> list[Path]:
    return [
        file for file in folder.rglob("*") if file.is_file() and text.encode() in file.read_bytes()
    ]


@pytest.mark.parametrize("home", ["sqlite", "postgres"])
def test_a_forgotten_user_leaves_no_text_in_any_file_of_the_store(
    tmp_path: Path, home: str, monkeypatch: pytest.MonkeyPatch
):
    if home == "postgres":
        monkeypatch.setenv("CONVERGENCE_RUNTIME", postgres_server().new_schema())
    path = tmp_path / "store"
    with RuntimeStore(path) as state, FeedbackStore(path) as store:
        state.offer("bot", "default", [offer_of({}, "a"), offer_of({"n": 1}, "b")], trust=0.5)
        state.offer("talk", "default", [offer_of({}, "a")], trust=0.5, kind="linear")
        monkeypatch.setattr("tasks.serving.contextual_fold.SAVE_EVERY", 1)
        settings = RuntimeConfig(system="bot", sticky="user")
        bandit = Bandit(state, "bot", settings=settings, seed=1)
        talk = Bandit(state, "talk", settings=RuntimeConfig(system="talk", kind="linear"))
        for user in ("ann", "bob"):
            for served in (bandit, talk):
                chosen = served.select(user, context={"topic": f"the-parcel-of-{user}"})
                served.update(chosen.decision_id, 1.0)
        talk.select("bob")
        assert TEXT in str(state.fetch("SELECT state_json FROM groups WHERE kind = 'linear'"))
        fill(store)
        fold_store(path)
        rate(store, "ann-2", rating=1, reason=TEXT)
        report = forget_user(path, "ann")
        assert (report.n_interactions, report.n_comparisons, report.n_decisions) == (2, 1, 2)
        assert report.n_ratings == 5
        assert store.history("ann") == []
        assert store.ratings("ann-1") == []
        assert [mark.user_id for mark in store.ratings("bob-1")] == ["bob"]
        assert len(store.history("bob")) == 2
        users = state.fetch("SELECT DISTINCT user_id FROM decisions ORDER BY user_id")
        assert users == [("bob",), ("forgotten",)]
        assert state.fetch("SELECT unit FROM assignments") == [("user:bob",)]
        talk.update(talk.select("bob").decision_id, 1.0)
        talk.select("bob")  # saves what it has learned, of all rewards without ann
        ((saved,),) = state.fetch("SELECT state_json FROM groups WHERE kind = 'linear'")
        assert "bob" in saved
        assert "ann" not in saved
        fold_store(path)
    assert files_with(path, TEXT) == []
    tables = ParquetStore(path)
    assert tables.rows("SELECT count(*) AS n FROM interactions") == [{"n": 2}]
    assert tables.rows(
        "SELECT DISTINCT rater_id FROM rated_answers WHERE rater_id IS NOT NULL"
    ) == [{"rater_id": "bob"}]
    users = tables.rows(
        "SELECT user_id, reward FROM decisions JOIN rewards USING (decision_id) "
        "WHERE decisions.system = 'bot' ORDER BY ALL"
    )
    assert users == [{"user_id": "bob", "reward": 1.0}, {"user_id": "forgotten", "reward": 1.0}]
    again = forget_user(path, "ann")
    assert (again.n_interactions, again.n_decisions) == (0, 0)


def test_forgetting_goes_on_where_a_kill_has_stopped_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "store"
    with FeedbackStore(path) as store:
        fill(store)
    fold_store(path)

    def killed(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tasks.store.feedback.removal.remove_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            forget_user(path, "ann")
    forget_user(path, "ann")
    assert files_with(path, TEXT) == []


def test_the_command_forgets_only_when_it_is_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    with FeedbackStore(tmp_path / "convergence-data") as store:
        fill(store)
    assert run(["store", "forget", "ann"]) == 2
    assert "required without a terminal" in capsys.readouterr().err
    assert run(["fold"]) == 0
    assert "4 interactions, 7 ratings, 2 comparisons exported" in capsys.readouterr().out
    assert run(["store", "forget", "ann", "--yes"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "Removed: 2 answers, 4 ratings, 1 comparisons" in told
    assert files_with(tmp_path / "convergence-data", TEXT) == []


def test_a_forgotten_user_leaves_the_address_of_the_store_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("obstore")
    path = tmp_path / "store"
    with our_place("s3", tmp_path / "objects") as place:
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        bind(path, place.url)
        with FeedbackStore(path) as store:
            fill(store)
        fold_store(path)

        def texts() -> bytes:
            keys = [key for key in place.objects() if "interactions" in key or "ratings" in key]
            assert keys
            return b"".join(bytes(place.store.get(key).bytes()) for key in keys)

        assert TEXT.encode() in texts()
        forget_user(path, "ann")
        assert TEXT.encode() not in texts()
        assert b"the-parcel-of-bob" in texts()
        other = tmp_path / "elsewhere"
        bind(other, place.url)
        mirror = ParquetStore(other).mirror
        assert mirror is not None
        mirror.pull()
        assert ParquetStore(other).rows("SELECT DISTINCT user_id FROM interactions") == [
            {"user_id": "bob"}
        ]
