"""Report as one self-contained HTML page, light and dark."""

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

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
    Plot,
    Plots,
    Span,
    TextDiff,
    Texts,
    json_of,
)
from tasks.report.document import DETAILS, document
from tasks.report.phrases import clean, short
from tasks.store.clock import moment

_WITHOUT_SCRIPT = "Without scripts no plot is drawn; the tables have its numbers."
_INTERVAL = re.compile(r"(\[[-+\N{MINUS SIGN}]?\d\.\d+,) ")
"""Start of an interval, which must not break across lines."""


def report_html(result: RunResult) -> str:
    """Return the report as one HTML page with inline styles, plots and scripts.

    It makes no request.
    """
    title = _text(short(result.label, 100))
    blocks = document(result)
    n = blocks.index(DETAILS)
    first, rest = (
        "\n".join(block_html(block) for block in part) for part in (blocks[:n], blocks[n + 1 :])
    )
    body = f"{first}\n<details><summary>{DETAILS.text}</summary>\n{rest}\n</details>"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">\n'
        f"<title>{title}</title>\n<style>{_style()}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{title}</h1>\n<p>{_text(phrases.heading(result))}</p>\n"
        f"<p>{_text(moment(result.started_us))}, "
        f"{_text(phrases.duration(result.started_us, result.ended_us))}."
        f"{_text(phrases.ending(result))}</p></header>\n"
        f"{body}\n</main>\n<script>{_script()}</script>\n</body>\n</html>\n"
    )


@cache
def _policy() -> str:
    """Return the page's content security policy: only our script, by its hash, may run.

    Styles may be inline, since charts set theirs.
    """
    digest = b64encode(sha256(_script().encode("utf-8")).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _script() -> str:
    """Return the page's script, and ECharts with the plots of ``ui/src/report.ts``."""
    folder = files("tasks.report")
    parts = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.js", "plots.js"))
    return "\n" + "\n".join(parts)


@cache
def _style() -> str:
    return "\n" + files("tasks.report").joinpath("page.css").read_text(encoding="utf-8")


def block_html(block: Block) -> str:
    """Return a block of a report as HTML with escaped content."""
    match block:
        case Heading():
            return f"<h{block.level}>{_text(block.text)}</h{block.level}>"
        case Paragraph():
            kind = "" if block.kind == "text" else f' class="{block.kind}"'
            return f"<p{kind}>{_line(block.parts)}</p>"
        case Bullets():
            items = "\n".join(f"<li>{_line(item)}</li>" for item in block.items)
            return f"<ul>\n{items}\n</ul>"
        case Grid():
            return _grid(block)
        case Texts() | TextDiff():
            return _texts(block)
        case Plots():
            return _plots(block)


def _plots(block: Plots) -> str:
    kind = "plots small" if any(plot.heading for plot in block.plots) else "plots"
    figures = "\n".join(map(_figure, block.plots))
    return f'<div class="{kind}">\n{figures}\n</div>'


def _figure(plot: Plot) -> str:
    """Return a plot's declaration for the script that draws it."""
    heading = (
        f"<figcaption><code>{_text(plot.heading)}</code></figcaption>" if plot.heading else ""
    )
    data = escape(json.dumps(json_of(plot)), quote=True)
    return (
        f'<figure class="plot">{heading}<div role="img" aria-label="{_text(plot.title)}" '
        f'style="height:{96 * plot.height:.0f}px" data-plot="{data}">{_WITHOUT_SCRIPT}</div></figure>'
    )


def _grid(grid: Grid) -> str:
    def cell(i: int, tag: str, content: str) -> str:
        kind = ' class="n"' if i in grid.numeric else ""
        return f"<{tag}{kind}>{content}</{tag}>"

    head = "".join(cell(i, "th", _text(column)) for i, column in enumerate(grid.columns))
    head = f"<thead><tr>{head}</tr></thead>\n" if any(grid.columns) else ""
    rows = "\n".join(
        "<tr>" + "".join(cell(i, "td", _line([part])) for i, part in enumerate(row)) + "</tr>"
        for row in grid.rows
    )
    table = f'<div class="scroll"><table>\n{head}<tbody>\n{rows}\n</tbody></table></div>'
    if not grid.folded:
        return table
    return f"<details><summary>{_text(grid.folded)}</summary>\n{table}\n</details>"


def _texts(block: Texts | TextDiff) -> str:
    if isinstance(block, TextDiff):
        return f'<pre class="diff">{_diff(block.lines)}</pre>'
    rows = "\n".join(
        f"<dt>{_text(name)}</dt><dd>{_line(parts)}</dd>" for name, parts in block.rows
    )
    return f'<dl class="texts">\n{rows}\n</dl>'


def _diff(lines: Sequence[str]) -> str:
    tags = {"+": "ins", "-": "del"}
    shown = []
    for line in lines:
        tag = tags.get(line[:1])
        shown.append(f"<{tag}>{_text(line)}</{tag}>" if tag else _text(line))
    return "\n".join(shown)


def _line(parts: Sequence[Inline]) -> str:
    return "".join(_inline(part) for part in parts)


def _inline(part: Inline) -> str:
    match part:
        case Span(look="code"):
            return f"<code>{_text(part.text)}</code>"
        case Span(look="long"):
            begin = f"<summary><code>{_text(part.more or short(part.text))}</code></summary>"
            return f"<details>{begin}<pre>{_text(part.text)}</pre></details>"
        case Span(look="marked"):
            return f"<mark>{_text(part.text)}</mark>"
        # A store may come from elsewhere, so anything but a web address stays text.
        case Span(look="link", more="") if part.text.startswith("https://"):
            shown = _text(part.text)
            return f'<a href="{shown}" rel="noopener noreferrer">{shown}</a>'
        case Span() | Action():
            return _text(part.text)
        case str():
            return _INTERVAL.sub(r"\1&nbsp;", _text(part))


def _text(text: str) -> str:
    return escape(clean(text), quote=True)
