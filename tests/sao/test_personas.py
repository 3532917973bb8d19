"""Personas: a million of them, no repeat, none nearly the same; which are asked next."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from convergence_core.judges.texts import jaccard, word_set
from convergence_core.sao.diversity import UNKNOWN, choose, hardness_of
from convergence_core.sao.personas import FACTORS, Grammar, Persona
from tests.sao import pairwise_personas as pairwise

FILE = Path(__file__).parents[2] / "data/personas/factors.yaml"
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


# -- which are asked next


def test_hardness_is_that_of_what_shares_domain_or_goal():
    pool = np.array([0, 1, 25])
    found = hardness_of(GRAMMAR, pool, [(2, 0.5), (3, 1.0)])
    assert found[0] == pytest.approx(0.5)  # domain and goal of both: hardness 1 and 0
    assert found[2] == pytest.approx(0.5)
    assert hardness_of(GRAMMAR, pool, [])[0] == UNKNOWN


def test_the_hard_come_first_and_then_the_unlike():
    pool = GRAMMAR.walk(0, 0, 40)
    hardness = np.full(40, UNKNOWN)
    hardness[17] = 1.0
    first = choose(GRAMMAR, pool, hardness, n=3)
    assert first[0].index == pool[17]
    words = [word_set(one.text) for one in first]
    others = [word_set(GRAMMAR.persona(int(index)).text) for index in np.delete(pool, 17)]
    assert jaccard(words[0], words[1]) == min(jaccard(words[0], other) for other in others)


SHARED = Grammar.from_mapping(
    {
        "role": ["old man", "a cook", "angler"], "domain": ["old maps", "a rent"],
        "goal": ["rent a map", "cook", "wait"], "constraint": ["no map", "Old rent"],
        "temperament": ["calm", "old", "concerned"], "experience": ["who waits", "new"],
    }
)  # fmt: skip
"""Factors that share words, so that few personas are unlike and many are equally so."""


@pytest.mark.parametrize("grammar", [GRAMMAR, SHARED], ids=["shipped", "shared words"])
@pytest.mark.parametrize("seed", range(12))
def test_all_at_once_chooses_as_pair_by_pair_to_the_bit(grammar: Grammar, seed: int):
    rng = np.random.default_rng(seed)
    # The small grammar is walked twice, so that its personas stand in the pool more than once.
    n_pool = int(rng.integers(1, 300))
    before = rng.integers(len(grammar), size=int(rng.integers(30))).tolist()
    pool = grammar.walk(int(rng.integers(10**6)), int(rng.integers(10**6)), n_pool)
    judged = [(int(index), float(rng.uniform())) for index in [*before, *pool[:5]]]
    factor = float(rng.choice([0.0, 0.3, 0.7, 1.0]))
    people = [grammar.persona(int(index)) for index in pool]
    told = pairwise.hardness_of(people, [(grammar.persona(index), q) for index, q in judged])
    found = hardness_of(grammar, pool, judged)
    assert found.tolist() == [told[one.index] for one in people]
    assert choose(grammar, pool, found, n=40, factor=factor, chosen=before) == pairwise.choose(
        people, told, n=40, factor=factor, chosen=[grammar.persona(index) for index in before]
    )


@pytest.mark.slow
def test_a_round_may_choose_among_a_million():
    pool = GRAMMAR.walk(0, 0, 1_000_000)
    assert len(np.unique(pool)) == 1_000_000
    first, second = choose(GRAMMAR, pool, hardness_of(GRAMMAR, pool, []), n=2)
    assert first.index == pool.min()
    words = word_set(first.text)
    others = [word_set(one.text) for one in walked(GRAMMAR, 0, 5_000)]
    least = min(jaccard(words, other) for other in others)
    assert jaccard(words, word_set(second.text)) <= least
