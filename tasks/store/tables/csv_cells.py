"""CSV cells that no spreadsheet treats as a formula.

Spreadsheets run cells that begin with an operator, even if they are quoted in the file (OWASP,
*CSV Injection*). Such a string is prefixed with an apostrophe; numbers stay unchanged.

Readers end a line at a carriage return. Before Python 3.13 the csv module quotes it only if it is
part of the line terminator; unquoted, the rest of the string would start a new cell.
"""

import csv
import re
from collections.abc import Callable, Sequence
from typing import Final, TextIO

# Some programs skip blanks before the operator and accept full-width operators.
_BLANK: Final = r"\x01-\x20\x7f-\xa0" + "\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff"
FORMULA: Final = rf"^(?:[{_BLANK}]*[=+@\-＝＋＠－]|[\t\r\n])"  # noqa: RUF001 - the full-width ones
"""Start of a string that a spreadsheet may run; valid for Python's ``re`` and DuckDB's RE2."""

PICTURES: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"},
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
}
"""Control character → its replacement, since an escape sequence could rewrite a terminal."""

_FORMULA: Final = re.compile(FORMULA)


def neutral(value: object) -> object:
    """Return a cell's value with control characters replaced and formulas escaped."""
    if not isinstance(value, str):
        return value
    text = value.translate(PICTURES)
    return f"'{text}" if _FORMULA.match(value) else text


def csv_writer(stream: TextIO) -> Callable[[Sequence[object]], object]:
    """Return a function that writes a line of CSV with ``neutral`` cells to a stream."""
    writer = csv.writer(_Lines(stream), lineterminator=_Lines.END)
    return lambda row: writer.writerow([neutral(value) for value in row])


class _Lines:
    """Writer that ends lines with a line feed instead of a carriage return and a line feed."""

    END: Final = "\r\n"

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> int:
        return self._stream.write(line.removesuffix(self.END) + "\n")
