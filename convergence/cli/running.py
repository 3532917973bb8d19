"""``optimize`` and ``resume``: the commands that make calls."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convergence.cli import console, places
from convergence_core.errors import RunInterruptedError
from convergence_core.events import Listener

if TYPE_CHECKING:
    from convergence_core.result import RunResult
    from tasks.runs import Run

EXIT_ERROR = 1
"""No candidate got a reward."""
EXIT_BUDGET = 3
QUIET_HELP = "Show no progress; print the result only."
JSON_HELP = "Print the result as one JSON object, and nothing else."


def optimize(  # noqa: PLR0917 - Typer's options
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="optimization.yaml")] = Path(
        places.CONFIG_NAME
    ),
    seed: Annotated[
        int | None, typer.Option(min=0, help="Same seed, same run. Over optimization.seed.")
    ] = None,
    generations: Annotated[
        int | None,
        typer.Option(min=1, help="Generations at most. Over optimization.evolution.generations."),
    ] = None,
    max_calls: Annotated[
        int | None,
        typer.Option(min=1, help="Calls at most, retries included. Over budget.max_calls."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the result files. Over output.save_path."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help=QUIET_HELP)] = False,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Run an optimization.

    Ctrl-C ends it cleanly and keeps all that was paid; `convergence resume` goes on. Exit code 3:
    the budget was reached; the result is what could be learned within it.
    """
    console.settings.json = as_json

    def prepare(listener: Listener | None) -> "Run":
        from tasks.loading import load  # noqa: PLC0415 - brings pydantic and numpy
        from tasks.opening import prepare_run  # noqa: PLC0415 - brings DuckDB and clients

        return prepare_run(
            load(config),
            seed=seed,
            generations=generations,
            max_calls=max_calls,
            save_path=None if output is None else str(output.resolve()),
            on_event=listener,
        )

    _run(prepare, place=_place(None, config), quiet=quiet, as_json=as_json)


def resume(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="Label, id or unambiguous part of it. Default: the latest unfinished run.",
        ),
    ] = None,
    store: Annotated[Path | None, typer.Option(help=places.STORE_HELP)] = None,
    config: Annotated[Path | None, typer.Option(help=places.CONFIG_HELP)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help=QUIET_HELP)] = False,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Go on with a run that was stopped or killed; finished calls are not made again."""
    console.settings.json = as_json

    def prepare(listener: Listener | None) -> "Run":
        path = places.open_store(store, config).path
        from tasks.opening import resume_run  # noqa: PLC0415 - brings DuckDB and clients

        return resume_run(path, run, on_event=listener)

    _run(prepare, place=_place(store, config), quiet=quiet, as_json=as_json)


def _place(store: Path | None, config: Path | None) -> str:
    """Return the options by which `resume` finds the store again from this folder."""
    if store is not None:
        return f" --store {shlex.quote(str(store))}"
    if config is None or config == Path(places.CONFIG_NAME):
        return ""
    return f" --config {shlex.quote(str(config))}"


def _run(
    prepare: Callable[[Listener | None], "Run"], *, place: str, quiet: bool, as_json: bool
) -> None:
    """Prepare a run, execute its flow, show progress and result."""
    from convergence.cli.interrupts import stops_cleanly  # noqa: PLC0415 - only for runs
    from convergence.execution import execute  # noqa: PLC0415 - as above
    from convergence.progress import Progress, open_screen  # noqa: PLC0415 - brings Rich

    with Progress(open_screen(quiet=quiet or as_json)) as progress:
        # Nobody watches a quiet run, so nobody is told of its cells.
        running = prepare(None if quiet or as_json else progress)
        go_on = f"Go on with: convergence resume {running.label}{place}"
        try:
            with stops_cleanly(running.stop, lambda text: progress.say(text, "yellow"), go_on):
                result = execute(running, verbose=console.settings.debug)
        except RunInterruptedError:
            if place:  # else the error's own advice is enough
                progress.say(go_on)
            raise
    if as_json:
        console.answer_json(result.to_json())
    else:
        from convergence.cli.summary import show  # noqa: PLC0415 - brings Rich

        show(result)
    code = _exit_code(result)
    if code:
        raise typer.Exit(code)


def _exit_code(result: "RunResult") -> int:
    if result.winner is None:
        return EXIT_ERROR
    return EXIT_BUDGET if result.status == "budget" else 0
