"""Split of prompts, and what writer, judge and distiller are asked."""

import pytest

from convergence_core.sao.preferences import split_of
from convergence_core.sao.templates import OPENING, prompt_of


def test_a_tenth_of_the_prompts_is_frozen_by_their_words_alone():
    prompts = [f"Question number {k} about the garden" for k in range(2_000)]
    share = sum(split_of(p) == "audit" for p in prompts) / len(prompts)
    assert share == pytest.approx(0.1, abs=0.02)
    assert split_of("Where, then?") == split_of("where then")


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
