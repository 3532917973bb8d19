"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from convergence.cli import console
from convergence.cli.locations import CONFIG_NAME

LIMITS = "Limits"
"""Panel of options in the help of services."""
_CONFIG_HELP = f"Configuration that names the store. Default: ./{CONFIG_NAME} if there is one."


def _answer_json(value: bool) -> bool:
    console.settings.json = value
    return value


ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="optimization.yaml")]
Store = Annotated[Path | None, typer.Option(help="Folder of the results store.")]
Config = Annotated[Path | None, typer.Option(help=_CONFIG_HELP)]
AsJson = Annotated[bool, typer.Option("--json", help="Answer as JSON.", callback=_answer_json)]
ResultAsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the result as one JSON object, and nothing else.",
        callback=_answer_json,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any key of the configuration, e.g. optimization.seed=3; values as in YAML. May be repeated.",
    ),
]
Generations = Annotated[
    int | None,
    typer.Option(min=1, help="Generations at most. Overrides optimization.evolution.generations."),
]
MaxCalls = Annotated[
    int | None,
    typer.Option(min=1, help="Calls at most, retries included. Overrides budget.max_calls."),
]
MaxUsd = Annotated[
    float | None, typer.Option(min=0, help="US dollars at most. Overrides budget.max_usd.")
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Tokens at most. Overrides budget.max_tokens.")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Further name that pages answer to, behind a proxy. May be given again.",
    ),
]
FinishedRun = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]",
        help="Label, id or unambiguous part of it. Default: the latest finished run.",
    ),
]
MaxMinutes = Annotated[
    float | None,
    typer.Option(min=0, help="Minutes of work at most. Overrides budget.max_minutes."),
]
Offline = Annotated[
    bool,
    typer.Option(
        "--offline",
        help="Let the built-in stand-in answer for every chat model: no key, no cost. What it "
        "answers says nothing about real models.",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress; print the result only.")
]

CONFIG_FILE = Path(CONFIG_NAME)
EXIT_NO = 100
"""A gate, or what is known, says no."""
