"""Filters in order: each counter counts what it dropped, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from convergence_core.config.optimization import SaoConfig
from convergence_core.judges.texts import jaccard, runs_of
from convergence_core.sao.duplicates import Duplicates
from convergence_core.sao.filters import FILTERS, FilterChain, held_out_runs, shortest_answer
from convergence_core.sao.preferences import Answer, Comparison
from tests.sao.planted import judged

WORDS = [f"{a}{b}" for a in ("tal", "ven", "mor", "sil", "gar") for b in range(400)]
LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
NONE = held_out_runs(())


def prompt(rng: np.random.Generator, n: int = 40) -> list[str]:
    return [str(w) for w in rng.choice(WORDS, n, replace=False)]


def edited(words: list[str], n: int, rng: np.random.Generator) -> list[str]:
    """Return a copy with n words replaced by new ones."""
    copy = list(words)
    for k, place in enumerate(rng.choice(len(words), n, replace=False)):
        copy[place] = f"edited{k}{rng.integers(1_000_000)}"
    return copy


def answer(text: str, reason: str | None = "stop") -> Answer:
    return Answer(text=text, author="a", finish_reason=reason)


def pair(first: str, second: str, text: str = "What is to be done about the roof?", k: int = 0):
    return Comparison(
        prompt=text, first=answer(first), second=answer(second), kind="incumbent", persona=k
    )


GOOD = pair(
    "Call the landlord today, take photographs, and put a bucket under the leak.",
    "Write a letter to the owner; until then, move what water could spoil away.",
)


def test_copies_with_one_or_two_edits_go_and_those_with_three_stay():
    rng = np.random.default_rng(0)
    duplicates = Duplicates()
    originals = [prompt(rng) for _ in range(150)]
    assert all(duplicates.add(" ".join(words)) for words in originals)
    for n, is_new in ((1, False), (2, False), (3, True), (4, True)):
        found = [duplicates.add(" ".join(edited(words, n, rng))) for words in originals]
        assert found == [is_new] * len(originals), n


def test_jaccard_is_the_share_of_words_in_common():
    rng = np.random.default_rng(1)
    words = prompt(rng)
    for n, expected in ((1, 0.951), (2, 0.905), (3, 0.860), (4, 0.818)):
        found = jaccard(frozenset(words), frozenset(edited(words, n, rng)))
        assert found == pytest.approx(expected, abs=1e-3)
    assert jaccard(frozenset(), frozenset()) == 1.0
    assert runs_of("a b c", 2) == {"a b", "b c"}
    assert runs_of("a", 2) == frozenset()


@pytest.mark.parametrize(
    ("answers", "least"),
    [
        ((), 1),
        (("sad", "happy", "angry", "neutral"), 1),
        (["a word or two"] * 9 + ["no"], 6),
        (["s" * 400] * 20, 50),
        (("", "  "), 1),
    ],
)
def test_the_shortest_answer_follows_those_that_were_seen(answers, least: int):
    assert shortest_answer(answers) == least


CUT = replace(GOOD, second=replace(GOOD.second, finish_reason="length"))
SIMILAR = replace(
    GOOD, second=replace(GOOD.first, text=GOOD.first.text.replace("bucket", "Bucket!"))
)


@pytest.mark.parametrize(
    ("broken", "dropped_by"),
    [
        (CUT, "incomplete"),
        (replace(GOOD, first=answer("", "stop")), "incomplete"),
        (replace(GOOD, second=replace(GOOD.second, finish_reason=None)), "incomplete"),
        (replace(GOOD, prompt=" "), "incomplete"),
        (replace(GOOD, first=answer("Too short.")), "length"),
        (replace(GOOD, first=answer("word " * 900)), "length"),
        (replace(GOOD, first=answer("I'm sorry, but I can't help with this request at all, no.")),
         "refusal"),
        (replace(GOOD, first=answer("As an AI language model, I have no roof of my own to mend.")),
         "refusal"),
        (replace(GOOD, first=answer("Dear [your name here], please do mend the roof, it leaks.")),
         "refusal"),
        (SIMILAR, "same_answers"),
    ],
)  # fmt: skip
def test_each_filter_drops_its_own_and_counts_it(broken, dropped_by):
    filters = FilterChain(SaoConfig(), NONE, answers=[LONG])
    assert filters.before_judging(broken) == dropped_by
    assert filters.counters == {name: int(name == dropped_by) for name in FILTERS}


def test_a_prompt_like_an_earlier_one_is_dropped_but_not_its_other_pairs():
    filters = FilterChain(SaoConfig(), NONE, known_prompts=["Who mends the fence of the garden?"])
    assert filters.before_judging(GOOD) is None
    third = answer("Ask three roofers for an offer, and wait for a week without any rain.")
    assert filters.before_judging(replace(GOOD, second=third)) is None
    assert filters.before_judging(GOOD) == "duplicate_prompt"
    assert filters.before_judging(replace(GOOD, persona=1)) == "duplicate_prompt"
    known = replace(GOOD, prompt="Who mends the fence of the garden", persona=2)
    assert filters.before_judging(known) == "duplicate_prompt"
    assert filters.counters["duplicate_prompt"] == 3


def test_a_planted_run_of_thirteen_words_is_found():
    held_out = held_out_runs([f"Please note: {LONG}, and so on"])
    planted = replace(GOOD, prompt=f"Tell me: {LONG.upper()}?")
    filters = FilterChain(SaoConfig(), held_out)
    assert filters.before_judging(planted) == "contaminated"
    assert filters.counters["contaminated"] == 1
    twelve = " ".join(LONG.split()[:12])
    assert filters.before_judging(replace(GOOD, prompt=f"So {twelve} what?", persona=4)) is None
    leak = replace(GOOD, first=answer(f"The answer is: {LONG}, as everybody knows."), persona=5)
    assert (
        filters.before_judging(replace(leak, prompt="Something else entirely?")) == "contaminated"
    )


def test_verdicts_that_differ_between_the_orders_are_dropped():
    filters = FilterChain(SaoConfig(), NONE)
    assert filters.after_judging(judged(GOOD, 0.75, 0.75)) is None
    assert filters.after_judging(judged(GOOD, 0.75, 0.25)) == "margin"
    filters.fail(2)
    assert filters.counters["incomplete"] == 2
