"""Summary of a finished run: the report's findings in a terminal."""

from pathlib import Path
from typing import TYPE_CHECKING

from convergence.cli import console
from tasks.report import phrases
from tasks.report.blocks import Block, Bullets, Code, Grid, Heading, Inline, LongText, Paragraph
from tasks.report.document import summary

if TYPE_CHECKING:
    from convergence_core.result import RunResult


def show(result: "RunResult") -> None:
    """Print what was found, what it rests on, and where to read more."""
    price = "" if result.cost_usd is None else f", {phrases.usd(result.cost_usd)}"
    console.answer(f"\n{result.label}: {result.status}, {result.reason}", style="bold")
    console.answer(f"{phrases.heading(result)}{price}")
    for block in summary(result):
        show_block(block)
    if result.gate is not None and result.gate.decision == "promote":
        console.answer(f"\nAdopt it: convergence promote {result.label}")
    if result.files:
        console.answer("\nFiles", style="bold")
        for path in dict.fromkeys(result.files.values()):
            console.answer(f"  {console.short_path(Path(path))}")
    console.answer(f"\nMore: convergence report {result.label}")


def show_block(block: Block) -> None:
    """Print a block; plots, captions and folded tables are the page's alone."""
    match block:
        case Heading():
            console.answer(f"\n{block.text}", style="bold")
        case Paragraph() if block.kind != "caption":
            console.answer(_line(block.parts))
        case Bullets():
            for item in block.items:
                console.answer(f"  * {_line(item)}")
        case Grid() if not block.folded:
            rows = [[_cell(cell) for cell in row] for row in block.rows]
            right = [name for i, name in enumerate(block.columns) if i in block.numeric]
            console.show(console.simple_table(block.columns, rows, right=right))
        case _:
            pass


def _line(parts: tuple[Inline, ...]) -> str:
    return "".join(f"`{part.text}`" if isinstance(part, Code) else _cell(part) for part in parts)


def _cell(part: Inline) -> str:
    if isinstance(part, str):
        return part
    return phrases.short(part.text) if isinstance(part, LongText) else part.text
