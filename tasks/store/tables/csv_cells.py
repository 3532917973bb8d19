"""CSV cells that no spreadsheet takes for a formula.

Spreadsheets run cells that begin with an operator, also when they are quoted in the file (OWASP, *CSV
Injection*). Such a text gets an apostrophe in front; numbers are no texts and stay as they are.

A carriage return ends a line for readers, and Python's writer quotes it only where its own lines
end so (before 3.13): unquoted, the text behind it begins a cell of its own.
"""

import csv
import re
from collections.abc import Callable, Sequence
from typing import Final, TextIO

# Blanks before the operator are skipped by some programs, and full-width operators count.
_BLANK: Final = r"\x01-\x20\x7f-\xa0" + "\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff"
FORMULA: Final = rf"^(?:[{_BLANK}]*[=+@\-＝＋＠－]|[\t\r\n])"  # noqa: RUF001 - the full-width ones
"""Beginning of a text that a spreadsheet may run; for Python's ``re`` and for DuckDB's RE2."""

PICTURES: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"},
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
}
"""Control character → what is written in its place: an escape sequence could rewrite a terminal."""

_FORMULA: Final = re.compile(FORMULA)


def neutral(value: object) -> object:
    """Return a cell's value; a text without control characters, and with an apostrophe before a formula."""
    if not isinstance(value, str):
        return value
    text = value.translate(PICTURES)
    return f"'{text}" if _FORMULA.match(value) else text


def csv_writer(stream: TextIO) -> Callable[[Sequence[object]], object]:
    """Return what writes a line of CSV to a stream, each cell as ``neutral`` has it."""
    writer = csv.writer(_Lines(stream), lineterminator=_Lines.END)
    return lambda row: writer.writerow([neutral(value) for value in row])


class _Lines:
    """Ends lines by a line feed that were written with a carriage return as well."""

    END: Final = "\r\n"

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> int:
        return self._stream.write(line.removesuffix(self.END) + "\n")
