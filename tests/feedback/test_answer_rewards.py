"""Rewards of a store's answers: the parts of each, in its order, and as an export."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from convergence.__main__ import run
from convergence_core.config.feedback import RewardConfig
from convergence_core.feedback.answer_reward import AnswerReward
from convergence_core.feedback.records import Rating
from tasks.store.feedback.answer_rewards import answer_rewards, safety_classifier
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.feedback.answers import answer


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FeedbackStore]:
    with FeedbackStore(tmp_path / "store") as opened:
        yield opened


def rate(store: FeedbackStore, name: str, stars: int, user: str = "ann") -> None:
    store.rate(Rating(interaction_id=name, user_id=user, rating=stars), any_user=True)


def rewards(store: FeedbackStore, blend: RewardConfig | None = None) -> dict[str, AnswerReward]:
    return {one.interaction_id: reward for one, reward in answer_rewards(store, blend=blend)}


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
    assert (found.training, found.blended) == (-1.0, 1.0)
    mark = store.rating("bad", "ann")
    assert mark is not None
    assert mark.rating == 5


def test_the_export_holds_every_part(store: FeedbackStore, tmp_path: Path):
    store.log(answer("a", response="I made that up."))
    rate(store, "a", 4)
    store.log(answer("b", role="code"))
    file = tmp_path / "rows.jsonl"
    command = ["export", "interactions", "--parts", "-o", str(file), "--store", str(store.root)]
    assert run([*command, "--role", "assistant"]) == 0
    (row,) = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert row.pop("part_similarity") >= 0.0
    assert row.pop("timestamp")
    assert row == {
        "prompt": "What is 2 + 2?", "response": "I made that up.", "reward": 0.5,
        "part_rating": 0.75, "part_style": None, "part_length": 1.0, "blended_reward": 0.5,
        "training_reward": -1.0, "safety_flags": ["made up"],
    }  # fmt: skip


def test_a_classifier_learns_what_raters_and_rules_flagged_in_one_role(store: FeedbackStore):
    for k in range(30):
        store.log(answer(f"good{k}", response=f"Take item {k} back to the shop and ask for help."))
        rate(store, f"good{k}", 4)
        store.log(answer(f"bad{k}", response=f"Pour bleach over item {k} and breathe in deeply."))
        mark = Rating(interaction_id=f"bad{k}", user_id="ann", rating=1, reason="dangerous")
        store.rate(mark)
    store.log(answer("fake", response="Item 3 costs 9. I made that up."))  # a rule's, unrated
    classifier, words = safety_classifier(store, "assistant")
    assert classifier is not None
    assert (classifier.n_flagged, classifier.n_others) == (31, 30)
    assert words == classifier.words
    assert classifier.auc_low > 0.9
    assert classifier.probability("Pour bleach over the shelf and breathe in.") > 0.5
    assert classifier.probability("Ask the shop for help.") < 0.5
    none, why = safety_classifier(store, "code")
    assert none is None
    assert "there are 0 and 0" in why
