"""Coverage of texts.

Four measures of a set of texts, each a number that collapse moves:

* Vendi score (Friedman & Dieng 2023): exp(-sum lambda_i ln lambda_i), lambda the eigenvalues of K/n,
  K the cosine of hashed 1- and 2-gram counts (CRC-32 mod 1,024): how many different texts there are.
* distinct-2: share of distinct bigrams among the last 8,000, or as many as the reference had: more
  bigrams always repeat more.
* Duplicate share: texts that repeat an earlier one, equal up to case and punctuation.
* Held-out coverage: share of real held-out prompts whose nearest synthetic text is as near as the
  nearest real one is to a real one in the median.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from convergence_core.judges.texts import normalized, words_of

N_BUCKETS: Final = 1024
WINDOW: Final = 200
"""Texts that are looked at: the last ones."""
MOST_BIGRAMS: Final = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Measures of one window."""

    n_texts: int
    vendi: float
    distinct_2: float
    n_bigrams: int
    """Behind ``distinct_2``."""
    duplicate_share: float
    held_out: float | None
    """``None``: there are fewer than three held-out prompts."""

    @property
    def is_sufficient(self) -> bool:
        """Whether the window is full."""
        return self.n_texts >= WINDOW


def measure(
    texts: Sequence[str],
    held_out: Sequence[str] = (),
    *,
    most_bigrams: int = MOST_BIGRAMS,
) -> Coverage:
    """Return the measures of the last texts.

    Args:
        texts: in the order in which they were written; bigrams may reach back beyond the window.
        held_out: real prompts that nobody has shown to a model here.
        most_bigrams: those of the reference that the measures are compared with.
    """
    last = texts[-WINDOW:]
    grams = last_bigrams(texts, most_bigrams)
    return Coverage(
        n_texts=len(last),
        vendi=vendi(last),
        distinct_2=len(set(grams)) / len(grams) if grams else 1.0,
        n_bigrams=len(grams),
        duplicate_share=duplicate_share(last),
        held_out=held_out_coverage(last, held_out),
    )


def hashed_counts(texts: Sequence[str]) -> np.ndarray:
    """Return counts of hashed 1- and 2-grams, (n, N_BUCKETS)."""
    found = np.zeros((len(texts), N_BUCKETS))
    places: dict[str, int] = {}
    for row, text in enumerate(texts):
        words = words_of(text)
        for gram in (*words, *_bigrams(words)):
            place = places.get(gram)
            if place is None:
                place = places[gram] = zlib.crc32(gram.encode()) % N_BUCKETS
            found[row, place] += 1.0
    return found


def vendi(texts: Sequence[str]) -> float:
    """Return the Vendi score, in [1, n]; 0 for no text."""
    if not texts:
        return 0.0
    unit = _unit(hashed_counts(texts))
    values = np.linalg.eigvalsh(unit @ unit.T / len(texts))
    # An empty text is like none, not even itself; the weights still add up to 1.
    values = values[values > 1e-12]
    if not len(values):
        return 1.0
    shares = values / values.sum()
    return float(np.exp(-np.sum(shares * np.log(shares))))


def last_bigrams(texts: Sequence[str], most: int = MOST_BIGRAMS) -> list[str]:
    """Return the last bigrams, at most so many, whole texts from the last one backwards."""
    grams: list[str] = []
    for text in reversed(texts):
        if len(grams) >= most:
            break
        grams += _bigrams(words_of(text))
    return grams[:most]


def duplicate_share(texts: Sequence[str]) -> float:
    """Return the share of texts that repeat an earlier one, in [0, 1)."""
    return 1.0 - len({normalized(text) for text in texts}) / len(texts) if texts else 0.0


def held_out_coverage(texts: Sequence[str], held_out: Sequence[str]) -> float | None:
    """Return the share of held-out prompts that synthetic texts come near to.

    ``None``: fewer than three prompts.
    """
    if len(held_out) < 3:
        return None
    real = _unit(hashed_counts(held_out))
    among = real @ real.T
    np.fill_diagonal(among, -math.inf)
    near_enough = float(np.median(among.max(axis=1)))
    if not texts:
        return 0.0
    nearest = (real @ _unit(hashed_counts(texts)).T).max(axis=1)
    return float(np.mean(nearest >= near_enough - 1e-12))


def _unit(counts: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(counts, axis=1, keepdims=True)
    return np.asarray(counts / np.where(norms > 0, norms, 1.0), np.float64)


def _bigrams(words: Sequence[str]) -> list[str]:
    return [f"{a} {b}" for a, b in pairwise(words)]
