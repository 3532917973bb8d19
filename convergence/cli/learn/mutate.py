"""``mutate``: one edit of a prompt by hand."""

import difflib
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from convergence import console
from convergence.cli import options
from convergence.cli.locations import load_with
from convergence.cli.options import EXIT_NO
from convergence_core.errors import ConfigurationError


class Operator(StrEnum):
    """Kinds of edits."""

    REFLECT = "reflect"
    MERGE = "merge"
    EXAMPLES = "examples"
    INDUCE = "induce"
    TRY_CATCH_STYLE = "try-catch-style"
    CONTEXT_REDUCTION = "context-reduction"
    EXPANSION = "expansion"
    CONSTRAINT_ADDITION = "constraint-addition"
    TASK_DECOMPOSITION = "task-decomposition"


def mutate(  # noqa: PLR0917 - Typer's options
    prompt: Annotated[Path, typer.Argument(metavar="PROMPT", help="File of the prompt.")],
    operator: Annotated[
        Operator, typer.Option("--operator", help="Kind of edit.")
    ] = Operator.REFLECT,
    other: Annotated[
        Path | None, typer.Option("--with", metavar="PROMPT", help="Second prompt, for merge.")
    ] = None,
    config: Annotated[
        Path, typer.Option(help="Configuration with the test cases and the `llm`.")
    ] = options.CONFIG_FILE,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the new prompt to this file.")
    ] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="Write by fixed rules: no key, no call.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    _json: options.AsJson = False,
) -> None:
    """Write one new prompt from a prompt, and show the difference.

    The writer sees the prompt's failures in the latest run, or test cases. Makes one call of the `llm`
    outside any run. Exit code 100: the new prompt breaks an invariant and is not shown.
    """
    from tasks.prompts.by_hand import mutate_text  # noqa: PLC0415 - brings NumPy

    text = _read(prompt)
    second = None if other is None else _read(other)
    edit, shown = mutate_text(
        load_with(config, None), text, operator.value, other=second, rules=rules, seed=seed
    )
    console.emit(
        {"verdict": edit.verdict, "text": edit.text if edit.is_kept else None,
         "diagnosis": edit.diagnosis, "shown": [*shown], "writer": edit.writer,
         "cost_usd": edit.cost_usd},
        lambda: _show(text, edit.text, shown, edit.diagnosis),
    )  # fmt: skip
    if not edit.is_kept:
        console.say(f"Rejected: {edit.verdict.replace('_', ' ')}. {edit.reason}".rstrip())
        raise typer.Exit(EXIT_NO)
    if output is not None:
        output.write_text(edit.text, encoding="utf-8")
        console.say(f"Wrote {output}. Its value is unknown until a run has tried it.")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        fix = "Name a text file."
        raise ConfigurationError.of(
            "PROMPT", "must be a readable text file", fix, value=f"{path}: {error}"
        ) from error


def _show(before: str, after: str, shown: tuple[str, ...], diagnosis: str) -> None:
    if shown:
        console.answer(f"Shown: {', '.join(shown)}.")
    if diagnosis:
        console.answer(f"Diagnosis: {diagnosis}")
    styles = {"+": "green", "-": "red"}
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    for line in [*lines][2:] if after else []:
        console.answer(f"  {line}", style=styles.get(line[:1], ""))
