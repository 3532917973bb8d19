"""Blocks of a report: sections fill them, each surface draws them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar


@dataclass(frozen=True, slots=True)
class Code:
    """Text in a fixed-width face, e.g. the name of a key."""

    text: str


@dataclass(frozen=True, slots=True)
class LongText:
    """A long value: its beginning, and the whole on demand."""

    text: str


@dataclass(frozen=True, slots=True)
class Marked:
    """A part of a text that another one does not have."""

    text: str


@dataclass(frozen=True, slots=True)
class WebLink:
    """An address of the web, which only the page makes a link."""

    text: str


Inline: TypeAlias = str | Code | LongText | Marked | WebLink
"""A piece of a line; a plain string is text, never markup."""


@dataclass(frozen=True, slots=True)
class Heading:
    """Title of a section, or of a part of one."""

    text: str
    level: Literal[2, 3] = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph; ``kind`` sets its weight on the page. A caption belongs to plots: page only."""

    parts: tuple[Inline, ...]
    kind: Literal["text", "lead", "note", "caption"] = "text"


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of paragraphs."""

    items: tuple[tuple[Inline, ...], ...]


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One number in large type."""

    title: str
    value: str
    detail: str
    is_main: bool = False
    """Whether it is the number of the report."""


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """The few numbers that matter, side by side. The page's alone: prose says them too."""

    figures: tuple[KeyFigure, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Inline, ...], ...]
    numeric: frozenset[int] = frozenset()
    """Columns set to the right."""
    folded: str = ""
    """Line behind which the page folds it; empty: open."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts with their names, each on lines of its own; line breaks are kept."""

    rows: tuple[tuple[str, tuple[Inline, ...]], ...]


@dataclass(frozen=True, slots=True)
class TextDiff:
    """A unified diff."""

    lines: tuple[str, ...]


_Item = TypeVar("_Item")
Columns: TypeAlias = Mapping[str, Callable[[_Item], Inline]]
"""Heading → cell of a row's item."""


def table(
    items: Iterable[_Item],
    columns: Columns[_Item],
    *,
    numeric: Collection[str] = (),
    folded: str = "",
) -> Grid:
    """Return a table with a row per item.

    Args:
        items: what the rows show.
        columns: heading and cell of each column.
        numeric: headings of columns set to the right.
        folded: as of ``Grid``.
    """
    rows = tuple(tuple(cell(item) for cell in columns.values()) for item in items)
    right = frozenset(i for i, name in enumerate(columns) if name in numeric)
    return Grid(tuple(columns), rows, right, folded)


def section(
    title: str, sentence: str, lines: Iterable[str] = (), blocks: "Iterable[Block]" = ()
) -> "list[Block]":
    """Return a section: its title, one sentence, a list of lines, then tables and the like."""
    items = tuple((line,) for line in lines)
    bullets = [Bullets(items)] if items else []
    return [Heading(title), Paragraph((sentence,), "lead"), *bullets, *blocks]


def marked(sentence: str) -> tuple[Inline, ...]:
    """Split a sentence of ours at its back ticks; not for text of others."""
    parts = enumerate(sentence.split("`"))
    return tuple(Code(part) if i % 2 else part for i, part in parts if part)


PlotName: TypeAlias = Literal[
    "estimates",
    "shares",
    "front",
    "hypervolume",
    "learning_curve",
    "parameter_effects",
    "tradeoffs",
    "spend",
]


@dataclass(frozen=True, slots=True)
class Plots:
    """Plots by name, side by side where there is room; the page's alone."""

    names: tuple[PlotName, ...]


Block: TypeAlias = Heading | Paragraph | Bullets | KeyFigures | Grid | Plots | Texts | TextDiff
