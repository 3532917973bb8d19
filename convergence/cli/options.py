"""Options that several commands share."""

import getpass
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from convergence import console
from convergence.cli.locations import CONFIG_NAME
from convergence_core.errors import ConfigurationError

LIMITS = "Limits"
"""Help panel of a service's limits."""
_CONFIG_HELP = f"Configuration that names the store. Default: ./{CONFIG_NAME} if it exists."


def account_name() -> str:
    """Return the current user's name; the user id in a container without accounts."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def command_group(name: str, about: str) -> typer.Typer:
    """Return a group of commands that shows its help if none is named."""
    context = {"help_option_names": ["-h", "--help"]}
    return typer.Typer(name=name, no_args_is_help=True, help=about, context_settings=context)


def check_format(form: str, known: Sequence[str]) -> None:
    """Raise unless ``--format`` names a known format."""
    if form not in known:
        fix = f"Write one of: {', '.join(known)}."
        raise ConfigurationError.of("--format", "must be a known format", fix, value=form)


def _answer_json(value: bool) -> bool:
    console.settings.json = value
    return value


ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="optimization.yaml")]
Store = Annotated[Path | None, typer.Option(help="Folder of the results store.")]
Config = Annotated[Path | None, typer.Option(help=_CONFIG_HELP)]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json", help="Print the result as JSON, and nothing else.", callback=_answer_json
    ),
]
output_option: Final = partial(typer.Option, "--output", "-o")
"""Output file option; the command supplies the help text."""
format_option: Final = partial(typer.Option, "--format", "-f")
"""Format option; the command supplies the help text."""
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set any key of the configuration, e.g. optimization.seed=3; values as in YAML. Repeatable.",
    ),
]
Generations = Annotated[
    int | None,
    typer.Option(min=1, help="Most generations. Overrides optimization.evolution.generations."),
]
MaxCalls = Annotated[
    int | None,
    typer.Option(min=1, help="Most calls, retries included. Overrides budget.max_calls."),
]
MaxUsd = Annotated[
    float | None, typer.Option(min=0, help="Most US dollars. Overrides budget.max_usd.")
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Most tokens. Overrides budget.max_tokens.")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Further host name of the pages, behind a proxy. Repeatable.",
    ),
]
FinishedRun = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="Label or id, or an unambiguous part. Default: the latest finished run.",
    ),
]
MaxMinutes = Annotated[
    float | None,
    typer.Option(min=0, help="Most minutes of work. Overrides budget.max_minutes."),
]
Offline = Annotated[
    bool,
    typer.Option(
        "--offline",
        help="Let a built-in mock answer instead of endpoints and models: no key, no cost. Its "
        "answers say nothing about real models.",
    ),
]
Output = Annotated[
    Path | None, output_option(help="Write to this file. Default: standard output.")
]
System = Annotated[
    str | None, typer.Argument(metavar="SYSTEM", help="Show only this system (api.name).")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress; print the result only.")
]

Tokens = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ENV[=SCOPES]",
        help="Environment variable that holds a token, with its scopes: select, update, chat, "
        "admin. Repeatable.",
    ),
]
Host = Annotated[
    str, typer.Option(help="Address to listen on. Put TLS in front if other machines reach it.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")]
OpenDocs = Annotated[
    bool, typer.Option("--docs", help="Show /docs and /openapi.json without a token.")
]
Rate = Annotated[
    float,
    typer.Option(
        min=0.0, help="Requests per second of each token; 0: no limit.", rich_help_panel=LIMITS
    ),
]

CONFIG_FILE = Path(CONFIG_NAME)
EXIT_NO = 100
"""Exit code if a gate is not passed or the data do not suffice."""
