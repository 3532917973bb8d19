"""Personas: a million of them, no repeat, none nearly the same; which are asked next."""

from pathlib import Path

import pytest
import yaml

from convergence_core.sao.diversity import UNKNOWN, choose, hardness_of
from convergence_core.sao.personas import FACTORS, Grammar
from convergence_core.texts import jaccard, word_set

FILE = Path(__file__).parents[2] / "data/personas/factors.yaml"
GRAMMAR = Grammar.from_mapping(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def test_six_factors_make_a_million_personas():
    assert [len(texts) for texts in GRAMMAR.levels] == [25, 16, 10, 8, 8, 4]
    assert len(GRAMMAR) == 1_024_000
    assert GRAMMAR.version == "1"


def test_ten_thousand_personas_do_not_repeat():
    indices = [one.index for one in GRAMMAR.walk(7, 0, 10_000)]
    assert len(set(indices)) == 10_000


def test_of_two_hundred_personas_none_are_nearly_the_same():
    for seed in (0, 1, 99):
        words = [word_set(one.text) for one in GRAMMAR.walk(seed, 0, 200)]
        alike = [jaccard(a, b) for i, a in enumerate(words) for b in words[:i]]
        assert max(alike) < 0.9
        assert sum(alike) / len(alike) < 0.4


def test_the_walk_uses_every_level_evenly():
    walked = GRAMMAR.walk(3, 0, 4_000)
    for place, texts in enumerate(GRAMMAR.levels):
        counts = [sum(one.levels[place] == text for one in walked) for text in texts]
        assert min(counts) > 0.9 * 4_000 / len(texts), FACTORS[place]


def test_a_small_grammar_is_walked_whole():
    small = Grammar.from_mapping({name: ["x y", "z"] for name in FACTORS})
    assert sorted(one.index for one in small.walk(5, 0, 64)) == list(range(64))
    assert small.walk(5, 3, 2) == small.walk(5, 0, 5)[3:]
    one = Grammar.from_mapping({name: ["a"] for name in FACTORS})
    assert one.walk(0, 0, 2) == [one.persona(0)] * 2
    with pytest.raises(IndexError, match="64 personas"):
        small.persona(64)


@pytest.mark.parametrize("wrong", [None, [], "text", ["a", "a"], ["a", " "]])
def test_a_factor_without_distinct_levels_is_refused(wrong):
    data = {name: ["a", "b"] for name in FACTORS} | {"goal": wrong}
    with pytest.raises(ValueError, match="goal"):
        Grammar.from_mapping(data)


def test_a_persona_reads_as_a_sentence():
    text = GRAMMAR.persona(0).text
    assert text.startswith("A night-shift nurse concerned with hospital scheduling, who has never")
    assert text.endswith(".")


# -- which are asked next


def test_hardness_is_that_of_what_shares_domain_or_goal():
    pool = [GRAMMAR.persona(i) for i in (0, 1, 25)]
    judged = [(GRAMMAR.persona(2), 0.5), (GRAMMAR.persona(3), 1.0)]
    found = hardness_of(pool, judged)
    assert found[0] == pytest.approx(0.5)  # domain and goal of both: hardness 1 and 0
    assert found[25] == pytest.approx(0.5)
    assert hardness_of(pool, [])[0] == UNKNOWN


def test_the_hard_come_first_and_then_the_unlike():
    pool = GRAMMAR.walk(0, 0, 40)
    hard = pool[17].index
    first = choose(pool, {hard: 1.0}, n=3)
    assert first[0].index == hard
    words = [word_set(one.text) for one in first]
    alike = [jaccard(words[0], word_set(one.text)) for one in pool if one.index != hard]
    assert jaccard(words[0], words[1]) == min(alike)


def test_without_a_price_on_likeness_hardness_alone_decides():
    pool = GRAMMAR.walk(0, 0, 5)
    hardness = {one.index: k / 10 for k, one in enumerate(pool)}
    chosen = choose(pool, hardness, n=9, factor=0.0)
    assert [one.index for one in chosen] == [one.index for one in reversed(pool)]


def test_those_asked_before_count_as_chosen():
    pool = GRAMMAR.walk(0, 0, 30)
    (one,) = choose(pool, {}, n=1, chosen=[pool[0]])
    assert one.index != pool[0].index
