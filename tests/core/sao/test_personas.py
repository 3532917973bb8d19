"""Personas: a million of them, no repeat, none nearly the same."""

from pathlib import Path

import pytest
import yaml

from convergence_core.judges.texts import jaccard, word_set
from convergence_core.sao.personas import FACTORS, Grammar, Persona

FILE = Path(__file__).parents[3] / "data/personas/factors.yaml"
GRAMMAR = Grammar.from_mapping(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def walked(grammar: Grammar, seed: int, n: int) -> list[Persona]:
    return [grammar.persona(int(index)) for index in grammar.walk(seed, 0, n)]


def test_six_factors_make_a_million_personas():
    assert [len(texts) for texts in GRAMMAR.levels] == [25, 16, 10, 8, 8, 4]
    assert len(GRAMMAR) == 1_024_000
    for texts in GRAMMAR.levels:
        assert len({text.strip() for text in texts} - {""}) == len(texts)


def test_of_two_hundred_personas_none_are_nearly_the_same():
    for seed in (0, 1, 99):
        words = [word_set(one.text) for one in walked(GRAMMAR, seed, 200)]
        alike = [jaccard(a, b) for i, a in enumerate(words) for b in words[:i]]
        assert max(alike) < 0.9
        assert sum(alike) / len(alike) < 0.4


def test_the_walk_uses_every_level_evenly():
    found = walked(GRAMMAR, 3, 4_000)
    for place, texts in enumerate(GRAMMAR.levels):
        counts = [sum(one.levels[place] == text for one in found) for text in texts]
        assert min(counts) > 0.9 * 4_000 / len(texts), FACTORS[place]


def test_a_small_grammar_is_walked_whole():
    small = Grammar.from_mapping({name: ["x y", "z"] for name in FACTORS})
    assert sorted(small.walk(5, 0, 64).tolist()) == [*range(64)]
    assert small.walk(5, 3, 2).tolist() == small.walk(5, 0, 5)[3:].tolist()
    one = Grammar.from_mapping({name: ["a"] for name in FACTORS})
    assert one.walk(0, 0, 2).tolist() == [0, 0]
    far = 10**18  # as far as many runs of a million personas lead
    exact = [(5 + k * GRAMMAR.step) % len(GRAMMAR) for k in range(far, far + 3)]
    assert GRAMMAR.walk(5, far, 3).tolist() == exact
    with pytest.raises(IndexError, match="64 personas"):
        small.persona(64)


def test_a_persona_reads_as_a_sentence():
    text = GRAMMAR.persona(0).text
    assert text.startswith("A night-shift nurse concerned with hospital scheduling, who has never")
    assert text.endswith(".")
