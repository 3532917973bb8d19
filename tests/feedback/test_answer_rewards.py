"""Rewards of a store's answers, and their export."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from convergence.__main__ import run
from convergence_core.feedback.records import Rating
from tasks.store.feedback.answer_rewards import AnswerReward, answer_rewards
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.feedback.answers import answer


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FeedbackStore]:
    with FeedbackStore(tmp_path / "store") as opened:
        yield opened


def rate(store: FeedbackStore, name: str, stars: int, user: str = "ann") -> None:
    store.rate(Rating(interaction_id=name, user_id=user, rating=stars), any_user=True)


def rewards(store: FeedbackStore) -> dict[str, AnswerReward]:
    return {one.interaction_id: reward for one, reward in answer_rewards(store)}


def test_the_consensus_is_the_rating_once_two_rated_the_same(store: FeedbackStore):
    for k in range(12):
        store.log(answer(f"a{k}"))
        rate(store, f"a{k}", 4 + k % 2, "mild")
    store.log(answer("mild alone"))
    rate(store, "mild alone", 4, "mild")
    before = rewards(store)["mild alone"].training
    for k in range(12):
        rate(store, f"a{k}", 2 + k % 2, "strict")
    after = rewards(store)["mild alone"].training
    assert before == pytest.approx(0.5)
    assert after is not None
    assert after < 0.3


def test_an_unsafe_answer_is_negative_and_keeps_its_mark(store: FeedbackStore):
    store.log(answer("bad", response="You see, I made that up."))
    rate(store, "bad", 5)
    found = rewards(store)["bad"]
    assert (found.training, found.rating) == (-1.0, 1.0)
    mark = store.rating("bad", "ann")
    assert mark is not None
    assert mark.rating == 5


def test_the_export_holds_what_trains(store: FeedbackStore, tmp_path: Path):
    store.log(answer("a", response="I made that up."))
    rate(store, "a", 4)
    store.log(answer("b", role="code"))
    file = tmp_path / "rows.jsonl"
    command = ["export", "interactions", "--training", "-o", str(file), "--store", str(store.root)]
    assert run([*command, "--role", "assistant"]) == 0
    (row,) = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert row.pop("timestamp")
    assert row == {
        "interaction_id": "a",
        "prompt": "What is 2 + 2?", "response": "I made that up.", "reward": 0.5,
        "training_reward": -1.0, "safety_flags": ["made up"],
    }  # fmt: skip
