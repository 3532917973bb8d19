"""Near duplicates: MinHash finds candidates, exact Jaccard similarity decides.

A 128-value MinHash of the word set (Broder 1997) in 16 bands of 8 rows finds pairs of Jaccard .9
with probability .9999. The estimate alone would pass 43 of 100 copies with two of forty words
changed, so the word sets are compared. A hash finds texts that are equal up to case and
punctuation.
"""

from functools import cached_property
from typing import Any, Final

from convergence_core.judges.texts import fingerprint, jaccard, word_set

N_VALUES: Final = 128
N_BANDS, N_ROWS = 16, 8
SEED: Final = 1
ALIKE: Final = 0.9
"""Jaccard similarity of word sets at or above which texts are duplicates."""


class Duplicates:
    """Texts added so far; used within one filtering and never stored."""

    def __init__(self) -> None:
        self._words: dict[str, frozenset[str]] = {}

    def add(self, text: str) -> bool:
        """Keep a text unless it is a near duplicate; return whether it was new."""
        key = fingerprint(text)
        if key in self._words:
            return False
        words = word_set(text)
        hashed = self._hashed(words)
        near = self._index.query(hashed)
        if any(jaccard(words, self._words[name]) >= ALIKE for name in near):
            return False
        self._words[key] = words
        self._index.insert(key, hashed, check_duplication=False)
        return True

    def _hashed(self, words: frozenset[str]) -> Any:
        hashed = self._empty.copy()
        # Sorted, so that nothing depends on the order of a set.
        hashed.update_batch([word.encode() for word in sorted(words)])
        return hashed

    @cached_property
    def _index(self) -> Any:
        from datasketch import MinHashLSH  # noqa: PLC0415 - loaded only where texts are compared

        return MinHashLSH(num_perm=N_VALUES, params=(N_BANDS, N_ROWS))

    @cached_property
    def _empty(self) -> Any:
        from datasketch import MinHash  # noqa: PLC0415 - as above

        return MinHash(num_perm=N_VALUES, seed=SEED, scheme="affine32")
