"""Hashed n-grams: texts as vectors without a model.

A CRC-32 gives words, pairs of words and runs of four characters a position and a sign, at which
the log of their count is added (Weinberger et al. 2009). The vector has length 1. It shows which
words two texts share, in any language with letters, but not their meaning: "good" and "excellent"
are as far apart as "good" and "tomato".
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from convergence_core.judges.texts import words_of

Floats: TypeAlias = NDArray[np.float64]

HASHED_NGRAMS: Final = "hashed-ngrams"
"""Name of these vectors among embeddings; they carry no meaning."""
N_FEATURES: Final = 4096
MOST_WORDS: Final = 4_000
"""Maximum words of a text; later ones are left out."""
RUN: Final = 4
"""Characters of a run within a word, which is padded with blanks."""


def hashed_ngrams(text: str, n_features: int = N_FEATURES) -> Floats:
    """Return a text's vector of length 1, (n_features,); zeros if it has no word."""
    vector = np.zeros(n_features)
    for gram, n in Counter(_ngrams(words_of(text)[:MOST_WORDS])).items():
        code = crc32(gram.encode())
        vector[code % n_features] += math.log1p(n) * (1.0 if code >> 31 else -1.0)
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0.0 else vector


def _ngrams(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        yield f"1 {word}"
        padded = f" {word} "
        for start in range(len(padded) - RUN + 1):
            yield f"c {padded[start : start + RUN]}"
    for first, second in pairwise(words):
        yield f"2 {first} {second}"
