"""Console output: results to standard output, everything else to standard error."""

import json
import math
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from convergence_core.errors import ConfigurationError, ConvergenceError, RunInterruptedError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tasks.report.blocks import Block, Inline


_Item = TypeVar("_Item")

PIPE_WIDTH = 200
"""Width of a table without a terminal, in characters."""
LONGEST_WORD = 64
"""Longest id that a table does not break, in characters."""
NARROWEST_TEXT = 20
"""Minimum width of a text column next to id columns, in characters."""
_TURNS: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the writing direction."""


@dataclass(slots=True)
class ConsoleSettings:
    """Settings of this process, from ``--debug`` and ``--json``."""

    debug: bool = False
    json: bool = False
    """Whether to print the result as one JSON value and nothing else to standard output."""


settings = ConsoleSettings()


def out() -> "Console":
    """Return the console of standard output."""
    from rich.console import Console  # noqa: PLC0415 - not needed for --json

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def err() -> "Console":
    """Return the console of standard error."""
    from rich.console import Console  # noqa: PLC0415 - not needed for --json

    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


def say(text: str, style: str = "") -> None:
    """Write a redacted line to standard error."""
    err().print(_without_secrets(text), style=style, markup=False)


def _without_secrets(text: str) -> str:
    from tasks.secrets.process_redaction import redacted_text  # noqa: PLC0415 - brings pydantic

    return printable(redacted_text(text))


def printable(text: str) -> str:
    """Escape characters that are unsafe in a terminal.

    These are control characters except tabs and line feeds, changes of the writing direction, and
    lone surrogates. An escape sequence in a model's answer could otherwise rewrite the screen.
    """
    return "".join(
        char.encode("unicode_escape").decode() if _is_unsafe(char) else char for char in text
    )


def _is_unsafe(char: str) -> bool:
    return char not in "\n\t" and (unicodedata.category(char) in {"Cc", "Cs"} or char in _TURNS)


def answer(text: str, style: str = "") -> None:
    """Write a line of the result to standard output."""
    out().print(printable(text), style=style, markup=False)


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation.

    Raises:
        ConfigurationError: standard input is no terminal, and ``--yes`` is missing.
        typer.Exit: the user declines.
    """
    import typer  # noqa: PLC0415 - with its only user

    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError.of("--yes", "is required without a terminal", "Add --yes.")
    if not typer.confirm(question):
        raise typer.Exit(1)


def show(table: "Table") -> None:
    """Write a table to standard output, at full width outside a terminal.

    Columns of ids keep their width, so that you can copy an id; the terminal wraps longer lines.
    """
    console = out()
    width = console.width if sys.stdout.isatty() else PIPE_WIDTH
    needed = sum((column.min_width or 0) + 2 for column in table.columns)
    console.width = max(width, needed)
    console.print(table)


def emit(value: object, show: Callable[[], None] | str) -> None:
    """Write a command's result to the terminal: a JSON document with ``--json``, else text.

    Args:
        value: the result as JSON.
        show: printer of the text form, or the message itself.
    """
    if settings.json:
        answer_json(value)
    elif isinstance(show, str):
        say(show)
    else:
        show()


def write(text: str, output: Path | None) -> None:
    """Write text to a file and print its path; ``None`` means standard output."""
    from tasks.store.layout import write_file  # noqa: PLC0415 - with its only user

    if output is None:
        sys.stdout.write(text)
        return
    write_file(output, text)
    say(f"Wrote {output}.")


def answer_json(value: object) -> None:
    """Write a value as one JSON document to standard output."""
    sys.stdout.write(json_text(value))


def json_text(value: object) -> str:
    """Return a value as one JSON document."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=2)
    # JSON escapes preserve the value.
    return "".join(f"\\u{ord(char):04x}" if _is_unsafe(char) else char for char in text) + "\n"


def plain(value: Any) -> Any:
    """Convert a value to JSON types: records to objects, times to ISO strings, NaN to ``None``."""
    plained: Any
    match value:
        case None | bool() | int() | str():
            plained = value
        case float() | Decimal():
            plained = float(value) if math.isfinite(value) else None
        case datetime() | date():
            plained = value.isoformat()
        case timedelta():
            plained = value.total_seconds()
        case Mapping():
            plained = {str(key): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            plained = [plain(item) for item in value]
        case _ if is_dataclass(value):
            plained = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            plained = str(value)
    return plained


def fail(error: ConvergenceError) -> None:
    """Write an error's message, one problem per line, or JSON with ``--json``."""
    if settings.json:
        answer_json({"error": describe(error)})
        return
    console = err()
    if isinstance(error, ConfigurationError):
        for problem in error.problems:
            console.print(_without_secrets(str(problem)), markup=False)
        n = len(error.problems)
        console.print(f"{n} problem{'' if n == 1 else 's'} found.", style="bold red")
    else:
        if not isinstance(error, RunInterruptedError):
            console.print("Error:", style="bold red", end=" ")
        console.print(_without_secrets(str(error)), markup=False)


