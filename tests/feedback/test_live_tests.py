"""Tests of adapters on live traffic: who answers, what decides, what ends them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from convergence.__main__ import run
from convergence_core.config.feedback import LiveTestConfig
from convergence_core.feedback.live_test_records import LiveTest
from convergence_core.feedback.records import Rating
from tasks.serving.fold import fold_store
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.counts import feedback_counts
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.removal import forget_user
from tasks.store.feedback.training_rounds import open_marks
from tasks.store.tables.parquet_store import ParquetStore
from tests.feedback.adapters import activated, rated, registered, saved_adapter
from tests.feedback.answers import answer
from tests.store.postgres_server import postgres_server

RULE = LiveTestConfig(share=0.5, max_ratings=40)
ONE, TWO = "assistant-0001", "assistant-0002"


@pytest.fixture(params=["sqlite", "postgres"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FeedbackStore]:
    if request.param == "postgres":
        monkeypatch.setenv("CONVERGENCE_RUNTIME", postgres_server().new_schema())
    with FeedbackStore(tmp_path / "convergence-data") as found:
        yield found


def begun(store: FeedbackStore, folder: Path, *, has_control: bool = True) -> AdapterStore:
    """Activate an adapter, and try a second one against it; or one against the base model."""
    adapters = AdapterStore(store)
    if has_control:
        activated(adapters, saved_adapter(folder / "1", 1), rated(store, "learned"))
    new = registered(adapters, saved_adapter(folder / "2", 2), rated(store, "learned too"))
    adapters.activate(new, "training", live_rule=RULE)
    return adapters


def last_test(adapters: AdapterStore) -> LiveTest:
    return adapters.live_tests("assistant")[-1]


def talked(
    store: FeedbackStore, name: str, *, role: str = "assistant", user: str = "ann"
) -> str | None:
    """Log the answer to a conversation of that name as a chat does; return what answered."""
    record, part = AdapterStore(store).answering(role, user, name)
    version = None if record is None else record.version
    store.log(answer(name, user_id=user, adapter_version=version, conversation_id=name), part)
    return version


def rate(store: FeedbackStore, name: str, value: int, user: str = "ann") -> None:
    store.rate(Rating(interaction_id=name, user_id=user, rating=value))


def rate_until_it_ends(
    store: FeedbackStore, adapters: AdapterStore, *, new: int, old: int
) -> LiveTest:
    for number in range(60):
        version = talked(store, f"talk-{number}")
        rate(store, f"talk-{number}", new if version == TWO else old)
        if last_test(adapters).status != "running":
            break
    return last_test(adapters)


def test_conversations_are_shared_by_both_and_each_stays_with_its_own(
    store: FeedbackStore, tmp_path: Path
):
    adapters = begun(store, tmp_path)
    found = [adapters.answering("assistant", "ann", str(k)) for k in range(60)]
    versions = [record.version for record, _ in found if record is not None]
    assert set(versions) == {ONE, TWO}
    assert 15 <= versions.count(TWO) <= 45
    assert [adapters.answering("assistant", "ann", str(k)) for k in range(60)] == found
    assert adapters.answering("code", "ann", "0") == (None, None)
    assert adapters.active("assistant").version == TWO  # type: ignore[union-attr]


def test_one_that_is_better_answers_all(store: FeedbackStore, tmp_path: Path):
    adapters = begun(store, tmp_path)
    test = rate_until_it_ends(store, adapters, new=5, old=2)
    assert (test.status, test.version, test.control, test.role) == (
        "better",
        TWO,
        ONE,
        "assistant",
    )
    assert test.difference == 1.5
    assert test.low is not None and 0 < test.low < 1.5  # noqa: PT018 - a narrowing
    assert test.n_ratings == test.n_conversations < 40
    assert test.ended_us is not None
    answering = {talked(store, f"later-{k}") for k in range(20)}
    assert answering == {TWO}
    assert adapters.answering("assistant", "ann", "x")[1] is None
    counts = feedback_counts(store).roles["assistant"]
    sentence = counts.live_test
    assert sentence == test.words
    assert counts.words == f"adapter {TWO} answers; {counts.rated_words}; {sentence}"
    assert sentence.startswith(f"{TWO} is better than {ONE}: mean reward +1.50 [")


@pytest.mark.parametrize("has_control", [True, False])
def test_one_that_is_worse_is_taken_back_in_the_transaction_of_the_rating(
    store: FeedbackStore, tmp_path: Path, has_control: bool
):
    adapters = begun(store, tmp_path, has_control=has_control)
    new = adapters.active("assistant").version  # type: ignore[union-attr]
    for number in range(60):
        version = talked(store, f"talk-{number}")
        rate(store, f"talk-{number}", 1 if version == new else 5)
        if last_test(adapters).status != "running":
            break
    test = last_test(adapters)
    assert test.status == "worse"
    one = adapters.record(new)
    assert (one.status, one.reason) == ("rolled_back", test.words)
    (by,) = store.fetch(
        "SELECT changed_by FROM adapter_events WHERE version = ? AND status = 'rolled_back'",
        (new,),
    )
    assert by == ("live_test",)
    active = adapters.active("assistant")
    assert (active and active.version) == (ONE if has_control else None)
    assert talked(store, "after") == (ONE if has_control else None)


def test_what_was_worse_is_not_trained_again_of_the_same_marks(
    store: FeedbackStore, tmp_path: Path
):
    def used() -> dict[str, bool]:
        marks = open_marks(store, "assistant")
        return {
            mark.interaction_id: is_used
            for mark, _, is_used in marks
            if "learned" in mark.interaction_id
        }

    adapters = begun(store, tmp_path)
    rate_until_it_ends(store, adapters, new=1, old=5)
    assert adapters.record(TWO).status == "rolled_back"
    assert used() == {"learned": True, "learned too": True}
    adapters.rollback("assistant", "ada")  # by hand the marks are open again
    assert used() == {"learned": False, "learned too": True}


def test_one_that_stays_undecided_without_higher_ratings_is_taken_back(
    store: FeedbackStore, tmp_path: Path
):
    adapters = begun(store, tmp_path)
    test = rate_until_it_ends(store, adapters, new=3, old=3)
    assert (test.status, test.n_ratings, test.difference) == ("undecided", 40, 0.0)
    assert adapters.active("assistant").version == ONE  # type: ignore[union-attr]
    assert adapters.record(TWO).status_words.endswith("because its ratings were not higher")
    assert adapters.answering("assistant", "ann", "x")[1] is None


def test_ratings_of_one_conversation_are_one_piece_of_evidence(
    store: FeedbackStore, tmp_path: Path
):
    adapters = begun(store, tmp_path)
    for number in range(20):
        record, part = adapters.answering("assistant", "ann", "one talk")
        version = None if record is None else record.version
        store.log(answer(f"a{number}", adapter_version=version), part)
        rate(store, f"a{number}", 5)
    test = last_test(adapters)
    assert (test.n_ratings, test.n_conversations, test.status) == (20, 1, "running")
    assert test.low is not None and test.low <= -1.9  # noqa: PT018 - a narrowing
    assert test.high is not None and test.high >= 1.9  # noqa: PT018 - as above


def test_a_test_ends_with_whatever_changes_one_of_the_two(store: FeedbackStore, tmp_path: Path):
    adapters = begun(store, tmp_path)
    new = registered(adapters, saved_adapter(tmp_path / "3", 3), rated(store, "more"))
    adapters.activate(new, "training", live_rule=RULE)
    first, second = adapters.live_tests()
    assert (first.status, second.status) == ("ended", "running")
    assert first.reason == f"{TWO} became inactive ({new} took its place)"
    assert (second.version, second.control) == (new, TWO)
    rate(store, "learned too", 1)  # the control learned from it
    assert last_test(adapters).status == "ended"
    assert f"{TWO} became stale" in str(last_test(adapters).reason)
    assert adapters.active("assistant").version == new  # type: ignore[union-attr]
    assert adapters.answering("assistant", "ann", "x")[1] is None


def test_a_forgotten_user_leaves_no_evidence(store: FeedbackStore, tmp_path: Path):
    adapters = begun(store, tmp_path)
    for number in range(4):
        talked(store, f"talk-{number}", user="bob")
        rate(store, f"talk-{number}", 5, user="bob")
    assert last_test(adapters).n_ratings == 4
    forget_user(tmp_path / "convergence-data", "bob")
    assert last_test(adapters).n_ratings == 0
    assert store.fetch("SELECT * FROM live_test_answers") == []


def test_commands_and_tables_show_it(
    store: FeedbackStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    adapters = begun(store, tmp_path)

    def told(*words: str) -> str:
        capsys.readouterr()
        assert run(["adapters", *words]) == 0
        return " ".join(capsys.readouterr().out.split())

    running = last_test(adapters).words
    assert running in told("list")
    assert running in told("show", TWO)
    assert "is tried against" not in told("show", ONE)
    test = rate_until_it_ends(store, adapters, new=5, old=1)
    assert "is tried against" not in told("list")
    assert test.words in told("show", TWO)
    for words in (("list", "--json"), ("show", TWO, "--json")):
        (found,) = json.loads(told(*words))["live_tests"]
        assert found["words"] == test.words
        assert (found["status"], found["control"], found["n_ratings"]) == (
            "better", ONE, test.n_ratings
        )  # fmt: skip
    fold_store(tmp_path / "convergence-data")
    rows = ParquetStore(tmp_path / "convergence-data").rows(
        "SELECT version, control, role, share, max_ratings, status, n_ratings, n_conversations, "
        "difference, low, high, reason, ended_at IS NULL AS runs FROM live_tests ORDER BY seq"
    )
    common = {"version": TWO, "control": ONE, "role": "assistant", "share": 0.5, "max_ratings": 40}
    assert rows == [
        {**common, "status": "running", "n_ratings": 0, "n_conversations": 0, "difference": None,
         "low": None, "high": None, "reason": None, "runs": True},
        {**common, "status": "better", "n_ratings": test.n_ratings,
         "n_conversations": test.n_conversations, "difference": 2.0, "low": test.low,
         "high": test.high, "reason": None, "runs": False},
    ]  # fmt: skip
