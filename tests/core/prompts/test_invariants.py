"""What no written text may break, whoever wrote it."""

import json
import string
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from convergence_core.judges.texts import WordRuns
from convergence_core.prompts.invariants import (
    Invariants,
    held_out_texts,
    is_near_duplicate,
    kept_placeholders,
    placeholders_of,
)
from convergence_core.prompts.shots import Shot, joined, split
from convergence_core.records import Case

HIDDEN = "the seventh lighthouse keeper of Skagen never paid his grocer in silver"
HELD_OUT = Case(
    case_id="h",
    input={"text": HIDDEN},
    expected="an unpaid grocery bill",
)
PARENT = "Answer the question {input.q} in a {tone} tone."
NOTHING = held_out_texts([], [])
words = st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=8), min_size=0, max_size=30)


def verdict(
    text: str,
    *,
    parents: Sequence[str] = (PARENT,),
    known: Sequence[str] = (),
    shots: Sequence[Shot] = (),
    held_out: WordRuns = NOTHING,
    **limits: int,
) -> str | None:
    rules = Invariants(held_out=held_out, **{"max_length": 1000, "max_shots": 4, **limits})
    return rules.violation(text, parents=parents, known=known, shots=shots)


@given(words, words)
def test_placeholders_are_kept_all_and_no_other(before, after):
    text = f"{' '.join(before)} {{input.q}} {' '.join(after)} {{tone}} x"
    assert verdict(text) is None
    assert verdict(text.replace("{tone}", "tone")) == "placeholders"
    assert verdict(text + " {more}") == "placeholders"
    assert verdict(text.replace("{input.q}", "{input.q")) == "placeholders"
    assert placeholders_of(text) == ("{input.q}", "{tone}")


@given(words, words)
def test_a_merge_keeps_the_placeholders_of_both_parents(before, after):
    parents = (
        "Answer {q} now.",
        joined("Answer {q} from {page}.", [Shot(user="{x}", assistant="y")]),
    )
    text = f"{' '.join(before)} {{q}} {' '.join(after)} {{page}} x"
    assert kept_placeholders(parents) == ("{page}", "{q}")
    for order in (parents, parents[::-1]):
        assert verdict(text, parents=order) is None
        assert verdict(text.replace("{page}", "page"), parents=order) == "placeholders"
        assert verdict(text.replace("{q}", "q"), parents=order) == "placeholders"
        assert verdict(f"{text} {{x}}", parents=order) == "placeholders"


@pytest.mark.parametrize("text", ["", "  \n\t ", "<shots>\n</shots>"])
def test_empty_texts_are_refused(text):
    assert verdict(text) in ("empty", "shots", "placeholders")


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "a\x1b[31mb"])
def test_control_characters_are_refused(text):
    assert verdict(text, parents=()) == "unprintable"


def test_a_megabyte_is_too_long():
    assert verdict("word " * 250_000) == "too_long"


@given(words, words, st.integers(0, 4))
def test_eight_words_of_a_held_out_case_are_found_wherever_they_stand(before, after, start):
    held_out = held_out_texts([HELD_OUT], [])
    run = HIDDEN.split()[start : start + 8]
    text = " ".join([*before, "x", *run, "y", *after])
    assert verdict(text, parents=(), held_out=held_out, max_length=10_000) == "held_out"
    loud = " ".join([*before, "x", *(f"{word.upper()}," for word in run), "y", *after])
    assert verdict(loud, parents=(), held_out=held_out, max_length=10_000) == "held_out"
    shorter = " ".join(["x", *run[:7], "y"])
    assert verdict(shorter, parents=(), held_out=held_out) is None


def test_whole_held_out_texts_are_found_however_short():
    held_out = held_out_texts([HELD_OUT], [])
    assert (
        verdict("He left: An unpaid -- grocery bill!", parents=(), held_out=held_out) == "held_out"
    )
    assert verdict("He left an unpaid bill.", parents=(), held_out=held_out) is None


def test_a_demonstration_that_holds_a_held_out_case_is_refused():
    shot = Shot(user=HIDDEN, assistant="yes")
    held_out = held_out_texts([HELD_OUT], [])
    text = joined("Answer.", [shot])
    assert verdict(text, parents=(), held_out=held_out, shots=[shot]) == "held_out"


def test_what_search_cases_hold_too_is_no_leak():
    held_out = held_out_texts([HELD_OUT], [HIDDEN + " as everybody knows"])
    assert verdict(HIDDEN, parents=(), held_out=held_out) is None


def test_only_drawn_demonstrations_are_taken():
    shot = Shot(user="2 + 2", assistant="4")
    text = joined("Add.", [shot])
    assert verdict(text, parents=(), shots=[shot]) is None
    assert verdict(text, parents=()) == "shots"
    assert verdict("Add. <shot>", parents=()) == "shots"
    assert verdict(text, parents=(), shots=[shot], max_shots=0) == "shots"


def test_tools_keep_their_shape():
    tool = {"name": "find", "description": "finds", "parameters": {"q": {"type": "string"}}}
    parent = json.dumps(tool)
    better = json.dumps({**tool, "description": "finds a page by its title"})
    assert verdict(better, parents=(parent,)) is None
    for broken in (
        json.dumps({**tool, "name": "search"}),
        json.dumps({"name": "find", "description": "finds"}),
        better[:-1],
        "Use the tool find.",
    ):
        assert verdict(broken, parents=(parent,)) in ("schema", "placeholders")


def test_a_schema_in_a_fence_stays():
    parent = 'Answer as JSON:\n```json\n{"type": "object"}\n```'
    assert verdict(parent + "\nBe brief.", parents=(parent,)) is None
    assert verdict("Answer as JSON, briefly.", parents=(parent,)) == "schema"


def test_near_duplicates_differ_in_punctuation_alone_or_in_a_word_of_many():
    known = ["Answer with one word, please."]
    assert is_near_duplicate("answer  with one word please", known)
    assert not is_near_duplicate("Answer with two words, please.", known)
    long = " ".join(f"word{n}" for n in range(600))
    assert is_near_duplicate(long.replace("word300", "other"), [long])
    ordered = "First look. Then decide. Then write the answer down."
    assert not is_near_duplicate("Then decide. First look. Then write the answer down.", [ordered])


def test_another_order_of_demonstrations_is_another_text():
    a, b = Shot(user="1", assistant="2"), Shot(user="3", assistant="4")
    assert not is_near_duplicate(joined("Add.", [a, b]), [joined("Add.", [b, a])])
    assert is_near_duplicate(joined("Add.", [a, b]), [joined("add", [a, b])])


plain = st.text(st.characters(codec="utf-8", exclude_characters="<>"), min_size=1).filter(
    lambda text: bool(text.strip())
)


@given(plain.filter(lambda t: t == t.rstrip()), st.lists(st.tuples(plain, plain), max_size=4))
def test_demonstrations_are_read_as_they_were_written(instruction, pairs):
    shots = tuple(Shot(user=u, assistant=a) for u, a in pairs)
    assert split(joined(instruction, shots)) == (instruction, shots)
