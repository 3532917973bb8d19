"""Texts of judges: words, fences.

Words are runs of letters and digits, case folded. Nothing here knows a language.

A fence bears a mark that is a hash of the text inside, so the author of the text cannot know it. If the
mark occurs in the text, another one is made.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from convergence_core.records import canonical_json, sha256_hex

_WORD: Final = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """Return the words in their order, case folded."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def word_set(text: str) -> frozenset[str]:
    """Return the distinct words."""
    return frozenset(words_of(text))


def normalized(text: str) -> str:
    """Return the words alone, one blank apart: equal for texts that differ in punctuation only."""
    return " ".join(words_of(text))


def fingerprint(text: str) -> str:
    """Return the sha256 of the normalized text, in hex."""
    return sha256_hex(normalized(text))


def jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    """Return the share of words in common, |a & b| / |a | b|; 1 for two empty sets."""
    union = len(a | b)
    return len(a & b) / union if union else 1.0


def runs_of(text: str, n: int) -> frozenset[str]:
    """Return all runs of ``n`` words in a row; none if the text is shorter."""
    words = words_of(text)
    return frozenset(" ".join(words[i : i + n]) for i in range(len(words) - n + 1))


MARK_DIGITS: Final = 16
_SALT: Final = "judge-1"


def mark_of(texts: Sequence[str]) -> str:
    """Return a mark that occurs in none of the texts; their order does not matter."""
    mark = sha256_hex(canonical_json([_SALT, *sorted(texts)]))[:MARK_DIGITS]
    while any(mark in text for text in texts):
        mark = sha256_hex(mark)[:MARK_DIGITS]
    return mark


def fenced(name: str, text: str, mark: str | None = None) -> str:
    """Return a text between two lines with a mark; ``None``: its own."""
    mark = mark_of([text]) if mark is None else mark
    return f"[[BEGIN {name} {mark}]]\n{text}\n[[END {name} {mark}]]"
