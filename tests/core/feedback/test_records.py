"""Scales of ratings: what a mark is worth, and what is none."""

import pytest

from convergence_core.errors import FeedbackRefusedError
from convergence_core.feedback.records import (
    LABELS,
    AnswerComparison,
    ChatMessage,
    Interaction,
    Rating,
    check_rating,
)


def rating(**values: object) -> Rating:
    return Rating(interaction_id="i", user_id="u", **values)  # type: ignore[arg-type]


def test_ratings_are_worth_minus_one_to_one_and_to_an_arm_zero_to_one():
    marks = [rating(rating=number) for number in LABELS]
    assert [one.reward for one in marks] == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert [one.arm_reward for one in marks] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [one.words for one in marks] == [
        "1 Poor", "2 Average", "3 Good", "4 Excellent", "5 Outstanding"
    ]  # fmt: skip


def test_thumbs_are_the_ends_of_the_scale():
    up, down = rating(thumbs="up"), rating(thumbs="down")
    assert (up.reward, up.arm_reward, up.words) == (1.0, 1.0, "thumbs up")
    assert (down.reward, down.arm_reward, down.words) == (-1.0, 0.0, "thumbs down")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((one, repr(one)) for one in (0, 6, -1, 2.5, True)),
        *((one, f"a value of type {type(one).__name__}") for one in ("4", None, 10**5_000)),
        (float("nan"), "a value of type float"),
    ],
    ids=range(9),
)
def test_what_is_off_the_scale_is_refused_with_key_rule_value_and_fix(value: object, shown: str):
    with pytest.raises(FeedbackRefusedError) as refusal:
        check_rating(value)
    assert str(refusal.value) == (
        f"`rating` must be a whole number from 1 to 5, but got {shown}. "
        "Give one of 1 Poor, 2 Average, 3 Good, 4 Excellent, 5 Outstanding."
    )


def test_a_mark_is_a_rating_or_thumbs_and_not_both():
    for given, words in (({}, "neither"), ({"rating": 3, "thumbs": "up"}, "both")):
        with pytest.raises(FeedbackRefusedError, match=f"not both, but got {words}"):
            rating(**given)
    with pytest.raises(FeedbackRefusedError, match="`thumbs` must be up or down"):
        rating(thumbs="left")
    with pytest.raises(FeedbackRefusedError, match="from 1 to 5, but got 6"):
        rating(rating=6)


def test_the_same_mark_for_another_reason_is_another_mark():
    assert rating(rating=4).is_same_mark(rating(rating=4, created_us=5))
    assert not rating(rating=4).is_same_mark(rating(rating=4, reason="clear"))
    assert not rating(rating=5).is_same_mark(rating(thumbs="up"))
    assert not rating(rating=5).is_same_mark(None)


def test_a_comparison_names_two_answers():
    def compared(**values: str) -> AnswerComparison:
        return AnswerComparison(**{"chosen_id": "b", "rejected_id": "a", "user_id": "u", **values})  # type: ignore[arg-type]

    assert compared().place == compared(chosen_id="a", rejected_id="b").place == ("a", "b")
    assert compared().is_same_mark(compared(first_id="a"))
    assert not compared().is_same_mark(compared(chosen_id="a", rejected_id="b"))
    assert not compared().is_same_mark(None)
    with pytest.raises(FeedbackRefusedError, match="another interaction than `chosen_id`"):
        compared(rejected_id="b")
    with pytest.raises(FeedbackRefusedError, match="must be `chosen_id` or `rejected_id`"):
        compared(first_id="c")


def test_what_was_asked_leaves_system_messages_out():
    one = Interaction(
        interaction_id="i", source="s", event_id="e", role="assistant", user_id="u", model="m",
        messages=(ChatMessage(role="system", content="be brief"),
                  ChatMessage(role="user", content="hello")),
        response="hi", created_us=1,
    )  # fmt: skip
    assert one.asked == (ChatMessage(role="user", content="hello"),)
