"""CSV cells that no spreadsheet takes for a formula.

Spreadsheets run cells that begin with an operator, also when they are quoted in the file (OWASP, *CSV
Injection*). Such a text gets an apostrophe in front; numbers are no texts and stay as they are.
"""

import re
from collections.abc import Sequence
from typing import Final

# Blanks before the operator are skipped by some programs, and full-width operators count.
_BLANK: Final = r"\x01-\x20\x7f-\xa0" + "\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff"
FORMULA: Final = rf"^(?:[{_BLANK}]*[=+@\-＝＋＠－]|[\t\r\n])"  # noqa: RUF001 - the full-width ones
"""Beginning of a text that a spreadsheet may run; for Python's ``re`` and for DuckDB's RE2."""

_FORMULA: Final = re.compile(FORMULA)


def neutral(value: object) -> object:
    """Return a cell's value; a text that begins like a formula gets an apostrophe in front."""
    if isinstance(value, str) and _FORMULA.match(value):
        return f"'{value}"
    return value


def neutral_row(row: Sequence[object]) -> list[object]:
    """Return a line's values, each as ``neutral`` has it."""
    return [neutral(value) for value in row]
