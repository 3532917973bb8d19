"""The Typer application: which commands there are, in the order in which help lists them."""

from typing import Annotated

import typer

from convergence.cli import (
    arms,
    console,
    datasets,
    environment,
    estimating,
    keeping,
    mocking,
    nightly,
    off_policy,
    projects,
    promoting,
    results,
    running,
    serving,
)

app = typer.Typer(
    name="convergence",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 error, 2 bad input, 3 budget reached, 100 a gate says no, 130 interrupted.",
)


@app.callback()
def convergence(
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show tracebacks and Prefect's logs (anywhere in the line)."),
    ] = False,
) -> None:
    """Tune prompts, models and parameters by evidence, night after night.

    Start with [bold]convergence init[/bold], then [bold]convergence optimize[/bold].
    """
    console.settings.debug = debug


BEGIN = "Begin"
RUN = "Run"
READ = "Read results"
PRODUCTION = "Production"
NIGHTLY = "Every night"
HELP = "Help"

app.command(rich_help_panel=BEGIN)(projects.init)
app.command(rich_help_panel=BEGIN)(projects.validate)
app.command(rich_help_panel=BEGIN)(projects.migrate)
app.command(rich_help_panel=BEGIN)(projects.schema)
app.command(rich_help_panel=BEGIN)(estimating.estimate)
app.command(rich_help_panel=RUN)(running.optimize)
app.command(rich_help_panel=RUN)(running.resume)
app.command(rich_help_panel=RUN)(mocking.mock)
app.command(rich_help_panel=READ)(results.runs)
app.command(rich_help_panel=READ)(results.report)
app.command(rich_help_panel=READ)(results.query)
app.add_typer(datasets.exporting, name="export", rich_help_panel=READ)
app.add_typer(datasets.importing, name="import", rich_help_panel=READ)
app.command(rich_help_panel=PRODUCTION)(promoting.promote)
app.command(rich_help_panel=PRODUCTION)(promoting.rollback)
app.command(rich_help_panel=PRODUCTION)(promoting.gates)
app.command(rich_help_panel=PRODUCTION)(off_policy.ope)
app.command(rich_help_panel=PRODUCTION)(serving.serve)
app.add_typer(arms.app, rich_help_panel=PRODUCTION)
app.command(rich_help_panel=PRODUCTION)(arms.fold)
app.command(rich_help_panel=NIGHTLY)(nightly.up)
app.command(rich_help_panel=NIGHTLY)(nightly.deploy)
app.command(rich_help_panel=NIGHTLY)(nightly.down)
app.add_typer(keeping.app, rich_help_panel=NIGHTLY)
app.command(rich_help_panel=HELP)(environment.doctor)
app.command(rich_help_panel=HELP)(environment.version)
