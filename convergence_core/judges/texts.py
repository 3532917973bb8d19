"""Words and fences of judged texts.

Words are runs of letters and digits, case folded, in any language.

A fence bears a mark that is a hash of the text inside, so the author of the text cannot know it.
If the mark occurs in the text, another hash replaces it.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from convergence_core.records import canonical_json, sha256_hex

_WORD: Final = re.compile(r"\w+")
_OPENING: Final = re.compile(r"\{(?=\s*[\"}])")
_MOST_OPENINGS: Final = 50
"""Maximum starts of objects to try, because each may nest as deeply as Python allows."""


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a text, in prose or in a code block, outer ones first."""
    decoder = json.JSONDecoder()
    for opening in islice(_OPENING.finditer(text), _MOST_OPENINGS):
        try:
            value, _ = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            continue
        yield dict(value)


def words_of(text: str) -> list[str]:
    """Return the words in order, case folded."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def word_set(text: str) -> frozenset[str]:
    """Return the distinct words."""
    return frozenset(words_of(text))


def normalized(text: str) -> str:
    """Return the words joined by blanks: equal for texts that differ only in punctuation."""
    return " ".join(words_of(text))


def fingerprint(text: str) -> str:
    """Return the SHA-256 of the normalized text, in hexadecimal digits."""
    return sha256_hex(normalized(text))


def jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    """Return the share of common words, intersection over union; 1 for two empty sets."""
    union = len(a | b)
    return len(a & b) / union if union else 1.0


def runs_of(text: str, n: int) -> frozenset[str]:
    """Return all sequences of ``n`` consecutive words; empty if the text is shorter."""
    words = words_of(text)
    return frozenset(" ".join(words[i : i + n]) for i in range(len(words) - n + 1))


class WordRuns:
    """Runs of words, and whole texts, that other texts must not hold."""

    def __init__(self, n_run: int) -> None:
        """Start with no runs.

        Args:
            n_run: Number of words in a run.
        """
        self._n_run = n_run
        self._runs: set[str] = set()
        self._whole: set[str] = set()

    def add(self, text: str, *, whole: bool) -> None:
        """Add the runs of a text, and the text itself if it counts as a whole."""
        self._runs |= runs_of(text, self._n_run)
        words = normalized(text)
        if whole and words:
            self._whole.add(f" {words} ")

    def allow(self, text: str) -> None:
        """Remove the runs and whole texts that a public text holds."""
        self._runs -= runs_of(text, self._n_run)
        words = f" {normalized(text)} "
        self._whole = {whole for whole in self._whole if whole not in words}

    def shares_run(self, text: str) -> bool:
        """Return whether a text holds one of the runs."""
        return not self._runs.isdisjoint(runs_of(text, self._n_run))

    def leak_into(self, text: str) -> bool:
        """Return whether a text holds one of the runs, or one of the whole texts."""
        words = f" {normalized(text)} "
        return self.shares_run(text) or any(whole in words for whole in self._whole)


MARK_DIGITS: Final = 16
_SALT: Final = "judge-1"


def mark_of(texts: Sequence[str]) -> str:
    """Return a mark that occurs in none of the texts, independent of their order."""
    mark = sha256_hex(canonical_json([_SALT, *sorted(texts)]))[:MARK_DIGITS]
    while any(mark in text for text in texts):
        mark = sha256_hex(mark)[:MARK_DIGITS]
    return mark


def fenced(name: str, text: str, mark: str | None = None) -> str:
    """Return a text between two lines with a mark; ``None`` derives the mark from the text."""
    mark = mark_of([text]) if mark is None else mark
    return f"[[BEGIN {name} {mark}]]\n{text}\n[[END {name} {mark}]]"
