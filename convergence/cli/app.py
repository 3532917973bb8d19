"""The Typer application: its commands, in the order in which help lists them."""

from typing import Annotated

import typer

from convergence import console
from convergence.cli import (
    answers,
    arms,
    assessment,
    begin,
    chat,
    datasets,
    decide,
    estimate,
    look,
    mock,
    off_policy,
    operate,
    optimize,
    pages,
    review,
    serve,
    store,
)
from convergence.cli.learn import adapters, games, mutate, policy, train

app = typer.Typer(
    name="convergence",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 error, 2 bad input, 3 budget reached, 100 a gate says no, 130 interrupted.",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        operate.version()
        raise typer.Exit


@app.callback()
def convergence(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show tracebacks and Prefect's logs (anywhere in the line)."),
    ] = False,
) -> None:
    """Find better settings for an LLM call, an HTTP API or a Python function.

    Whether they are really better is tested on cases that the search never saw.

    Start with [bold]convergence init[/bold], then [bold]convergence optimize[/bold].
    """
    console.settings.debug = debug


COMMANDS = {
    "Begin": (begin.init, begin.validate, estimate.estimate, begin.schema),
    "Run": (
        optimize.optimize,
        optimize.resume,
        ("test", assessment.check_settings),
        mutate.mutate,
    ),
    "Learn": (
        chat.chat,
        train.train,
        ("adapters", adapters.app),
        ("policy", policy.app),
        ("games", games.app),
    ),
    "Look": (pages.ui, look.runs, answers.show, answers.compare, look.report, look.query),
    "Decide": (review.review, decide.promote, decide.rollback, decide.gates),
    "Serve": (serve.serve, ("arms", arms.app), arms.fold, off_policy.ope),
    "Data": (("import", datasets.importing), ("export", datasets.exporting)),
    "Operate": (
        operate.up,
        operate.deploy,
        operate.down,
        ("store", store.app),
        mock.mock,
        operate.doctor,
        operate.version,
    ),
}
"""Group → its commands and groups of commands, in the order in which help lists them."""

for panel, members in COMMANDS.items():
    for member in members:
        name, command = member if isinstance(member, tuple) else (None, member)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)
