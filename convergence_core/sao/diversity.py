"""Which personas are asked next: hard ones, unlike those asked already.

Maximal marginal relevance (Carbonell & Goldstein 1998): one by one,

    argmax (1 - f) hardness - f max similarity,    f = .7 (``diversity_factor``)

The hardness of a persona is the mean of 1 - |2 q - 1| over judged pairs of personas that share its
domain or goal, .5 where there are none; similarity is that of word sets.

A persona's words are those of its six levels, so a pool is a table of levels, its words are rows of bits,
and one more chosen persona is compared with all of a million at once.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from convergence_core.judges.texts import word_set
from convergence_core.sao.personas import FACTORS, Grammar, Persona, phrase

FACTOR: Final = 0.7
UNKNOWN: Final = 0.5
"""Hardness before anything is judged."""
_DOMAIN: Final = FACTORS.index("domain")
_GOAL: Final = FACTORS.index("goal")
_BITS: Final = 64


def choose(
    grammar: Grammar,
    pool: np.ndarray,
    hardness: np.ndarray,
    *,
    n: int,
    factor: float = FACTOR,
    chosen: Sequence[int] = (),
) -> list[Persona]:
    """Return up to ``n`` personas of a pool, in the order of choice; of equals the lowest index.

    Args:
        grammar: whose personas they are.
        pool: their indices, (n_pool,).
        hardness: of each, in [0, 1], (n_pool,).
        n: how many.
        factor: f, weight of being unlike the others, in [0, 1].
        chosen: indices of personas asked earlier.
    """
    if n < 1 or not len(pool):
        return []
    words = _Words(grammar, pool)
    alike = np.zeros(len(pool))
    for index in dict.fromkeys(chosen):
        np.maximum(alike, words.similarity(index), out=alike)
    merit = (1.0 - factor) * hardness
    is_left = np.ones(len(pool), dtype=bool)
    found: list[Persona] = []
    while len(found) < min(n, len(pool)):
        gain = np.where(is_left, merit - factor * alike, -np.inf)
        best = np.flatnonzero(gain == gain.max())
        place = int(best[np.argmin(pool[best])])
        is_left[place] = False
        found.append(grammar.persona(int(pool[place])))
        np.maximum(alike, words.similarity(int(pool[place])), out=alike)
    return found


def hardness_of(
    grammar: Grammar, pool: np.ndarray, judged: Sequence[tuple[int, float]]
) -> np.ndarray:
    """Return the hardness of each persona of a pool, (n_pool,).

    Args:
        grammar: whose personas they are.
        pool: their indices, (n_pool,).
        judged: indices of personas that were asked, and q of their pairs.
    """
    domains: dict[int, list[float]] = {}
    goals: dict[int, list[float]] = {}
    for index, q in judged:
        places = grammar.places(np.array([index]))[:, 0]
        for seen, factor in ((domains, _DOMAIN), (goals, _GOAL)):
            seen.setdefault(int(places[factor]), []).append(1.0 - abs(2.0 * q - 1.0))
    table = np.full((len(grammar.levels[_DOMAIN]), len(grammar.levels[_GOAL])), UNKNOWN)
    for domain, goal in np.ndindex(*table.shape):
        values = [*domains.get(domain, ()), *goals.get(goal, ())]
        if values:
            table[domain, goal] = sum(values) / len(values)
    places = grammar.places(pool)
    return np.asarray(table[places[_DOMAIN], places[_GOAL]], np.float64)


class _Words:
    """The words of a pool's personas as rows of bits."""

    def __init__(self, grammar: Grammar, pool: np.ndarray) -> None:
        self._grammar = grammar
        sets = [
            [word_set(phrase(factor, level)) for level in levels]
            for factor, levels in zip(FACTORS, grammar.levels, strict=True)
        ]
        vocabulary = sorted(frozenset().union(*(words for levels in sets for words in levels)))
        place_of = {word: k for k, word in enumerate(vocabulary)}
        n_columns = len(vocabulary) // _BITS + 1
        # Per factor, its levels' words, (n_levels, n_columns).
        self._bits = [np.zeros((len(levels), n_columns), np.uint64) for levels in sets]
        for bits, levels in zip(self._bits, sets, strict=True):
            for row, words in zip(bits, levels, strict=True):
                for word in words:
                    column, bit = divmod(place_of[word], _BITS)
                    row[column] |= np.uint64(1 << bit)
        self._columns = np.ascontiguousarray(self._of(pool).T)  # (n_columns, n_pool)
        self._sizes = self._count(self._columns)

    def similarity(self, index: int) -> np.ndarray:
        """Return the Jaccard similarity of a persona to each of the pool, (n_pool,)."""
        own = self._of(np.array([index]))[0]
        shared = self._count(self._columns[own != 0] & own[own != 0, None])
        size = int(np.bitwise_count(own).sum())
        return np.asarray(shared / (self._sizes + size - shared), np.float64)

    def _of(self, indices: np.ndarray) -> np.ndarray:
        """Return the words of personas, (n, n_columns)."""
        places = self._grammar.places(indices)
        found: np.ndarray = self._bits[0][places[0]]
        for bits, place in zip(self._bits[1:], places[1:], strict=True):
            found |= bits[place]
        return found

    @staticmethod
    def _count(columns: np.ndarray) -> np.ndarray:
        """Return how many bits each persona has, (n_pool,)."""
        total = np.zeros(columns.shape[1], np.int64)
        for column in columns:
            total += np.bitwise_count(column)
        return total
