"""Fences around foreign text, so that a model can tell data from instruction.

A fence bears a mark that is a hash of all that it fences: nobody can know it before the text is
written, and it is made anew if it should occur in it.
"""

from collections.abc import Sequence
from typing import Final

from convergence_core.records import canonical_json, sha256_hex

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
