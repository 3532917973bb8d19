r"""Fragments of secrets in texts: runs of their characters, in any spelling.

A text may hold a piece of a secret if it was cut or wrapped, or shows only the ends of a key.
Eight consecutive characters count as a piece; shorter runs occur in other texts by chance.
Encoded, eight bytes are at least ten characters of Base64, sixteen of hexadecimal, and twenty-four
if each byte is written ``%61``. Runs of fewer than four different characters are ignored
(``--------``, ``00000000``). The search is case-insensitive.

It scans each text once, whatever the number of secrets: a short text by windows of six characters,
a long one by eight characters at a time as one 64-bit number.

Servers choose which characters they escape (``\u002B``, ``&#43;``, ``%252B``), and each escape in
a token would end its runs. So a text with escapes is scanned again without them; see ``Escapes``.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np

LEAST_RUN: Final = 8
"""Minimum consecutive characters of a secret that count as a piece."""
LEAST_BASE64: Final = 10
LEAST_HEX: Final = 16
LEAST_PERCENT: Final = 24
_LEAST_DIFFERENT: Final = 4
_PROBE: Final = 6
"""Length of the windows that tell whether a short text may hold a piece."""
_SHORT: Final = 200
"""Maximum length for the scan by windows; longer texts are scanned by numbers."""
_BITS: Final = 16
_CHUNK: Final = 1 << 14
_MIXER: Final = 0x9E3779B97F4A7C15
"""Multiplier that spreads windows over a table of 2**16 slots (Fibonacci hashing)."""


def folded(text: str) -> str:
    """Return a text in lower case, with the same length."""
    lower = text.lower()
    # One letter's lower case is two characters.
    return lower if len(lower) == len(text) else text.replace("\u0130", "I").lower()


@dataclass(frozen=True)
class Fragments:
    """Finder of pieces of given spellings."""

    least_to_spellings: Mapping[int, frozenset[str]]
    """Minimum run → case-folded spellings."""

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return begin and end of each piece in a case-folded text."""
        if len(text) < LEAST_RUN or not self._probes:
            return []
        if len(text) <= _SHORT and self._probes.isdisjoint(
            text[i : i + _PROBE] for i in range(len(text) - _PROBE + 1)
        ):
            return []
        return [*self._fragment_spans(text)]

    @cached_property
    def _probes(self) -> frozenset[str]:
        """Windows such that each counted run contains at least one."""
        return frozenset(
            spelling[i : i + _PROBE]
            for least, spellings in self.least_to_spellings.items()
            for spelling in spellings
            if len(spelling) >= least
            for i in (
                *range(0, len(spelling) - _PROBE, least - _PROBE + 1),
                len(spelling) - _PROBE,
            )
        )

    @cached_property
    def _windows(self) -> "tuple[np.ndarray, dict[int, np.ndarray]]":
        """Sorted windows of eight characters as numbers, and masks of them by minimum run."""
        import numpy as np  # noqa: PLC0415 - most commands scan only short texts

        least_to_raw = {
            least: b"".join(
                word.encode("latin-1", "replace") for word in _telling(spellings, least)
            )
            for least, spellings in self.least_to_spellings.items()
        }
        numbers = {n: np.frombuffer(raw, "<u8") for n, raw in least_to_raw.items()}
        windows = np.unique(np.concatenate([*numbers.values()]))
        return windows, {n: np.isin(windows, values) for n, values in numbers.items()}

    @cached_property
    def _table(self) -> "np.ndarray":
        import numpy as np  # noqa: PLC0415 - as above

        table = np.zeros(1 << _BITS, dtype=bool)
        table[_slots(self._windows[0])] = True
        return table

    def _fragment_spans(self, text: str) -> Iterator[tuple[int, int]]:
        import numpy as np  # noqa: PLC0415 - as above

        windows, least_to_is_one = self._windows
        if not windows.size:
            return
        # A character outside Latin-1 becomes `?` on both sides, so all such characters are equal.
        data = text.encode("latin-1", "replace")
        n = len(data) - LEAST_RUN + 1
        words = np.ndarray((n,), "<u8", data, strides=(1,))  # each begins one character later
        table = self._table
        maybe = np.concatenate(
            [i + np.flatnonzero(table[_slots(words[i : i + _CHUNK])]) for i in range(0, n, _CHUNK)]
        )
        places = np.minimum(np.searchsorted(windows, words[maybe]), windows.size - 1)
        is_found = windows[places] == words[maybe]
        begins, places = maybe[is_found], places[is_found]
        for least, is_one in least_to_is_one.items():
            yield from _runs(begins[is_one[places]], least)


