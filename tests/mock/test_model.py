"""The tiny language model: a proper distribution that thoughts about the world move."""

import math
import random

import numpy as np
import pytest

from tasks.mock.tiny_model import (
    KINDS,
    VOCABULARY,
    Story,
    encode,
    stories,
    tempered,
    think,
    tiny_model,
)

MODEL = tiny_model()
TEXTS = list(stories(1500, seed=2))
NOTHING = ("none",)


def log_likelihood(story: Story, thought: tuple[str, ...]) -> float:
    row = MODEL.row(encode(story.prompt(thought)))
    return math.log(row[encode(story.answer)[0]])


def mean_gain(thoughts: list[tuple[str, ...]]) -> float:
    pairs = zip(TEXTS, thoughts, strict=True)
    return float(np.mean([log_likelihood(s, t) - log_likelihood(s, NOTHING) for s, t in pairs]))


def thoughts(kind) -> list[tuple[str, ...]]:
    rng = random.Random(3)
    return [think(story.optimum, kind, rng) for story in TEXTS]


def test_every_row_sums_to_1_and_leaves_nothing_impossible():
    for story in TEXTS[:100]:
        ids = encode(story.text)
        for row in [MODEL.row(ids[:n]) for n in range(len(ids))]:
            assert row.sum() == pytest.approx(1.0, abs=1e-12)
            assert row.min() > 0.0


def test_thoughts_are_worth_what_they_say():
    gains = {kind: mean_gain(thoughts(kind)) for kind in KINDS}
    assert gains["oracle"] >= 0.9, gains
    assert 0.2 <= gains["partial"] <= 0.45, gains
    assert abs(gains["vague"]) <= 0.05, gains
    assert gains["none"] == 0.0


def test_foreign_and_inverted_thoughts_destroy_likelihood():
    oracle = thoughts("oracle")
    shuffled = oracle[1:] + oracle[:1]
    inverted = [(*t[:3], f"t{10 - int(t[3][1:])}") for t in oracle]
    assert mean_gain(shuffled) <= -1.2
    assert mean_gain(inverted) <= -1.2


def test_the_outcome_is_expected_only_after_a_setting_asked_about():
    asked = MODEL.row(encode("<bos> think none end cfg ant t3 ->"))
    told = MODEL.row(encode("<bos> hist ant t3 ->"))
    assert np.array_equal(told, MODEL.row(encode("->")))
    assert not np.array_equal(asked, told)


def test_samples_follow_the_distribution_and_the_temperature():
    from scipy.special import chdtrc  # scipy.stats takes longer to load than this file to run

    ids = encode("<bos> think best ant near t3 end cfg ant t5 ->")
    for temperature in (1.0, 0.5):
        expected = tempered(MODEL.row(ids), temperature)
        drawn = np.zeros(len(VOCABULARY))
        for seed in range(2000):
            (one,) = MODEL.sample(ids, n=1, temperature=temperature, draw=(seed,)).ids or [0]
            drawn[one] += 1
        likely = expected * 2000 >= 5
        observed = np.array([*drawn[likely], drawn[~likely].sum()])
        wanted = np.array([*expected[likely] * 2000, expected[~likely].sum() * 2000])
        statistic = float(((observed - wanted) ** 2 / wanted).sum())
        assert chdtrc(len(wanted) - 1, statistic) > 1e-3, (temperature, observed, wanted)


def test_samples_at_temperature_0_are_the_likeliest_words_and_end():
    sample = MODEL.sample(encode("<bos> think"), n=50, temperature=0.0, draw=("any",))
    other = MODEL.sample(encode("<bos> think"), n=50, temperature=0.0, draw=("other",))
    assert sample.ids == other.ids
    ids = encode("<bos> think")
    for drawn, row in zip(sample.ids, sample.rows, strict=True):
        assert drawn == int(np.argmax(row)) == int(np.argmax(MODEL.row(ids)))
        ids.append(drawn)
