"""Form of an answer, by rules that need no judge: not empty, readable, in no loop."""

import unicodedata
from collections.abc import Sequence
from itertools import groupby
from typing import Final

LONGEST_PERIOD: Final = 20
"""Words of a phrase that is found when it is said again and again."""
MOST_SAID: Final = 4
"""How often a phrase may be said without anything between, and eight words at least."""
FIRST_WORDS: Final = 4_000
"""Words that are looked at."""
LONGEST_RUN: Final = 100
"""How often one character may follow itself; rules of tables and code stay below."""
MOST_STRANGE: Final = 0.05
"""Share of an answer's characters that may be unreadable."""
_STRANGE: Final = frozenset({"Cc", "Cn", "Co", "Cs"})


def form_fault(text: str) -> str | None:
    """Return what is wrong with an answer's form; ``None``: nothing."""
    if not text.strip():
        return "empty"
    if sum(map(_is_strange, text)) > MOST_STRANGE * len(text):
        return "unreadable"
    runs = (sum(1 for _ in run) for one, run in groupby(text) if not one.isspace())
    if is_in_loop(text.split()[:FIRST_WORDS]) or max(runs, default=0) > LONGEST_RUN:
        return "in a loop"
    return None


def is_in_loop(words: Sequence[str]) -> bool:
    """Return whether a phrase is said more than ``MOST_SAID`` times without anything between."""
    for period in range(1, LONGEST_PERIOD + 1):
        least = max(period * MOST_SAID, 8)
        n = 0
        for word, before in zip(words[period:], words, strict=False):
            n = n + 1 if word == before else 0
            if n >= least:
                return True
    return False


def _is_strange(one: str) -> bool:
    if one == "\N{REPLACEMENT CHARACTER}":
        return True
    return one not in "\n\r\t" and unicodedata.category(one) in _STRANGE
