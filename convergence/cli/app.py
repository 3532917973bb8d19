"""The Typer application: its commands, in the order in which help lists them."""

from typing import Annotated

import typer

from convergence.cli import (
    answers,
    arms,
    assessment,
    begin,
    console,
    datasets,
    decide,
    estimate,
    look,
    mock,
    off_policy,
    operate,
    optimize,
    serve,
    store,
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

app.command(rich_help_panel=BEGIN)(begin.init)
app.command(rich_help_panel=BEGIN)(begin.validate)
app.command(rich_help_panel=BEGIN)(begin.migrate)
app.command(rich_help_panel=BEGIN)(begin.schema)
app.command(rich_help_panel=BEGIN)(estimate.estimate)
app.command(rich_help_panel=RUN)(optimize.optimize)
app.command(rich_help_panel=RUN)(optimize.resume)
app.command("test", rich_help_panel=RUN)(assessment.check_settings)
app.command(rich_help_panel=RUN)(mock.mock)
app.command(rich_help_panel=READ)(look.runs)
app.command(rich_help_panel=READ)(answers.show)
app.command(rich_help_panel=READ)(answers.compare)
app.command(rich_help_panel=READ)(look.report)
app.command(rich_help_panel=READ)(look.query)
app.add_typer(datasets.exporting, name="export", rich_help_panel=READ)
app.add_typer(datasets.importing, name="import", rich_help_panel=READ)
app.command(rich_help_panel=PRODUCTION)(decide.promote)
app.command(rich_help_panel=PRODUCTION)(decide.rollback)
app.command(rich_help_panel=PRODUCTION)(decide.gates)
app.command(rich_help_panel=PRODUCTION)(off_policy.ope)
app.command(rich_help_panel=PRODUCTION)(serve.serve)
app.add_typer(arms.app, rich_help_panel=PRODUCTION)
app.command(rich_help_panel=PRODUCTION)(arms.fold)
app.command(rich_help_panel=NIGHTLY)(operate.up)
app.command(rich_help_panel=NIGHTLY)(operate.deploy)
app.command(rich_help_panel=NIGHTLY)(operate.down)
app.add_typer(store.app, rich_help_panel=NIGHTLY)
app.command(rich_help_panel=HELP)(operate.doctor)
app.command(rich_help_panel=HELP)(operate.version)
