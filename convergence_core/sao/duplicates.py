"""Near duplicates by the Jaccard similarity of their words.

Of the words in any one order, two alike texts share one of their first few (prefix filter; Bayardo et al.
2007): with at least a share t of x's words in common, the first common word is among x's first
|x| - ceil(t |x|) + 1. Only texts that share such a word are compared. Long words come first, as they are
rare. Texts that are equal up to case and punctuation are found by hash.
"""

import math
from typing import Final

from convergence_core.judges.texts import fingerprint, jaccard, word_set

ALIKE: Final = 0.9
"""Jaccard similarity of word sets from which texts count as one."""


class Duplicates:
    """Texts met so far; used within one filtering and never kept."""

    def __init__(self) -> None:
        self._words: dict[str, frozenset[str]] = {}
        self._by_word: dict[str, list[str]] = {}
        """One of a text's first words → the texts."""

    def add(self, text: str) -> bool:
        """Keep a text unless it is a near duplicate; return whether it was new."""
        key = fingerprint(text)
        if key in self._words:
            return False
        words = word_set(text)
        n_first = len(words) - math.ceil(ALIKE * len(words) - 1e-9) + 1
        first = sorted(words, key=lambda word: (-len(word), word))[:n_first]
        near = {name for word in first for name in self._by_word.get(word, ())}
        if any(jaccard(words, self._words[name]) >= ALIKE for name in near):
            return False
        self._words[key] = words
        for word in first:
            self._by_word.setdefault(word, []).append(key)
        return True
