"""Split of prompts, and what writer, judge and distiller are asked."""

from typing import Any

import pytest

from convergence_core.config import parse_mapping
from convergence_core.sao.preferences import split_of
from convergence_core.sao.round_plan import outlook
from convergence_core.sao.templates import OPENING, prompt_of
from tests.config.test_rules_of_society import LLM
from tests.support.config_examples import MINIMAL, edited


def test_a_tenth_of_the_prompts_is_frozen_by_their_words_alone():
    prompts = [f"Question number {k} about the garden" for k in range(2_000)]
    share = sum(split_of(p) == "audit" for p in prompts) / len(prompts)
    assert share == pytest.approx(0.1, abs=0.02)
    assert split_of("Where, then?") == split_of("where then")
    audited = [k for k in range(20) if split_of(f"prompt {k}") == "audit"]
    assert audited == [0, 3, 6, 12, 16], "stored pairs would change their split"


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


# -- what is said before a run


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "up to 3 rounds, the first after 3 generations if the run lasts; the judge's audit needs 50"),
        ({"optimization": {"evolution": {"generations": 3}}}, "no round: the run has 3 generations"),
        ({"society/sao": {"audit_items": 10}}, "its audits have at most 30 of the 50 different items"),
        ({"evaluation/metrics": {"latency_ms": {"direction": "lower", "scale": {"good": 100, "bad": 900}}}},
         "no metric is executed, so the judge cannot be audited"),
    ],
)  # fmt: skip
def test_it_is_said_beforehand_whether_a_round_comes_and_a_judge_can_pass(
    changes: dict[str, Any], words: str
):
    society = {"enabled": True, "learning": {"sao_enabled": True}}
    tree = edited({"llm": LLM, "society": society, "budget": {"max_usd": 1.0}}, MINIMAL)
    said = outlook(parse_mapping(edited(changes, tree)), 12)
    assert said is not None
    assert words in said
    assert outlook(parse_mapping(MINIMAL), 12) is None
