"""``report.html``: one file that needs nothing else, in light and dark, on a desk and a phone."""

import re
from collections.abc import Sequence
from html import escape
from typing import get_args

from convergence_core.result import RunResult
from convergence_core.visualization import Visualization
from tasks.report import phrases
from tasks.report.blocks import (
    Block,
    Bullets,
    Code,
    Grid,
    Heading,
    Inline,
    KeyFigure,
    KeyFigures,
    LongText,
    Paragraph,
    PlotName,
    Plots,
)
from tasks.report.document import document
from tasks.report.effect_plots import MAX_EFFECTS
from tasks.report.phrases import clean, short
from tasks.report.plots import svg_plots

_STYLE = """
:root{color-scheme:light dark;--paper:#f6f7f5;--card:#fff;--ink:#1b2430;--muted:#5b6675;
--line:#e1e5e9;--winner:#1f6f5c;--default:#b4581a;--dot:#7d8a9b;--wash:#eef4f1;
--sans:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
--mono:ui-monospace,"SFMono-Regular",Menlo,Consolas,"Liberation Mono",monospace}
@media(prefers-color-scheme:dark){:root{--paper:#12161b;--card:#1a2027;--ink:#e6eaee;
--muted:#9aa7b4;--line:#2d353e;--winner:#5cc5a8;--default:#eb9b5f;--dot:#8d9aab;--wash:#1b2a27}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 var(--sans);
-webkit-text-size-adjust:100%}
main{max-width:60rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
header p{color:var(--muted);margin:.25rem 0 0}
h1{font-size:1.7rem;line-height:1.2;margin:0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.75rem 0 .75rem;padding-top:1.25rem;border-top:1px solid var(--line)}
p,ul{max-width:46rem}
.lead{font-size:1.12rem}
.note,.caption{color:var(--muted);font-size:.9rem}
ul{padding-left:1.1rem}
li{margin:.4rem 0}
code{font:.88em var(--mono);overflow-wrap:break-word}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(12.5rem,1fr));gap:.75rem;
margin:1.25rem 0}
.figure{background:var(--card);border:1px solid var(--line);border-radius:8px;
padding:.8rem 1rem .9rem}
.figure.main{background:var(--wash);border-color:var(--winner)}
.figure b{display:block;font-size:1.9rem;line-height:1.25;font-weight:650;
font-variant-numeric:tabular-nums}
.figure span{color:var(--muted);font-size:.85rem;display:block;line-height:1.4}
.plots{display:grid;gap:.75rem;margin:1rem 0;grid-template-columns:repeat(auto-fit,minmax(min(100%,28rem),1fr))}
.plots.small{grid-template-columns:repeat(auto-fill,minmax(min(100%,17rem),1fr))}
.plot{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.75rem;
min-width:0;margin:0}
.plot svg{display:block;width:100%;height:auto;max-width:34rem;margin:0 auto}
.plot svg text{font-family:var(--sans)!important}
.scroll{overflow-x:auto;margin:1rem 0;background:var(--card);border:1px solid var(--line);
border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{padding:.45rem .8rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
tr:last-child td{border-bottom:0}
th{color:var(--muted);font-weight:600;font-size:.82rem;vertical-align:bottom}
td:not(.n){min-width:5.5rem}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
details>summary{cursor:pointer;color:var(--muted);font-size:.9rem;overflow-wrap:anywhere}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font:.85rem/1.5 var(--mono);margin:.5rem 0}
footer{color:var(--muted);font-size:.85rem;margin-top:3rem}
@media(max-width:36rem){main{padding:1.5rem 1rem 3rem}h1{font-size:1.35rem}
.figures{grid-template-columns:1fr 1fr}.figure b{font-size:1.5rem}
th,td{padding:.4rem .6rem}.plot{padding:.5rem}}
@media print{body{background:none}.scroll,.plot,.figure{break-inside:avoid}}
"""

_INTERVAL = re.compile(r"(\[[-+\N{MINUS SIGN}]?\d\.\d+,) ")
"""Beginning of an interval, which should not be torn at the end of a line."""


def report_html(
    result: RunResult, visualizations: Sequence[Visualization] = get_args(Visualization)
) -> str:
    """Return the report as one HTML page: styles and plots inline, no request to anywhere.

    Args:
        result: what the run found.
        visualizations: plots to show, as ``output.visualizations`` names them.
    """
    title = _text(short(result.label, 100))
    body = "\n".join(_block(block, result) for block in document(result, visualizations))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{title}</h1>\n<p>{_text(phrases.heading(result))}</p>\n"
        f"<p>{_text(phrases.moment(result.started_us))}, "
        f"{_text(phrases.duration(result.started_us, result.ended_us))}. "
        f"{_text(phrases.ending(result))}</p></header>\n"
        f"{body}\n</main>\n</body>\n</html>\n"
    )


def _block(block: Block, result: RunResult) -> str:
    match block:
        case Heading():
            return f"<h2>{_text(block.text)}</h2>"
        case Paragraph():
            kind = "" if block.kind == "text" else f' class="{block.kind}"'
            return f"<p{kind}>{_line(block.parts)}</p>"
        case Bullets():
            items = "\n".join(f"<li>{_line(item)}</li>" for item in block.items)
            return f"<ul>\n{items}\n</ul>"
        case KeyFigures():
            figures = "\n".join(_key_figure(figure) for figure in block.figures)
            return f'<div class="figures">\n{figures}\n</div>'
        case Grid():
            return _grid(block)
        case Plots():
            return _plots(block.names, result)


def _key_figure(figure: KeyFigure) -> str:
    kind = "figure main" if figure.is_main else "figure"
    return (
        f'<div class="{kind}"><span>{_text(figure.title)}</span><b>{_text(figure.value)}</b>'
        f"<span>{_text(figure.detail)}</span></div>"
    )


def _plots(names: Sequence[PlotName], result: RunResult) -> str:
    pictures = [picture for name in names for picture in svg_plots(result, name)]
    kind = "plots small" if "parameter_effects" in names else "plots"
    figures = "\n".join(f'<figure class="plot">{picture}</figure>' for picture in pictures)
    n_left_out = len(result.effects) - MAX_EFFECTS if "parameter_effects" in names else 0
    note = f'\n<p class="note">{n_left_out} more are in the table.</p>' if n_left_out > 0 else ""
    return f'<div class="{kind}">\n{figures}\n</div>{note}'


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


def _line(parts: Sequence[Inline]) -> str:
    return "".join(_inline(part) for part in parts)


def _inline(part: Inline) -> str:
    match part:
        case Code():
            return f"<code>{_text(part.text)}</code>"
        case LongText():
            begin = f"<summary><code>{_text(short(part.text))}</code></summary>"
            return f"<details>{begin}<pre>{_text(part.text)}</pre></details>"
        case str():
            return _INTERVAL.sub(r"\1&nbsp;", _text(part))


def _text(text: str) -> str:
    return escape(clean(text), quote=True)
