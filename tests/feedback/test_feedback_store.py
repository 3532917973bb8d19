"""Logged answers and ratings: each counts once, its user's alone, and survives whatever happens."""

import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import (
    FeedbackRefusedError,
    InteractionNotFoundError,
    RequestReusedError,
    WrongUserError,
)
from convergence_core.feedback.records import AnswerComparison, ChatMessage, Interaction, Rating
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.feedback.answers import answer
from tests.store.postgres_server import postgres_server
from tests.support.children import start_child

KEY = "sk-proj-abcdefghijklmnop1234567890"


def rating(value: int | None = None, one: str = "a", user: str = "ann", **more: str) -> Rating:
    return Rating(interaction_id=one, user_id=user, rating=value, **more)  # type: ignore[arg-type]


def better(chosen: str, rejected: str, user: str = "ann", **more: str) -> AnswerComparison:
    return AnswerComparison(chosen_id=chosen, rejected_id=rejected, user_id=user, **more)  # type: ignore[arg-type]


def n_rows(store: FeedbackStore, table: str) -> int:
    return int(store.fetch(f"SELECT count(*) FROM {table}")[0][0])  # noqa: S608 - a test's SQL


def test_every_field_of_an_answer_is_kept(store: FeedbackStore):
    whole = Interaction(
        interaction_id="whole", source="api", event_id="e-1", role="code", user_id="bob",
        model="hosted-1", response="x = 1 \u00e9\n", created_us=123, conversation_id="c-1",
        messages=(ChatMessage(role="system", content="You write code."),
                  ChatMessage(role="user", content="Set x.")),
        adapter_version="v3", template_hash="ab" * 32, sampling={"temperature": 0.5, "top_p": 1},
        logprobs=(-0.25, -1e-3), n_input_tokens=12, n_output_tokens=3, latency_s=0.75,
        cost_usd=0.0, system="bot", decision_id="d-1", is_shared=True, thinking="x or y?",
    )  # fmt: skip
    assert store.log(whole) == whole
    assert store.interaction("whole") == whole
    plain = answer()
    assert store.log(plain) == plain
    assert store.interaction("a") == plain
    assert store.interaction("nobody") is None


def test_an_event_is_logged_once_and_stands_for_one_answer(store: FeedbackStore):
    first = store.log(answer("a"))
    again = store.log(answer("b", event_id="a", response=first.response, created_us=9))
    assert again == first
    assert n_rows(store, "interactions") == 1
    with pytest.raises(RequestReusedError, match="`event_id` must stand for one answer"):
        store.log(answer("c", event_id="a", response="other"))
    with pytest.raises(RequestReusedError):
        store.log(answer("a", event_id="another"))
    store.log(answer("c", event_id="a", source="elsewhere"))
    assert n_rows(store, "interactions") == 2


def test_a_double_click_counts_once_and_another_rating_edits(store: FeedbackStore):
    store.log(answer())
    first = store.rate(rating(2, event_id="click"))
    assert (first.status, first.previous, first.rating.created_us) == ("rated", None, 7_000)
    assert store.rate(rating(2, event_id="click")).status == "duplicate"
    assert store.rate(rating(2)).status == "duplicate", "the same mark by another click"
    assert n_rows(store, "ratings") == 1
    edited = store.rate(rating(5, reason="on a second look"))
    assert edited.status == "edited"
    assert edited.previous == first.rating
    assert store.rating("a", "ann") == edited.rating
    late = store.rate(rating(2, event_id="click"))
    assert late.status == "duplicate", "the first click, delivered once more, undoes no edit"
    assert store.rating("a", "ann") == edited.rating
    assert store.rate(rating(None, thumbs="down")).status == "edited"
    assert [one.reward for one in store.ratings("a")] == [-1.0]
    with pytest.raises(RequestReusedError, match="a new id for each click"):
        store.rate(rating(3, event_id="click"))


def test_a_rating_that_is_taken_back_is_missing_and_may_be_given_again(store: FeedbackStore):
    store.log(answer())
    assert store.unrate("a", "ann") is None
    store.rate(rating(4))
    taken = store.unrate("a", "ann")
    assert taken is not None
    assert taken.rating == 4
    assert store.rating("a", "ann") is None
    assert store.ratings("a") == []
    assert store.unrate("a", "ann") is None
    assert store.rate(rating(4)).status == "rated"
    with pytest.raises(InteractionNotFoundError):
        store.unrate("nobody", "ann")


