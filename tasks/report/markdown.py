"""Report in Markdown. Plots appear only on the HTML page."""

import re
from collections.abc import Sequence

from convergence_core.result import RunResult
from tasks.report import phrases
from tasks.report.blocks import (
    Action,
    Block,
    Bullets,
    Grid,
    Heading,
    Inline,
    Paragraph,
    Plots,
    Span,
    TextDiff,
    Texts,
    has_look,
)
from tasks.report.document import document
from tasks.report.phrases import clean, short

_MARKUP = re.compile(r"(?<!\w)[*_]|[*_](?!\w)|[`\\~]|\](?=[(\[:])")
"""Characters that would be markup. Single brackets are not, and many would disturb readers."""


def report_markdown(result: RunResult) -> str:
    """Return the report as Markdown, with the tables behind all plots."""
    parts = [
        f"# {_text(short(result.label, 100))}",
        _text(f"{phrases.heading(result)}.{phrases.ending(result)}"),
    ]
    return "\n\n".join([*parts, markdown_of(document(result))])


def markdown_of(blocks: Sequence[Block]) -> str:
    """Return blocks as Markdown."""
    return "\n\n".join(part for part in map(_block, blocks) if part) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_text(block.text)}"
        case Paragraph():
            return "" if block.kind == "caption" else _line(block.parts)
        case Bullets():
            return "\n".join(f"* {_line(item)}" for item in block.items)
        case Grid():
            return _grid(block)
        case Texts() | TextDiff():
            return _texts(block)
        case Plots():
            return ""


def _texts(block: Texts | TextDiff) -> str:
    if isinstance(block, TextDiff):
        return _fenced("\n".join(block.lines), "diff")
    return "\n".join(f"* {_text(name)}: {_broken(parts)}" for name, parts in block.rows)


def _grid(grid: Grid) -> str:
    lines = [
        _row([_text(column) for column in grid.columns]),
        _row(["---:" if i in grid.numeric else "---" for i in range(len(grid.columns))]),
    ]
    lines += [_row([_line([cell]) for cell in row]) for row in grid.rows]
    long_texts = [cell.text for row in grid.rows for cell in row if has_look(cell, "long")]
    table = "\n".join(lines)
    return "\n\n".join([table, *(_fenced(text) for text in long_texts)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _line(parts: Sequence[Inline]) -> str:
    return "".join(_inline(part) for part in parts)


def _inline(part: Inline) -> str:
    match part:
        case Span(look="code"):
            return _code(short(part.text, 200))
        case Span(look="long"):
            return _code(part.more or short(part.text)) + " (whole below)"
        case Span(look="marked"):
            return f"<mark>{_text(part.text)}</mark>"
        case Span() | Action():
            return _text(part.text)
        case str():
            return _text(part)


def _broken(parts: Sequence[Inline]) -> str:
    """Return a string on one line of Markdown that displays its line breaks."""
    lines = "".join(
        f"<mark>{_lines(part.text)}</mark>" if has_look(part, "marked") else _lines(_plain(part))
        for part in parts
    )
    return lines or '""'


def _plain(part: Inline) -> str:
    return part if isinstance(part, str) else part.text


def _lines(text: str) -> str:
    return "<br>".join(_text(line) for line in text.split("\n"))


def _text(text: str) -> str:
    """Return a string with markup escaped."""
    line = re.sub(r"\s+", " ", clean(text))
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(r"\\\g<0>", line)


def _code(text: str) -> str:
    """Return a code span for a string with any back ticks."""
    if not text.strip():
        return '""'
    fence, pad = _fence(text, 1), " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _fenced(text: str, language: str = "text") -> str:
    fence = _fence(text, 3)
    return f"{fence}{language}\n{text}\n{fence}"


def _fence(text: str, least: int) -> str:
    """Return a run of back ticks longer than any in the string, with a minimum length."""
    return "`" * max(least, 1 + max(map(len, re.findall(r"`+", text)), default=0))