def _telling(spellings: Iterable[str], least: int) -> Iterator[str]:
    """Yield the windows of spellings with enough different characters."""
    for spelling in spellings:
        if len(spelling) >= least:
            for i in range(len(spelling) - LEAST_RUN + 1):
                word = spelling[i : i + LEAST_RUN]
                if len(set(word)) >= _LEAST_DIFFERENT:
                    yield word


def _slots(words: "np.ndarray") -> "np.ndarray":
    import numpy as np  # noqa: PLC0415 - as above

    return (words * np.uint64(_MIXER)) >> np.uint64(64 - _BITS)


def _runs(begins: "np.ndarray", least: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each sufficiently long run of adjacent windows."""
    import numpy as np  # noqa: PLC0415 - as above

    if not begins.size:
        return
    breaks = np.flatnonzero(np.diff(begins) != 1)
    firsts = begins[np.concatenate([[0], breaks + 1])]
    ends = begins[np.concatenate([breaks, [begins.size - 1]])] + LEAST_RUN
    is_long = ends - firsts >= least
    yield from zip(firsts[is_long].tolist(), ends[is_long].tolist(), strict=True)


_NAMED: Final = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_NUMBER: Final = 7
"""Group of the pattern below with a character's decimal number."""


class Escapes:
    r"""Escapes of punctuation and symbols in case-folded texts.

    These are the escapes of JSON and Python (``\u002b``, ``\x2b``), HTML (``&#43;``, ``&#x2b;``,
    ``&amp;``), URLs (``%2B``) and shells (``\+``), nested up to four times. Letters and digits are
    never escaped.

    Args:
        characters: Characters to search for; others are skipped.
    """

    def __init__(self, characters: Iterable[str]) -> None:
        ordered = sorted(
            c for c in {*characters} if c.isascii() and c.isprintable() and not c.isalnum()
        )
        named = {_NAMED[c]: c for c in ordered if c in _NAMED}
        self._written = {c: c for c in ordered} | {f"{ord(c):02x}": c for c in ordered}
        self._written |= {f"#{ord(c)}": c for c in ordered} | named
        codes, numbers, words, signs = (
            "|".join(map(re.escape, of)) or "(?!)"
            for of in (
                [f"{ord(c):02x}" for c in ordered],
                [str(ord(c)) for c in ordered],
                named,
                ordered,
            )
        )
        # Repetitions are bounded, because texts of only backslashes would take hours.
        self._pattern = re.compile(
            rf"(?<!\\)\\{{1,8}}(?:u00({codes})|x({codes})|({signs}))|%(?:25){{0,3}}({codes})"
            rf"|&(?:amp;){{0,3}}(?:#x0{{0,4}}({codes})|({words})|#0{{0,4}}({numbers}));"
        )

    def undone(self, text: str) -> "Unescaped | None":
        """Return a case-folded text without these escapes; ``None`` if it has none."""
        parts: list[str] = []
        plain, raw, n = [0], [0], 0
        for match in self._pattern.finditer(text):
            before, kind = text[raw[-1] : match.start()], match.lastindex or 0
            parts += [before, self._written["#" * (kind == _NUMBER) + match[kind]]]
            n += len(before) + len(parts[-1])
            plain.append(n)
            raw.append(match.end())
        return Unescaped("".join([*parts, text[raw[-1] :]]), plain, raw) if parts else None


@dataclass(frozen=True, slots=True)
class Unescaped:
    """Unescaped text, with the original positions of its characters."""

    text: str
    _plain: list[int]
    """Positions after an escape in ``text``, and 0."""
    _raw: list[int]
    """Same positions in the original text."""

    def raw(self, position: int) -> int:
        """Return the position in the original text for a position in ``text``."""
        i = bisect_right(self._plain, position) - 1
        return self._raw[i] + position - self._plain[i]


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, with touching spans merged."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined
