"""Raters of a store beside each other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from convergence_core.feedback.records import Rating
from tasks.store.feedback.counts import comparable_raters, rater_sentences, store_consensus
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.feedback.answers import answer


@pytest.fixture
def store(tmp_path: Path, url: str | None) -> Iterator[FeedbackStore]:
    with FeedbackStore(tmp_path / "store", url=url) as opened:
        yield opened


@pytest.fixture
def local(tmp_path: Path) -> Iterator[FeedbackStore]:
    with FeedbackStore(tmp_path / "store") as opened:
        yield opened


def rate(store: FeedbackStore, name: str, user: str, stars: int) -> None:
    store.rate(
        Rating(interaction_id=name, user_id=user, rating=stars, created_us=1), any_user=True
    )


def test_the_last_mark_of_each_user_counts_and_one_taken_back_does_not(store: FeedbackStore):
    for name in ("a", "b"):
        store.log(answer(name))
        rate(store, name, "ann", 1)
        rate(store, name, "ann", 5)
        rate(store, name, "ben", 1)
    store.unrate("a", "ben")
    store.unrate("b", "ben")
    found = store_consensus(store)
    assert [(one.user_id, one.n_marks) for one in found.raters] == [("ann", 2)]
    assert comparable_raters(found) == ()
    assert rater_sentences(store) == []


def test_raters_of_the_same_answers_are_told_in_words(local: FeedbackStore):
    for k in range(12):
        local.log(answer(f"a{k}"))
        rate(local, f"a{k}", "mild", 4 + k % 2)
        rate(local, f"a{k}", "strict", 2 + k % 2)
    mild, strict = sorted(rater_sentences(local))
    assert mild.startswith("mild (rating): +0.")
    assert strict.startswith("strict (rating): -0.")
    assert mild.endswith("12 ratings, 12 of them shared")
