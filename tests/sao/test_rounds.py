"""Rounds, their frozen tenth, and what writer, judge and distiller are asked."""

import pytest

from convergence_core.sao.preferences import Judgement, split_of
from convergence_core.sao.rounds import Rounds, agreement
from convergence_core.sao.templates import OPENING, prompt_of


def test_a_tenth_of_the_prompts_is_frozen_by_their_words_alone():
    prompts = [f"Question number {k} about the garden" for k in range(2_000)]
    share = sum(split_of(p) == "audit" for p in prompts) / len(prompts)
    assert share == pytest.approx(0.1, abs=0.02)
    assert split_of("Where, then?") == split_of("where then")


def said(sign: str) -> Judgement:
    p = 0.8 if sign == "+" else 0.2
    return Judgement(p12=p, p21=p, estimator="x")


def test_agreement_with_frozen_verdicts_needs_five_of_them():
    def repeated(before: str, again: str) -> float | None:
        return agreement([(said(a), said(b)) for a, b in zip(before, again, strict=True)])

    assert repeated("++++", "++++") is None
    assert repeated("++--+", "++-+-") == pytest.approx(0.6)


def test_rounds_end_at_their_limit_or_by_a_fall():
    two = Rounds(limit=2).after(None)
    assert two.stop_reason is None
    assert two.after(0.9).stop_reason == "all 2 rounds were run"
    state = Rounds(limit=9).after(0.90).after(0.86)
    assert state.stop_reason is None
    fallen = state.after(0.85)
    assert fallen.stop_reason == "the judge repeats 85% of its frozen verdicts, after 90%"

    assert Rounds.from_json(fallen.to_json(), limit=9) == fallen


# -- templates


def test_a_written_prompt_begins_as_it_must():
    assert prompt_of(f'  {OPENING.lower()} "Where is it?" ') == "Where is it?"
    for said in (
        "Where is it?",
        "Sure, here is one:\n\n\u201cWhere is it?\u201d",
        "**User prompt:** Where is it?",
    ):
        assert prompt_of(said) == "Where is it?"
    assert prompt_of("I'm sorry, but I cannot help with that.") is None
    assert prompt_of(OPENING) is None
