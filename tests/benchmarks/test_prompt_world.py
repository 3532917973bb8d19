"""The planted prompt world is what its documentation says: interactions, order, an imperfect writer."""

from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.prompts import joint, world, writer
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
    config = configuration(Path(), 0, 200, endpoint=None)["evaluation"]["test_cases"]
    listed = {case["id"]: case["input"]["kind"] for case in config["inline"]}
    sides = split_holdout([Case(case_id=name, input=name) for name in listed], config["holdout"])
    for side in sides:
        assert Counter(listed[case.case_id] for case in side) == dict.fromkeys(KINDS, 2)


def test_a_climb_asks_no_more_than_it_may():
    assert 0.0 <= gap_closed(climb(0, 60)) <= 1.0
    assert "ahead" in table({"ours": {0: 0.9, 1: 0.8}, "climb": {0: 0.5, 1: 0.4}}, "ours")


# -- two texts and four knobs


def joint_values(n: int, seed: int = 0) -> list[dict[str, object]]:
    """Draw knobs."""
    rng = np.random.default_rng(seed)
    return [
        {
            "temperature": float(rng.uniform(0, 1.2)),
            "context": int(rng.integers(0, 13)),
            "model": str(rng.choice(["small", "medium", "large"])),
            "style": str(rng.choice(["plain", "list", "table"])),
        }
        for _ in range(n)
    ]


def test_the_best_knobs_depend_on_what_the_texts_say():
    sets = [set(), {"format"}, {"facts", "terms"}, {"steps", "check", "example"}, {*NAMES}]
    found = [joint.best_knobs(one) for one in sets]
    for name in joint.KNOBS:
        assert len({str(one[name]) for one in found}) > 1, name
    for there, best in zip(sets, found, strict=True):
        gains = [joint.knob_gain(there, knobs) for knobs in joint_values(300)]
        assert joint.knob_gain(there, best) >= max(gains)


def test_the_joint_optimum_has_all_of_the_way_and_the_defaults_none():
    assert joint.joint_gap_closed(joint.DEFAULTS) == 0.0
    assert 0.0 < joint.joint_quality(joint.DEFAULTS) < joint.optimum() < 1.0
    user = " ".join(PROPERTIES[name].sentences[-1] for name in NAMES)
    for knobs in joint_values(200):
        assert joint.joint_gap_closed({**joint.TEXTS, "user": user, **knobs}) <= 1.0


def test_an_answer_of_the_joint_world_names_a_symptom_and_is_noisy():
    asked, case = joint.JointWorld(0), cases()[0]
    scores = [asked.ask(joint.DEFAULTS, case)["metrics"]["score"] for _ in range(2000)]
    assert asked.n_calls == 2000
    mean = joint.joint_quality(joint.DEFAULTS, case.kind)
    assert abs(np.mean(scores) - mean) < 0.05  # cut at 0, the mean is a little higher
    assert PROPERTIES[case.kind].symptom in asked.ask(joint.DEFAULTS, case)["result"]