def test_another_users_answer_is_not_rated_unless_it_is_shared(store: FeedbackStore):
    store.log(answer())
    store.log(answer("s", is_shared=True))
    with pytest.raises(WrongUserError, match="`user_id` must be the user") as refusal:
        store.rate(rating(1, user="eve"))
    assert "ann" not in str(refusal.value)
    assert n_rows(store, "ratings") == 0
    assert store.rate(rating(1, user="admin"), any_user=True).status == "rated"
    for user, value in (("ann", 5), ("eve", 2), ("bob", 3), ("eve", 4)):
        store.rate(rating(value, "s", user))
    assert [(one.user_id, one.rating) for one in store.ratings("s")] == [
        ("ann", 5), ("bob", 3), ("eve", 4)
    ]  # fmt: skip
    with pytest.raises(InteractionNotFoundError, match="id of a logged answer, but got 'nobody'"):
        store.rate(rating(3, "nobody"))


def test_of_two_answers_to_one_prompt_the_better_is_chosen(store: FeedbackStore):
    for name in "abz":
        store.log(answer(name, prompt="another" if name == "z" else "one"))
    store.log(
        answer("y", messages=(ChatMessage(role="system", content="Arm 2."),
                              ChatMessage(role="user", content="one")))
    )  # fmt: skip
    assert store.compare(better("a", "b", first_id="b", event_id="c")) == "compared"
    assert store.compare(better("a", "b", first_id="b", event_id="c")) == "duplicate"
    assert store.compare(better("a", "b")) == "duplicate"
    changed = store.compare(better("b", "a", reason="shorter"))
    assert changed == "edited"
    assert store.compare(better("y", "a")) == "compared", "arms may differ in their system"
    assert store.uncompare("a", "b", "ann")
    assert not store.uncompare("a", "b", "ann")
    assert not store.uncompare("b", "y", "ann")
    assert store.compare(better("b", "a", reason="shorter")) == "compared"
    with pytest.raises(FeedbackRefusedError, match="must be an answer to the prompt"):
        store.compare(better("a", "z"))
    twin = answer("a", prompt="one").response
    store.log(answer("same", prompt="one", response=f"{twin} "))
    with pytest.raises(FeedbackRefusedError, match="must be another answer"):
        store.compare(better("a", "same"))
    with pytest.raises(WrongUserError):
        store.compare(better("a", "b", user="eve"))
    with pytest.raises(InteractionNotFoundError):
        store.compare(better("a", "nobody"))
    with pytest.raises(RequestReusedError):
        store.compare(better("b", "a", event_id="c"))


def test_the_history_is_a_users_own_by_role(store: FeedbackStore):
    for number in range(6):
        store.log(answer(str(number), role="code" if number % 2 else "assistant"))
    store.log(answer("other", user_id="bob"))
    store.rate(rating(4, "3"))
    found = store.history("ann", n=4)
    assert [answer.interaction_id for answer, _ in found] == ["2", "3", "4", "5"]
    assert [mark and mark.rating for _, mark in found] == [None, 4, None, None]
    code = store.history("ann", "code")
    assert [answer.interaction_id for answer, _ in code] == ["1", "3", "5"]
    assert store.history("nobody") == []


