"""Files of answers and ratings: what trainers read, and what other tools export."""

import json
from pathlib import Path
from typing import Any

import pytest

from convergence.__main__ import run
from convergence_core.feedback.records import Rating
from tasks.store.feedback.dataset import RatingImport, interaction_rows, rating_rows, read_ratings
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.feedback.answers import answer


def rate(store: FeedbackStore, one: str, user: str = "ann", **mark: Any) -> None:
    store.rate(Rating(interaction_id=one, user_id=user, **mark))


def written(path: Path, value: Any) -> Path:
    text = value if isinstance(value, str) else json.dumps(value)
    path.write_text(text, encoding="utf-8")
    return path


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_answers_and_ratings_are_exported_by_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert run(["export", "interactions"]) == 2, "there is no store"
    with FeedbackStore(tmp_path / "convergence-data") as store:
        store.log(answer("a", created_us=1_700_000_000_000_000, is_shared=True))
        store.log(answer("b", role="code"))
        rate(store, "a", rating=5)
        rate(store, "a", "bob", rating=2, reason="long")
        rate(store, "a", "bob", rating=3, reason="long")
    assert run(["export", "interactions", "-o", "all.jsonl"]) == 0
    first, second = map(json.loads, Path("all.jsonl").read_text().splitlines())
    assert first == {
        "timestamp": "2023-11-14T22:13:20+00:00", "prompt": "What is 2 + 2?",
        "response": "It is a.", "reward": 0.5,
    }  # fmt: skip
    assert second["reward"] is None
    assert Path("all.jsonl").stat().st_mode & 0o077 == 0
    assert run(["export", "ratings", "--role", "assistant", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 2, "file": "ratings.jsonl"}
    marks = [json.loads(line) for line in Path("ratings.jsonl").read_text().splitlines()]
    assert [(m["user_id"], m["rating"], m["reward"], m["reason"]) for m in marks] == [
        ("ann", 5, 1.0, None), ("bob", 3, 0.0, "long"),
    ]  # fmt: skip
    assert run(["export", "ratings", "-o", "."]) == 2


def test_what_was_exported_is_imported_once(tmp_path: Path):
    with FeedbackStore(tmp_path / "one") as store:
        for number in range(1, 6):
            store.log(answer(str(number), prompt=f"question {number}"))
            rate(store, str(number), rating=number)
        store.log(answer("unrated"))
        rows = [*interaction_rows(store)]
        whole = [*interaction_rows(store, has_messages=True)]
    assert whole[0]["prompt"] == [{"role": "user", "content": "question 1"}]
    file = written(tmp_path / "rows.jsonl", lines(*rows))
    with FeedbackStore(tmp_path / "two") as other:
        assert read_ratings(other, file, "jsonl") == RatingImport(
            n_logged=6, n_rated=5, n_known=0, skipped={}
        )
        again = read_ratings(other, file, "jsonl")
        assert (again.n_logged, again.n_rated, again.n_known) == (0, 0, 5)
        assert [*interaction_rows(other)] == rows
        assert [one["rating"] for one in rating_rows(other)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([], "a row is not an object"),
        ({"prompt": "x"}, "a row has no response"),
        ({"response": "x"}, "a row has no prompt"),
        ({"prompt": [{"role": "user"}], "response": "x"}, "a message has no text"),
        ({"prompt": "x", "response": "y", "rating": 6}, "a rating is not from 1 to 5"),
        ({"prompt": "x", "response": "y", "reward": 0.3}, "a rating is not from 1 to 5"),
        ({"prompt": "x", "response": "y", "rating": "4"}, "a rating is not a number"),
        ({"prompt": [{"role": "tool", "content": "x"}], "response": "y"},
         "refused: `messages.0.role` must be one of system"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_kept_are_counted_by_reason(tmp_path: Path, row: Any, reason: str):
    good = {"prompt": "x", "response": "z", "thumbs": "up", "user_id": "u" * 300}
    file = written(tmp_path / "rows.jsonl", lines(row, good))
    with FeedbackStore(tmp_path / "store") as store:
        found = read_ratings(store, file, "jsonl")
    assert (found.n_rated, found.skipped) == (1, {reason: 1})


def open_webui(**changes: Any) -> dict[str, Any]:
    """Return feedback as Open WebUI exports it."""
    messages = {
        "m1": {"id": "m1", "parentId": None, "childrenIds": ["m2"], "role": "user",
               "content": "Name a river.", "timestamp": 1_700_000_000},
        "m2": {"id": "m2", "parentId": "m1", "childrenIds": ["m3"], "role": "assistant",
               "content": "The Rhine.", "model": "small", "timestamp": 1_700_000_001},
        "m3": {"id": "m3", "parentId": "m2", "childrenIds": ["m4"], "role": "user",
               "content": "Another one?", "timestamp": 1_700_000_002},
        "m4": {"id": "m4", "parentId": "m3", "childrenIds": [], "role": "assistant",
               "content": "The Elbe.", "model": "small", "timestamp": 1_700_000_003},
    }  # fmt: skip
    row = {
        "id": "f1", "user_id": "u1", "version": 0, "type": "rating",
        "data": {"rating": 1, "model_id": "small", "sibling_model_ids": None,
                 "reason": "accurate_information", "comment": "good river",
                 "details": {"rating": 7}},
        "meta": {"model_id": "small", "message_id": "m4", "chat_id": "c1"},
        "snapshot": {"chat": {"id": "c1", "chat": {"history": {"messages": messages,
                                                              "currentId": "m4"}}}},
        "created_at": 1_700_000_010, "updated_at": 1_700_000_010,
    }  # fmt: skip
    return row | changes


def test_feedback_of_open_webui_is_read_with_its_chat(tmp_path: Path):
    thumbs = open_webui(id="f2", user_id="u2", data={"rating": -1, "model_id": "small"})
    thumbs["meta"] = {**thumbs["meta"], "message_id": "m2"}
    lost = open_webui(id="f3", snapshot={})
    odd = open_webui(id="f4", data={"rating": 0, "model_id": "small"})
    file = written(tmp_path / "feedback.json", [open_webui(), thumbs, lost, odd])
    with FeedbackStore(tmp_path / "store") as store:
        found = read_ratings(store, file, "open-webui")
        assert (found.n_logged, found.n_rated) == (2, 2)
        assert found.skipped == {
            "the chat of a rating is not in the export": 1, "a rating is neither 1 nor -1": 1
        }  # fmt: skip
        ((one, first),) = store.history("u1")
        assert [m.content for m in one.messages] == ["Name a river.", "The Rhine.", "Another one?"]
        assert (one.response, one.model, one.conversation_id) == ("The Elbe.", "small", "c1")
        assert one.created_us == 1_700_000_003_000_000
        assert first is not None
        assert (first.rating, first.reason) == (
            4,
            "accurate_information: good river",
        )
        ((_, second),) = store.history("u2")
        assert second is not None
        assert second.thumbs == "down"
        assert read_ratings(store, file, "open-webui").n_known == 2


def test_scores_of_langfuse_find_the_answers_that_they_name(tmp_path: Path):
    def score(name: str, **values: Any) -> dict[str, Any]:
        given = {"id": name, "name": "quality", "traceId": "t1", "observationId": None,
                 "authorUserId": None, "comment": "why", "timestamp": "2026-01-02T03:04:05.000Z"}  # fmt: skip
        return given | values

    scores = [
        score("s1", dataType="NUMERIC", value=0.75),
        score("s2", dataType="BOOLEAN", value=0, traceId="t2", authorUserId="judge"),
        score("s3", dataType="CATEGORICAL", stringValue="Outstanding", observationId="o3"),
        score("s4", dataType="CATEGORICAL", stringValue="partly"),
        score("s5", dataType="NUMERIC", value=7),
        score("s6", dataType="NUMERIC", value=1, traceId="nobody's"),
        score("s7", dataType="NUMERIC", value=1, traceId=None),
    ]
    file = written(tmp_path / "scores.json", {"data": scores, "meta": {}})
    with FeedbackStore(tmp_path / "store") as store:
        for one, event in (("t1", "e1"), ("i2", "t2"), ("i3", "o3")):
            store.log(answer(one, event_id=event))
        found = read_ratings(store, file, "langfuse", scale=(0.0, 1.0))
        assert (found.n_logged, found.n_rated, sum(found.skipped.values())) == (0, 3, 4)
        (mark,) = store.ratings("t1")
        assert (mark.rating, mark.reason, mark.user_id) == (4, "why", "ann")
        assert mark.created_us == 1_767_323_045_000_000
        assert [m.words for m in store.ratings("i2")] == ["thumbs down"]
        assert [m.user_id for m in store.ratings("i2")] == ["judge"]
        assert [m.words for m in store.ratings("i3")] == ["5 Outstanding"]
        bare = read_ratings(store, file, "langfuse")
        assert bare.skipped["a numeric score has no scale: give --scale"] == 3
