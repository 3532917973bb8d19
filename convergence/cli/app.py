"""The Typer application: its commands, in the order of the help."""

from typing import Annotated

import typer
from typer.core import TyperGroup

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
from convergence.cli.learn import adapters, games, policy, train

_ALL = "convergence.all"
"""Key of the context: help lists every command."""


class _Commands(TyperGroup):
    """Group whose help lists the everyday commands, or all with ``--all``."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # Typer's class
        """Return the names of the commands that help lists."""
        names = super().list_commands(ctx)
        return names if ctx.meta.get(_ALL) else names[: len(COMMANDS[EVERYDAY])]


app = typer.Typer(
    name="convergence",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 error, 2 bad input, 3 budget reached, 100 gate not passed, 130 interrupted.",
)


def _print_all(context: typer.Context, is_wanted: bool) -> None:
    if is_wanted:
        context.meta[_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
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
    _everything: Annotated[
        bool,
        typer.Option("--all", callback=_print_all, is_eager=True, help="List every command."),
    ] = False,
) -> None:
    """Find better settings for an LLM call, an HTTP API or a Python function.

    Then test whether they are really better, on cases the search never saw.

    Try `convergence demo`, then `convergence init` and `convergence optimize`. Every command:
    `convergence --help --all`.
    """
    console.settings.debug = debug


EVERYDAY = "Commands"
COMMANDS = {
    EVERYDAY: (
        begin.init,
        optimize.optimize,
        pages.ui,
        decide.promote,
        ("test", assessment.check_settings),
        serve.serve,
        chat.chat,
        train.train,
        operate.up,
        operate.deploy,
    ),
    "Prepare": (
        pages.demo,
        begin.validate,
        estimate.estimate,
        begin.schema,
        ("import", datasets.importing),
        mock.mock,
        operate.doctor,
    ),
    "Run and read": (
        optimize.resume,
        look.runs,
        look.report,
        answers.show,
        answers.compare,
        look.query,
        ("export", datasets.exporting),
    ),
    "Production": (
        decide.gates,
        decide.rollback,
        ("arms", arms.app),
        arms.fold,
        off_policy.ope,
        review.review,
    ),
    "Learning": (
        ("adapters", adapters.app),
        ("policy", policy.app),
        ("games", games.app),
    ),
    "Upkeep": (operate.down, ("store", store.app), operate.version),
}
"""Group → its commands and groups of commands, in the order of the help."""

for panel, members in COMMANDS.items():
    for member in members:
        name, command = member if isinstance(member, tuple) else (None, member)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)