def test_secrets_and_what_no_database_takes_are_not_stored(store: FeedbackStore):
    stored = store.log(
        answer(prompt=f"My key is {KEY}, \0 and \ud800.", response=f"Keep {KEY} safe",
               sampling={"stop": [KEY]}, thinking=f"Not {KEY}!")
    )  # fmt: skip
    store.rate(rating(1, reason=f"it shows {KEY}"))
    assert KEY not in stored.messages[0].content
    kept = repr(store.fetch("SELECT * FROM interactions") + store.fetch("SELECT * FROM ratings"))
    assert KEY not in kept
    assert kept.count("[redacted]") == 5
    assert "\0" not in stored.messages[0].content
    path = store.root / "feedback.sqlite"
    if path.exists():
        for file in store.root.glob("feedback.sqlite*"):
            assert KEY.encode() not in file.read_bytes()
            assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"user_id": ""}, "`user_id` must be a string of 1 to 200 printable characters"),
        ({"role": "a" * 201}, "`role` must be a string"),
        ({"model": "a\nb"}, "`model` must be a string"),
        ({"event_id": ""}, "`event_id` must be a string"),
        ({"messages": ()}, "`messages` must end with the question, but got none"),
        ({"latency_s": float("nan")}, "`latency_s` must be 0 or more"),
        ({"cost_usd": -1.0}, "`cost_usd` must be 0 or more"),
        ({"logprobs": (float("-inf"),)}, "`logprobs` must be finite"),
        ({"sampling": {"t": float("nan")}}, "`sampling` must hold JSON values"),
        ({"decision_id": "d"}, "`system` must name the system"),
        ({"messages": (ChatMessage(role="tool", content="x"),)}, "`messages.0.role` must be one"),
        (
            {"messages": (ChatMessage(role="assistant", content="x"),)},
            "must end with the question",
        ),
    ],
)
def test_an_answer_that_breaks_a_rule_is_refused(
    tmp_path: Path, values: dict[str, Any], words: str
):
    with FeedbackStore(tmp_path / "store") as store:
        with pytest.raises(FeedbackRefusedError, match=words):
            store.log(answer(**values))
        assert n_rows(store, "interactions") == 0


def test_clicks_at_once_count_once(tmp_path: Path, url: str | None):
    stores = [FeedbackStore(tmp_path / "store", url=url) for _ in range(4)]
    stores[0].log(answer())
    with ThreadPoolExecutor(8) as pool:
        for number in range(10):
            mark = rating(number % 5 + 1, event_id=f"e{number}")
            found = list(pool.map(lambda one, m=mark: one.rate(m).status, stores * 2))
            assert sum(status != "duplicate" for status in found) == 1
        logged = list(pool.map(lambda one: one.log(answer("b")), stores * 2))
        assert len({repr(one) for one in logged}) == 1
    assert n_rows(stores[0], "ratings") == 10
    assert n_rows(stores[0], "interactions") == 2
    for one in stores:
        one.close()


def acknowledged(path: Path, lines: list[str]) -> None:
    """Check that a store holds what a child was told, each event once."""
    with FeedbackStore(path) as store:
        for line in lines:
            what, one, *value = line.split()
            assert store.interaction(one) is not None, line
            marks = store.fetch(
                "SELECT rating, thumbs FROM ratings WHERE interaction_id = ? ORDER BY seq", (one,)
            )
            if what == "rated":
                assert marks[0] == (int(value[0]), None)
            if what == "edited":
                assert marks == [marks[0], (None, "up")]
        assert store.fetch("PRAGMA integrity_check") == [("ok",)]


def kill_randomly(path: Path, rng: random.Random, n_kills: int) -> None:
    for number in range(n_kills):
        with start_child("tests.feedback.rater", path, f"k{number}", 10_000) as child:
            assert child.stdout is not None
            lines = [child.stdout.readline() for _ in range(rng.randint(1, 30))]
            child.send_signal(signal.SIGKILL)
            lines += child.stdout.read().rpartition("\n")[0].splitlines()
        acknowledged(path, [line for line in lines if line.strip()])


def test_a_killed_writer_loses_nothing_that_was_acknowledged(tmp_path: Path):
    kill_randomly(tmp_path / "store", random.Random(1), n_kills=2)


@pytest.mark.slow
def test_twelve_random_kills_lose_and_double_nothing(tmp_path: Path):
    kill_randomly(tmp_path / "store", random.Random(2), n_kills=12)


def test_machines_share_feedback_by_the_variable_of_the_runtime_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    url = postgres_server().new_schema()
    assert not FeedbackStore.exists_in(tmp_path / "one")
    monkeypatch.setenv("CONVERGENCE_RUNTIME", url)
    assert FeedbackStore.exists_in(tmp_path / "one")
    with FeedbackStore(tmp_path / "one") as one, FeedbackStore(tmp_path / "two") as two:
        one.log(answer())
        assert two.rate(rating(4)).status == "rated"
        assert one.rating("a", "ann") == two.rating("a", "ann")
    assert not (tmp_path / "one" / "feedback.sqlite").exists()
