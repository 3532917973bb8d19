"""Blocks of a report: sections fill them, each surface renders them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeAlias, TypeGuard, TypeVar
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Span:
    """Part of a line with its own look.

    ``code`` is monospaced, e.g. the name of a key. A ``long`` value shows a preview, and
    everything on demand. A ``marked`` part differs from another string. A ``tag`` is a state. A
    ``time`` is in ISO 8601.
    """

    text: str
    look: Literal["code", "long", "marked", "link", "tag", "time"]
    more: str = ""
    """Preview of a long value, meaning of a tag, or path of a link to a page. Empty: the first
    words, no meaning, or the text itself as the address.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Button of a page that changes something after a token and a confirmation."""

    text: str
    path: str
    """Path of the request below the pages' root."""
    ask: str
    """Sentences on the effect."""
    confirm: str
    """Name that the user must repeat."""
    body: Mapping[str, str] = field(default_factory=dict)
    """Further fields of the request."""
    is_danger: bool = False


Inline: TypeAlias = str | Span | Action
"""Part of a line; a plain string is content, never markup."""


def code(text: str) -> Span:
    """Return monospaced text."""
    return Span(text, "code")


def has_look(part: Inline, look: str) -> TypeGuard[Span]:
    """Return whether a part has this look."""
    return isinstance(part, Span) and part.look == look


def long_text(text: str, preview: str = "") -> Span:
    """Return a long value; ``preview`` replaces its first words in the preview."""
    return Span(text, "long", preview)


def page_link(text: str, *place: str) -> Span:
    """Return a link to a page of the application.

    For example, ``page_link("answers", "runs", run_id)`` leads to a run's answers.
    """
    return Span(text, "link", "/".join(quote(part, safe="") for part in place))


@dataclass(frozen=True, slots=True)
class Heading:
    """Title of a section or subsection."""

    text: str
    level: Literal[2, 3] = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Paragraph; ``kind`` sets its weight on the page.

    Captions belong to plots and appear on the page only; tabs link to sibling pages.
    """

    parts: tuple[Inline, ...]
    kind: Literal["text", "lead", "note", "caption", "tabs"] = "text"


@dataclass(frozen=True, slots=True)
class Bullets:
    """List of paragraphs."""

    items: tuple[tuple[Inline, ...], ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Inline, ...], ...]
    numeric: frozenset[int] = frozenset()
    """Right-aligned columns."""
    folded: str = ""
    """Summary under which the page folds the table. Empty for an open table."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Named strings, each on separate lines, with line breaks kept."""

    rows: tuple[tuple[str, tuple[Inline, ...]], ...]


@dataclass(frozen=True, slots=True)
class TextDiff:
    """A unified diff."""

    lines: tuple[str, ...]


_Item = TypeVar("_Item")
Columns: TypeAlias = Mapping[str, Callable[[_Item], Inline]]
"""Heading → cell of a row's item."""


def page_action(
    text: str, *place: str, ask: str, confirm: str, is_danger: bool = False, **body: str
) -> Action:
    """Return a button whose request goes to ``place``, e.g. ``("runs", run_id, "stop")``."""
    path = "/".join(quote(part, safe="") for part in place)
    return Action(text=text, path=path, ask=ask, confirm=confirm, body=body, is_danger=is_danger)


def table(
    items: Iterable[_Item],
    columns: Columns[_Item],
    *,
    numeric: Collection[str] = (),
    folded: str = "",
) -> Grid:
    """Return a table with a row per item.

    Args:
        items: items of the rows.
        columns: heading and cell of each column.
        numeric: headings of right-aligned columns.
        folded: as for ``Grid``.
    """
    rows = tuple(tuple(cell(item) for cell in columns.values()) for item in items)
    right = frozenset(i for i, name in enumerate(columns) if name in numeric)
    return Grid(tuple(columns), rows, right, folded)


def section(
    title: str, sentence: str, lines: Iterable[str] = (), blocks: "Iterable[Block]" = ()
) -> "list[Block]":
    """Return a section: title, sentence, list of lines, then further blocks."""
    items = tuple(map(marked, lines))
    bullets = [Bullets(items)] if items else []
    return [Heading(title), Paragraph((sentence,), "lead"), *bullets, *blocks]


def marked(sentence: str) -> tuple[Inline, ...]:
    """Split a sentence at its back ticks into text and code; not for foreign strings."""
    parts = enumerate(sentence.split("`"))
    return tuple(code(part) if i % 2 else part for i, part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis of a plot."""

    title: str = ""
    kind: Literal["number", "whole", "log", "time"] = "number"
    """``time`` is in milliseconds since 1970, on pages only."""
    names: tuple[str, ...] = ()
    """Names of the positions 0, 1, ..., from the top or the left. Empty for an axis of numbers."""
    low: float | None = None
    """End of the axis; ``None`` fits it to the data."""
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One mark, with its intervals."""

    x: float
    y: float
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None
    tip: str = ""
    """Text shown when the pointer is on the mark."""
    candidate_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Marks of one look. A line also shows its points if they have tips and are few."""

    points: tuple[Point, ...]
    mark: Literal["dots", "line", "band"] = "dots"
    """A band lies between the ends on y."""
    colour: Literal["winner", "default", "dot", "ink", "muted"] = "winner"
    label: str = ""
    """Text in the legend. Empty for no entry."""
    shape: Literal["circle", "rect", "diamond"] = "circle"
    weight: Literal["faint", "plain", "strong"] = "plain"
    is_hollow: bool = False
    is_dashed: bool = False


MOST_MARKED = 40
"""Maximum points of a line that shows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Data and encoding of a plot. ECharts draws it on pages and in HTML, matplotlib in stills."""

    name: str
    """Identifier, unique in its document."""
    title: str
    """Description for users who cannot see the plot."""
    x: Axis = Axis()
    y: Axis = Axis()
    layers: tuple[Layer, ...]
    heading: str = ""
    """Text above a small plot, one of many. Empty for a large plot."""
    height: float = 3.0
    """Height in inches."""


@dataclass(frozen=True, slots=True)
class Plots:
    """Plots side by side if they fit; on the page only."""

    plots: tuple[Plot, ...]


Block: TypeAlias = Heading | Paragraph | Bullets | Grid | Plots | Texts | TextDiff


def json_of(value: Any) -> Any:
    """Return a block or a part as JSON, with the name of its class and its fields."""
    if is_dataclass(value):
        parts = {each.name: json_of(getattr(value, each.name)) for each in fields(value)}
        return {"is": type(value).__name__, **parts}
    if isinstance(value, (tuple, frozenset)):
        return [json_of(each) for each in value]
    return value