def describe(error: ConvergenceError) -> dict[str, Any]:
    """Return an error as JSON: type, message, and the problems of a configuration."""
    message = _without_secrets(str(error))
    described: dict[str, Any] = {"type": type(error).__name__, "message": message}
    if isinstance(error, ConfigurationError):
        described["problems"] = problem_rows(error)
    return described


def problem_rows(error: ConfigurationError) -> list[dict[str, Any]]:
    """Return the problems of an error as JSON."""
    names = ("file", "line", "column", "key", "rule", "value", "fix")
    return [
        {
            name: _without_secrets(value) if isinstance(value, str) else value
            for name in names
            for value in [getattr(problem, name)]
        }
        for problem in error.problems
    ]


def fail_unexpectedly(error: Exception) -> None:
    """Write the message of an unexpected error."""
    name, message = type(error).__name__, _without_secrets(str(error))
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        message = _without_secrets(f"{error.filename}: {error.strerror}")
    if settings.json:
        answer_json({"error": {"type": name, "message": message}})
        return
    console = err()
    console.print("Error:", style="bold red", end=" ")
    if isinstance(error, OSError) and message:  # about a file or the network: the message suffices
        console.print(message, markup=False)
    else:
        console.print(f"{name}: {message}" if message else name, markup=False)
        console.print(
            "Unexpected error. Run again with `--debug` for the traceback.", markup=False
        )


def simple_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()
) -> "Table":
    """Return a plain table; ``right`` names numeric columns."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - Rich loads when a table is shown
    from rich.cells import cell_len  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        cells = [column, *(row[index] for row in rows)]
        longest = max(map(cell_len, cells))
        is_words = longest <= LONGEST_WORD and not any(" " in cell for cell in cells)
        table.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="fold",
            no_wrap=is_words,
            min_width=longest if is_words else min(longest, NARROWEST_TEXT),
        )
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def table_of(
    items: Iterable[_Item],
    columns: Mapping[str, Callable[[_Item], str]],
    *,
    right: Sequence[str] = (),
) -> "Table":
    """Return a plain table with a row per item; ``columns`` is heading → cell."""
    rows = [[cell(item) for cell in columns.values()] for item in items]
    return simple_table([*columns], rows, right=right)


def show_block(block: "Block") -> None:
    """Print a block of a report, except plots, captions and folded tables."""
    from tasks.report import blocks  # noqa: PLC0415 - with its only user

    match block:
        case blocks.Heading():
            answer(f"\n{block.text}", style="bold")
        case blocks.Texts():
            _show_texts(block.rows)
        case blocks.TextDiff():
            styles = {"+": "green", "-": "red"}
            for line in block.lines:
                answer(f"  {line}", style=styles.get(line[:1], ""))
        case blocks.Paragraph() if block.kind != "caption":
            answer(_line(block.parts), style="bold" if block.kind == "lead" else "")
        case blocks.Bullets():
            for item in block.items:
                answer(f"  * {_line(item)}")
        case blocks.Grid() if not block.folded:
            rows = [[_cell(cell) for cell in row] for row in block.rows]
            right = [name for i, name in enumerate(block.columns) if i in block.numeric]
            show(simple_table(block.columns, rows, right=right))
        case _:
            pass


def _show_texts(rows: "tuple[tuple[str, tuple[Inline, ...]], ...]") -> None:
    """Print named texts; marked parts are bold in a terminal."""
    from rich.table import Table  # noqa: PLC0415 - Rich loads when it is needed
    from rich.text import Text  # noqa: PLC0415 - as above

    from tasks.report.blocks import has_look  # noqa: PLC0415 - with its only user

    width = max((len(name) for name, _ in rows), default=0)
    grid = Table.grid(padding=(0, 2))
    for name, parts in rows:
        text = Text()
        for part in parts:
            text.append(printable(_cell(part)), "bold yellow" if has_look(part, "marked") else "")
        if sys.stdout.isatty():
            grid.add_row(Text(f"  {name}", style="dim"), text)
        else:
            answer(f"  {name:<{width}}  " + text.plain.replace("\n", f"\n{' ' * (width + 4)}"))
    if grid.rows:
        out().print(grid)


def _line(parts: "tuple[Inline, ...]") -> str:
    from tasks.report.blocks import has_look  # noqa: PLC0415 - as above

    return "".join(f"`{_cell(part)}`" if has_look(part, "code") else _cell(part) for part in parts)


def _cell(part: "Inline") -> str:
    from tasks.report import phrases  # noqa: PLC0415 - as above
    from tasks.report.blocks import has_look  # noqa: PLC0415 - as above

    if isinstance(part, str):
        return part
    if has_look(part, "long"):
        return part.more or phrases.short(part.text)
    return part.text


def short_path(path: Path) -> str:
    """Return a path, relative if it lies below the working folder."""
    try:
        relative = path.resolve().relative_to(Path.cwd())
    except ValueError:
        return str(path)
    return f"./{relative}" if str(relative) != "." else "."
