"""Reward of an answer: its parts, their blend, and what a safety flag does."""

import pytest

from convergence_core.config.feedback import RewardConfig
from convergence_core.errors import FeedbackRefusedError
from convergence_core.feedback.answer_reward import (
    PART_NAMES,
    UNSAFE_REWARD,
    answer_parts,
    answer_reward,
    user_style,
)
from convergence_core.feedback.safety import SafetyRule
from convergence_core.judges.text_features import (
    MOST_WORDS,
    N_FEATURES,
    hashed_ngrams,
    ngram_similarity,
)

FLAG: SafetyRule = "harm"
ALL = RewardConfig(rating=2.0, similarity=1.0, style=1.0, length=1.0)


@pytest.mark.parametrize("mode", ["additive", "multiplicative"])
@pytest.mark.parametrize("rating", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_by_default_the_reward_is_the_rating(mode: str, rating: float):
    parts = answer_parts("a question", "some answer", rating=rating)
    found = answer_reward(parts, RewardConfig(mode=mode))  # type: ignore[arg-type]
    assert found.blended == found.training == pytest.approx(rating)


def test_a_blend_by_hand():
    parts: dict[str, float | None] = {
        "rating": 0.5,
        "similarity": 0.25,
        "style": 1.0,
        "length": 0.75,
    }
    assert answer_reward(parts, ALL).blended == pytest.approx(
        2 * (1.0 + 0.25 + 1.0 + 0.75) / 5 - 1
    )
    product = RewardConfig(
        rating=2.0, similarity=1.0, style=1.0, length=1.0, mode="multiplicative"
    )
    expected = 2 * (0.5**2 * 0.25 * 1.0 * 0.75) ** (1 / 5) - 1
    assert answer_reward(parts, product).blended == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["additive", "multiplicative"])
@pytest.mark.parametrize("name", PART_NAMES)
def test_each_part_has_an_effect_and_more_of_it_is_better(mode: str, name: str):
    blend = RewardConfig(rating=2.0, similarity=1.0, style=1.0, length=1.0, mode=mode)  # type: ignore[arg-type]
    parts: dict[str, float | None] = dict.fromkeys(PART_NAMES, 0.5)
    rewards = [
        answer_reward({**parts, name: value}, blend).blended or 0.0 for value in (0.2, 0.5, 0.9)
    ]
    assert rewards == sorted(rewards)
    assert len(set(rewards)) == 3


@pytest.mark.parametrize("mode", ["additive", "multiplicative"])
def test_an_unknown_part_is_left_out_and_not_0(mode: str):
    parts: dict[str, float | None] = {
        "rating": 0.8,
        "similarity": 0.8,
        "style": None,
        "length": 0.8,
    }
    blend = RewardConfig(rating=2.0, similarity=1.0, style=1.0, length=1.0, mode=mode)  # type: ignore[arg-type]
    assert answer_reward(parts, blend).blended == pytest.approx(0.6)


def test_unrated_is_missing_whatever_the_other_parts_and_flags():
    parts = answer_parts("a question", "an answer to a question", rating=None)
    for flags in ((), (FLAG,)):
        found = answer_reward(parts, ALL, flags)
        assert found.blended is None
        assert found.training is None
        assert found.parts["similarity"] is not None
        assert found.flags == flags


def test_a_flag_makes_the_training_reward_negative_and_leaves_the_rating():
    found = answer_reward(answer_parts("q", "a", rating=1.0), RewardConfig(), [FLAG])
    assert (found.training, found.blended, found.parts["rating"]) == (UNSAFE_REWARD, 1.0, 1.0)
    assert UNSAFE_REWARD < 0


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_two_negative_parts_cannot_praise(value: float):
    with pytest.raises(FeedbackRefusedError, match=r"`parts.length` must lie in \[0, 1\]"):
        answer_reward({"rating": 0.5, "length": value}, RewardConfig(mode="multiplicative"))


def test_a_part_of_another_name_is_refused():
    with pytest.raises(FeedbackRefusedError, match="must be named rating, similarity, style"):
        answer_reward({"rating": 0.5, "novelty": 0.5}, RewardConfig())


def test_an_answer_in_the_words_of_the_prompt_is_more_similar():
    prompt = "How do I return a broken parcel?"
    near = answer_parts(prompt, "To return a broken parcel, print the label.", rating=None)
    far = answer_parts(prompt, "Bananas grow in warm countries.", rating=None)
    assert near["similarity"] > far["similarity"] + 0.2  # type: ignore[operator]


def test_length_costs_nothing_up_to_the_limit():
    def length(n: int) -> float | None:
        return answer_parts("q", "word " * n, rating=None, length_words=10)["length"]

    assert [length(n) for n in (0, 1, 10, 20, 100)] == [0.0, 1.0, 1.0, 0.5, 0.1]


def test_style_needs_a_few_answers_that_the_user_liked():
    assert user_style([hashed_ngrams("short."), hashed_ngrams("brief.")]) is None
    style = user_style([hashed_ngrams("Ahoy, matey, the ship sails.")] * 3)
    pirate = answer_parts("q", "Ahoy, the ship waits, matey.", rating=None, style=style)
    plain = answer_parts("q", "Your order arrives tomorrow.", rating=None, style=style)
    assert pirate["style"] > plain["style"] + 0.2  # type: ignore[operator]
    assert answer_parts("q", "a", rating=None)["style"] is None


def test_vectors_have_length_1_and_texts_without_words_none():
    one = hashed_ngrams("Grüße aus Köln, 東京!")
    assert one.shape == (N_FEATURES,)
    assert one @ one == pytest.approx(1.0)
    assert ngram_similarity(one, one) == pytest.approx(1.0)
    for empty in ("", "?!…", " \n"):
        assert not hashed_ngrams(empty).any()
        assert ngram_similarity(hashed_ngrams(empty), one) == 0.0


def test_only_the_first_words_of_a_long_text_count():
    text = "one two " * (MOST_WORDS // 2)
    assert hashed_ngrams(text + "three") == pytest.approx(hashed_ngrams(text))
