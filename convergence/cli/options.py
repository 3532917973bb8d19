"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from convergence import console
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
        help="Let the built-in stand-in answer for every endpoint and chat model: no key, no "
        "cost. What it answers says nothing about real models.",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress; print the result only.")
]

Tokens = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ENV[=SCOPES]",
        help="Environment variable that holds a token, and what its bearer may do: select, "
        "update, chat, admin. May be given again.",
    ),
]
Host = Annotated[str, typer.Option(help="Address. Beyond this machine, put TLS before it.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")]
OpenDocs = Annotated[bool, typer.Option("--docs", help="Open /docs and /openapi.json to all.")]
MaxBody = Annotated[
    int, typer.Option(min=1_024, help="Longest body, in bytes.", rich_help_panel=LIMITS)
]
Rate = Annotated[
    float,
    typer.Option(
        min=0.0, help="Requests a second of each token; 0: no limit.", rich_help_panel=LIMITS
    ),
]

CONFIG_FILE = Path(CONFIG_NAME)
EXIT_NO = 100
"""A gate, or what is known, says no."""
