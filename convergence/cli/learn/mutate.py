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
    """What is to be done."""

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
    prompt: Annotated[Path, typer.Argument(metavar="PROMPT", help="File of the text.")],
    operator: Annotated[
        Operator, typer.Option("--operator", help="Kind of edit.")
    ] = Operator.REFLECT,
    other: Annotated[
        Path | None, typer.Option("--with", metavar="PROMPT", help="Second text of merge.")
    ] = None,
    config: Annotated[
        Path, typer.Option(help="Configuration: its cases, and its llm.")
    ] = options.CONFIG_FILE,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the new text here.")
    ] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="Let fixed rules write: no key, no call.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn.")] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Write one new text from a prompt, and show the difference.

    The writer sees failures of the text in the latest run, or cases. One call of the `llm`, outside of any
    run. Exit code 100: the text breaks an invariant, and is not shown.
    """
    from tasks.prompts.by_hand import mutate_text  # noqa: PLC0415 - brings NumPy

    text = _read(prompt)
    second = None if other is None else _read(other)
    found = mutate_text(
        load_with(config, None), text, operator.value, other=second, rules=rules, seed=seed
    )
    one = found.mutation
    if as_json:
        console.answer_json(
            {"verdict": one.verdict, "text": one.text if one.is_kept else None,
             "diagnosis": one.diagnosis, "shown": [*found.shown], "writer": one.writer,
             "cost_usd": one.cost_usd}
        )  # fmt: skip
    else:
        _show(text, one.text, found.shown, one.diagnosis)
    if not one.is_kept:
        console.say(f"Refused: {one.verdict.replace('_', ' ')}. {one.reason}".rstrip())
        raise typer.Exit(EXIT_NO)
    if output is not None:
        output.write_text(one.text, encoding="utf-8")
        console.say(f"Wrote {output}. Nothing is known of its worth until a run has tried it.")


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
