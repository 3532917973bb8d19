"""The planted prompt world is what its documentation says: interactions, order, an imperfect writer."""

from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.prompts import world, writer
from benchmarks.prompts.hill_climb import climb
from benchmarks.prompts.ours import configuration
from benchmarks.prompts.records import table
from benchmarks.prompts.world import (
    INTERACTIONS,
    KINDS,
    NAMES,
    NOISE_SD,
    PROPERTIES,
    START,
    World,
    best_text,
    cases,
    gap_closed,
    properties_of,
    quality,
)
from convergence_core.records import Case
from tasks.inputs.cases import split_holdout


def with_(*names: str) -> str:
    return " ".join([START, *(PROPERTIES[name].sentences[0] for name in names)])


def test_there_are_many_interacting_properties():
    assert len(NAMES) >= 8
    assert len({name for pair in INTERACTIONS for name in pair}) >= 8
    for name in NAMES:
        for sentence in PROPERTIES[name].sentences:
            assert properties_of(sentence) == [name]


def test_two_properties_hurt_alone_and_help_together():
    alone = [quality(with_(name)) for name in ("steps", "check")]
    assert max(alone) < quality(START) < quality(with_("steps", "check"))


def test_order_matters():
    assert quality(with_("check", "steps")) < quality(with_("steps", "check"))
    assert quality(with_("format", "facts")) < quality(with_("facts", "format"))


def test_the_optimum_has_all_of_the_way_and_the_start_none():
    assert gap_closed(START) == 0.0
    assert gap_closed(best_text()) == 1.0
    assert gap_closed(world.OTHER_START) == 0.0


def test_an_answer_is_as_noisy_as_promised():
    asked, case = World(1), cases()[0]
    text = with_("facts", "terms", "example", "format")
    scores = [asked.ask(text, case).score for _ in range(2000)]
    assert abs(np.std(scores) - NOISE_SD) < 0.02
    assert abs(np.mean(scores) - quality(text, case.kind)) < 0.02


def test_an_edit_succeeds_about_half_of_the_time():
    rng = np.random.default_rng(0)
    texts = [writer.revise(START, ["facts"], rng) for _ in range(2000)]
    share = np.mean(["facts" in properties_of(text) for text in texts])
    assert 0.4 < share < 0.5  # an edit may also lose what it added


def test_a_writer_that_lies_takes_out_what_is_there():
    rng = np.random.default_rng(0)
    found = [writer.revise(best_text(), [], rng, temper="lies") for _ in range(50)]
    assert np.mean([gap_closed(text) for text in found]) < 0.7


def test_a_request_of_the_engine_is_understood():
    symptom = PROPERTIES["facts"].symptom
    content = f"<operator>reflect</operator><prompt>{START}</prompt><failures>{symptom}</failures>"
    found = [writer.answer_request(content, np.random.default_rng(i)) for i in range(20)]
    assert any("only what the message says" in text for text in found)
    assert all(text.count("<prompt>") == 1 for text in found)


def test_search_and_held_out_cases_have_every_kind_alike():
    config = configuration(Path(), 0, 200, endpoint="")["evaluation"]["test_cases"]
    listed = {case["id"]: case["input"]["kind"] for case in config["inline"]}
    sides = split_holdout([Case(case_id=name, input=name) for name in listed], config["holdout"])
    for side in sides:
        assert Counter(listed[case.case_id] for case in side) == dict.fromkeys(KINDS, 2)


def test_a_climb_asks_no_more_than_it_may():
    assert 0.0 <= gap_closed(climb(0, 60)) <= 1.0
    assert "ahead" in table({"ours": {0: 0.9, 1: 0.8}, "climb": {0: 0.5, 1: 0.4}}, "ours")
