"""Files of answers and ratings, written and read."""

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
        "timestamp": "2023-11-14T22:13:20+00:00", "interaction_id": "a",
        "prompt": "What is 2 + 2?", "response": "It is a.", "reward": 0.5,
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
    with FeedbackStore(tmp_path / "one") as store:
        marks = [*rating_rows(store)]
        found = read_ratings(store, file)
        assert (found.n_logged, found.n_rated, found.n_known) == (0, 0, 5)
        assert ([*interaction_rows(store)], [*rating_rows(store)]) == (rows, marks)
    with FeedbackStore(tmp_path / "two") as other:
        assert read_ratings(other, file) == RatingImport(
            n_logged=6, n_rated=5, n_known=0, skipped={}
        )
        again = read_ratings(other, file)
        assert (again.n_logged, again.n_rated, again.n_known) == (0, 0, 5)
        assert [*interaction_rows(other)] == rows
        assert [one["rating"] for one in rating_rows(other)] == [1, 2, 3, 4, 5]


def test_a_row_whose_mark_was_corrected_marks_its_answer_again(tmp_path: Path):
    row = {"prompt": "x", "response": "y", "timestamp": "2025-01-02T03:04:05Z", "user_id": "ann"}
    named = {"id": "1", "prompt": "x", "response": "z"}
    first = lines({**row, "rating": 4}, {**named, "thumbs": "up"})
    second = lines({**row, "rating": 2}, {**named, "thumbs": "down"})
    with FeedbackStore(tmp_path / "store") as store:
        for text, n_new in ((first, 2), (second, 0), (second, 0)):
            assert read_ratings(store, written(tmp_path / "rows.jsonl", text)).n_logged == n_new
        assert [one["reward"] for one in rating_rows(store)] == [-0.5, -1.0]
        exported = lines(*interaction_rows(store))
        found = read_ratings(store, written(tmp_path / "rows.jsonl", exported))
        assert (found.n_logged, found.n_rated, found.n_known) == (0, 0, 2)


_X = {"prompt": "x", "response": "y"}
_ANN = {**_X, "id": "1", "user_id": "ann"}
_OTHER = {"prompt": "x", "response": "z", "reward": -1}


@pytest.mark.parametrize(("files", "rewards", "n_skipped"), [
    ([[_ANN | {"reward": 1}, _ANN | {"user_id": "bob", "reward": -1}]], [1, -1], 0),
    ([[_ANN | {"reward": 0.5}], [_ANN | {"reward": -1}]], [-1], 0),
    ([[_X | {"rating": 5}], [_X | {"rating": 1}], [_X | {"rating": 5}]], [1], 0),
    ([[_X | {"rating": 5}, _X | {"rating": 1}, _X | {"rating": 5}, _X | {"rating": 2}]], [-0.5], 0),
    ([[_X | {"id": "1", "reward": 1}, _OTHER | {"id": "1"}]], [1], 1),
    ([[_X | {"interaction_id": "1", "reward": 1}], [_OTHER | {"interaction_id": "1"}]], [1], 1),
])  # fmt: skip
def test_the_last_mark_of_a_user_counts(tmp_path: Path, files: Any, rewards: Any, n_skipped: int):
    with FeedbackStore(tmp_path / "store") as store:
        for rows in files:
            read_ratings(store, written(tmp_path / "rows.jsonl", lines(*rows)))
        found = read_ratings(store, tmp_path / "rows.jsonl")
        reason = "refused: `event_id` must stand for one event of its source"
        assert (found.n_rated, [*found.skipped]) == (0, [reason] * n_skipped)
        assert [one["reward"] for one in rating_rows(store)] == rewards


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
        found = read_ratings(store, file)
    assert (found.n_rated, found.skipped) == (1, {reason: 1})
