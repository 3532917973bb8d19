"""Rules of form: what a collapsed model writes is found, what people write is not."""

import pytest

from convergence_core.feedback.held_out import (
    LONGEST_PERIOD,
    LONGEST_RUN,
    MAX_PHRASE_REPEATS,
    form_fault,
)

CODE = "\n".join(f"    total = total + values[{i}]" for i in range(30))
TABLE = f"| a | b |\n|{'-' * 60}|{'-' * 60}|\n| 1 | 2 |"


@pytest.mark.parametrize("text", ["Lima.", "ok", "日本の首都は東京です。", "Да, это так!", "🙂 yes", CODE, TABLE,
                                  "no no no, that is not what I meant", "a\tb\r\nc"])  # fmt: skip
def test_what_people_write_is_well_formed(text: str):
    assert form_fault(text) is None


@pytest.mark.parametrize("text", ["", "   ", "\n\t \n", "\u00a0"])
def test_nothing_is_empty(text: str):
    assert form_fault(text) == "empty"


@pytest.mark.parametrize("text", ["\ufffd" * 5, "ab\x00\x01", "\ud800\udfff", "caf\ufffd \ufffd"])
def test_broken_characters_are_unreadable(text: str):
    assert form_fault(text) == "unreadable"


def test_one_broken_character_in_a_long_answer_is_readable():
    assert form_fault("word number one and two " * 3 + "\ufffd") is None


@pytest.mark.parametrize("n_words", [2, 3, 7, LONGEST_PERIOD])
def test_a_phrase_may_be_said_so_often_and_no_more(n_words: int):
    phrase = " ".join(f"word{k}" for k in range(n_words))
    said = max(MAX_PHRASE_REPEATS, -(-8 // n_words))
    assert form_fault(" ".join([phrase] * said)) is None
    assert form_fault("well, " + " ".join([phrase] * (said + 1))) == "in a loop"


def test_a_word_may_be_said_eight_times():
    assert form_fault("no " * 8) is None
    assert form_fault("no " * 9) == "in a loop"


def test_a_character_may_follow_itself_so_often_and_no_more():
    assert form_fault("x" * LONGEST_RUN) is None
    assert form_fault("x" * (LONGEST_RUN + 1)) == "in a loop"
    assert form_fault("a" + " " * 10_000 + "b") is None  # blanks are no loop
