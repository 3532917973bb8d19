"""Metrics of held-out answers: their definitions, their pairing by prompts, their form in the store."""

import json
import math

import pytest

from convergence_core.feedback.held_out import HeldOutAnswer
from convergence_core.feedback.held_out_metrics import (
    UNITS,
    HeldOutMetric,
    chrf,
    held_out_metrics,
    metrics_json,
    metrics_of,
)


def answers(**texts: str) -> list[HeldOutAnswer]:
    return [HeldOutAnswer(prompt_key=key, text=text) for key, text in texts.items()]


def by_name(*found: HeldOutMetric) -> dict[str, HeldOutMetric]:
    return {one.name: one for one in found}


def test_chrf_is_the_f_score_of_character_n_grams():
    assert chrf("It is Lima.", "It is Lima.") == 1.0
    assert chrf("It is Lima.", " It  is\nLima. ") == 1.0
    assert (chrf("", "Lima"), chrf("Lima", ""), chrf("abc", "xyz")) == (0.0, 0.0, 0.0)
    # By hand: of "ab" in "abc", precision 1 and 1, recall 2/3 and 1/2 for n = 1, 2.
    precision, recall = 1.0, (2 / 3 + 1 / 2) / 2
    assert chrf("ab", "abc") == pytest.approx(5 * precision * recall / (4 * precision + recall))
    # Recall counts for more: what is left out costs more than what is added.
    assert chrf("Lima", "It is Lima.") < chrf("It is Lima.", "Lima")
    # "aa" is found once in "ab": a gram counts as often as both have it.
    assert chrf("aa", "ab") == pytest.approx(0.25)
    assert 0.0 < chrf("x" * 10**6 + "a", "x" * 10**6 + "b") <= 1.0


def test_metrics_are_paired_by_prompts_and_have_intervals():
    old = answers(p="It is far too long an answer: Lima", q="Oslo and Bergen", r="a b")
    new = answers(p="Lima", q="Oslo", r="a")
    found = by_name(
        *held_out_metrics(
            new,
            old,
            liked={"p": ["Quito", "Lima"], "q": ["Oslo"]},
            new_nats={"p": 0.5, "q": 1.0},
            old_nats={"p": 1.5, "q": 1.0},
        )
    )
    assert list(found) == ["perplexity", "chrf", "similarity", "length"]  # nobody has rated
    assert all(UNITS[name] == one.unit for name, one in found.items())
    perplexity = found["perplexity"]
    assert perplexity.before == pytest.approx(math.exp(1.25))
    assert perplexity.after == pytest.approx(math.exp(0.75))
    assert perplexity.change == pytest.approx(math.exp(-0.5))
    assert perplexity.n_prompts == 2
    half = (
        12.706205 * 0.5
    )  # Student's t with one degree of freedom times the standard error of (-1, 0)
    assert perplexity.low == pytest.approx(math.exp(-0.5 - half))
    assert perplexity.high == pytest.approx(math.exp(-0.5 + half), rel=1e-6)
    assert perplexity.change_words.startswith("times 0.607 [")
    assert found["chrf"].after == 1.0
    assert found["similarity"].after == pytest.approx(1.0)
    assert found["chrf"].n_prompts == found["similarity"].n_prompts == 2
    assert found["chrf"].change == pytest.approx(1.0 - found["chrf"].before)
    length = found["length"]
    assert length.before == pytest.approx(13 / 3)
    assert (length.after, length.n_prompts) == (1.0, 3)
    assert length.low is not None
    assert length.high is not None
    assert length.low < length.change < length.high
    assert length.change_words.startswith("-3.33 [")


def test_several_answers_to_a_prompt_count_as_their_mean():
    old = answers(p="a a a a", q="a")
    new = [*answers(p="a", q="a"), *answers(p="a a a")]
    found = held_out_metrics(new, old, liked={}, new_nats={}, old_nats={})
    assert [(one.name, one.after) for one in found] == [("length", 1.5)]
    rated = [HeldOutAnswer(prompt_key="p", text="a", reward=reward) for reward in (0.0, 0.5)]
    before = [HeldOutAnswer(prompt_key="p", text="a", reward=0.75)]
    rating = by_name(*held_out_metrics(rated, before, liked={}, new_nats={}, old_nats={}))[
        "rating"
    ]
    assert (rating.before, rating.after, rating.change) == (0.75, 0.25, -0.5)
    assert (rating.low, rating.high, rating.change_words) == (None, None, "-0.5")


def test_what_is_stored_is_read_again():
    told = held_out_metrics(
        answers(p="a b"), answers(p="a"), liked={}, new_nats={"p": 1.0}, old_nats={"p": 2.0}
    )
    assert metrics_of(json.loads(json.dumps(metrics_json(told)))) == told
    assert metrics_of(None) == metrics_of({}) == metrics_of({"unknown": {}}) == ()
