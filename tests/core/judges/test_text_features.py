"""Hashed n-grams of texts."""

import pytest

from convergence_core.judges.text_features import MOST_WORDS, N_FEATURES, hashed_ngrams


def test_vectors_have_length_1_and_texts_without_words_none():
    vector = hashed_ngrams("Grüße aus Köln, 東京!")
    assert vector.shape == (N_FEATURES,)
    assert vector @ vector == pytest.approx(1.0)
    for empty in ("", "?!…", " \n"):
        assert not hashed_ngrams(empty).any()


def test_a_text_in_the_same_words_is_nearer():
    prompt = hashed_ngrams("How do I return a broken parcel?")
    near = hashed_ngrams("To return a broken parcel, print the label.")
    far = hashed_ngrams("Bananas grow in warm countries.")
    assert prompt @ near > prompt @ far + 0.2


def test_only_the_first_words_of_a_long_text_count():
    text = "one two " * (MOST_WORDS // 2)
    assert hashed_ngrams(text + "three") == pytest.approx(hashed_ngrams(text))
