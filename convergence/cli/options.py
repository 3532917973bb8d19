"""Options that several commands share."""

from typing import Annotated

import typer

MaxCalls = Annotated[
    int | None,
    typer.Option(min=1, help="Calls at most, retries included. Over budget.max_calls."),
]
MaxUsd = Annotated[
    float | None, typer.Option(min=0, help="US dollars at most. Over budget.max_usd.")
]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Tokens at most. Over budget.max_tokens.")
]
MaxMinutes = Annotated[
    float | None, typer.Option(min=0, help="Minutes of work at most. Over budget.max_minutes.")
]
