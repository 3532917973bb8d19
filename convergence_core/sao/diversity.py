"""Choice of the next personas: hard ones, unlike those asked already.

Maximal marginal relevance (Carbonell & Goldstein 1998): one by one,

    argmax (1 - f) hardness - f max similarity,    f = .7

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
    personas: list[Persona] = []
    while len(personas) < min(n, len(pool)):
        gain = np.where(is_left, merit - factor * alike, -np.inf)
        best = np.flatnonzero(gain == gain.max())
        place = int(best[np.argmin(pool[best])])
        is_left[place] = False
        personas.append(grammar.persona(int(pool[place])))
        np.maximum(alike, words.similarity(int(pool[place])), out=alike)
    return personas


def hardness_of(
    grammar: Grammar, pool: np.ndarray, judged: Sequence[tuple[int, float]]
) -> np.ndarray:
    """Return the hardness of each persona of a pool, (n_pool,).

    Args:
        grammar: whose personas they are.
        pool: their indices, (n_pool,).
        judged: indices of personas that were asked, and q of their pairs.
    """
    shape = len(grammar.levels[_DOMAIN]), len(grammar.levels[_GOAL])
    total, n = np.zeros(shape), np.zeros(shape)
    for axis, factor in enumerate((_DOMAIN, _GOAL)):
        for index, q in judged:
            place = int(grammar.places(np.array([index]))[factor, 0])
            cells = np.s_[place, :] if axis == 0 else np.s_[:, place]
            total[cells] += 1.0 - abs(2.0 * q - 1.0)
            n[cells] += 1
    table = np.divide(total, n, out=np.full(shape, UNKNOWN), where=n > 0)
    places = grammar.places(pool)
    return np.asarray(table[places[_DOMAIN], places[_GOAL]], np.float64)


class _Words:
    """The words of a pool's personas as rows of bits."""

    def __init__(self, grammar: Grammar, pool: np.ndarray) -> None:
        sets = [
            [word_set(phrase(factor, level)) for level in levels]
            for factor, levels in zip(FACTORS, grammar.levels, strict=True)
        ]
        vocabulary = sorted(frozenset().union(*(words for levels in sets for words in levels)))
        self._grammar = grammar
        self._bits = [  # per factor, its levels' words, (n_levels, n_bytes)
            np.packbits([[word in words for word in vocabulary] for words in levels], axis=1)
            for levels in sets
        ]
        self._columns = np.ascontiguousarray(self._of(pool).T)  # (n_bytes, n_pool)
        self._sizes = _n_bits(self._columns)

    def similarity(self, index: int) -> np.ndarray:
        """Return the Jaccard similarity of a persona to each of the pool, (n_pool,)."""
        words = self._of(np.array([index])).T  # (n_bytes, 1)
        holds = words[:, 0] != 0
        shared = _n_bits(self._columns[holds] & words[holds])
        return np.asarray(shared / (self._sizes + _n_bits(words) - shared), np.float64)

    def _of(self, indices: np.ndarray) -> np.ndarray:
        """Return the words of personas, (n, n_bytes)."""
        places = self._grammar.places(indices)
        levels = [bits[place] for bits, place in zip(self._bits, places, strict=True)]
        return np.asarray(np.bitwise_or.reduce(levels))


def _n_bits(columns: np.ndarray) -> np.ndarray:
    """Return how many bits are set, (n_bytes, n) -> (n,)."""
    return np.asarray(np.bitwise_count(columns).sum(axis=0, dtype=np.int64))
