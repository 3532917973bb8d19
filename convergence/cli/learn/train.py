"""``train``: adapters of a local model, trained on ratings."""

import re
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from convergence import console
from convergence.cli import options
from convergence_core.errors import ConfigurationError
from convergence_core.records import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.training.jobs import TrainingStep
    from tasks.training.round import RoundReport

_CHECK_S = 60.0
"""Time between checks for new ratings, in seconds."""


def train(
    config: options.ConfigFile = options.CONFIG_FILE,
    now: Annotated[
        bool,
        typer.Option(
            "--now", help="Do not wait for an idle machine or for `min_ratings` new ratings."
        ),
    ] = False,
    role: Annotated[
        str | None, typer.Option(help="Role to train. Default: every role with ratings.")
    ] = None,
    daemon: Annotated[
        bool,
        typer.Option("--daemon", help="Check again every minute."),
    ] = False,
    store: options.Store = None,
    _json: options.AsJson = False,
) -> None:
    """Train the local model on ratings, and activate the new adapter if it is better.

    Runs one round for each role with enough new ratings: trains an adapter, tests it on prompts it never
    trained on, and activates it if it passes every check. Otherwise prints what is missing.

    Exit code 1: the training failed. 100: the new adapter is rejected, or ratings are too few to decide.
    """
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic
    from tasks.inputs.storage import bound_folder  # noqa: PLC0415 - as above
    from tasks.store.feedback.feedback_store import FeedbackStore  # noqa: PLC0415 - brings SQLite
    from tasks.training.looks import look_at_roles  # noqa: PLC0415 - only where it is needed

    if daemon and console.settings.json:
        rule = "must not come with --json, which prints one value"
        raise ConfigurationError.of("--daemon", rule, "Leave one of them out.")
    loaded = load(config)
    training = loaded.configuration.feedback.training
    waiting: dict[str, str] = {}
    with FeedbackStore(bound_folder(loaded) if store is None else store) as feedback:
        if daemon:
            console.answer(
                f"Checking the ratings of {feedback.root} every {_CHECK_S:g} s. Ctrl-C stops."
            )
        while True:
            progress = (
                None if console.settings.json else partial(_progress, n_steps=training.steps)
            )
            reports = look_at_roles(loaded, feedback, role=role, is_forced=now, on_step=progress)
            has_marks = bool(reports)
            if daemon:
                reports = _news(reports, waiting)
            _emit(reports, has_marks=has_marks or "" in waiting)
            waiting.setdefault("", "no ratings")
            if not daemon:
                break
            time.sleep(_CHECK_S)
    statuses = {report.status for report in reports}
    if "failed" in statuses:
        raise typer.Exit(1)
    if statuses & {"rejected", "undecided"}:
        raise typer.Exit(options.EXIT_NO)


def _progress(role: str, n_steps: int) -> "Callable[[TrainingStep], None]":
    """Return a listener that prints progress at each quarter of the steps."""

    def print_step(step: "TrainingStep") -> None:
        if step.step == 1 or step.step * 4 // n_steps > (step.step - 1) * 4 // n_steps:
            console.say(f"{role}: step {step.step} of {n_steps}, loss {step.loss:.4f}", "dim")

    return print_step


def _news(reports: "list[RoundReport]", waiting: dict[str, str]) -> "list[RoundReport]":
    """Return the reports except those still waiting for the same reason; updates ``waiting``."""
    news = []
    for report in reports:
        # Times and loads change with every check; the reason does not.
        is_waiting = report.status == "waiting"
        reason = re.sub(r"\d+(\.\d+)?", "#", report.sentence) if is_waiting else ""
        if not reason or waiting.get(report.role) != reason:
            news.append(report)
        waiting[report.role] = reason
    return news


def _emit(reports: "list[RoundReport]", *, has_marks: bool) -> None:
    def show() -> None:
        if not has_marks:
            console.say(
                "The model has no rated answers yet. Ask and rate with `convergence chat`."
            )
        for report in reports:
            for check in report.checks:
                console.answer(f"  {'passed' if check.passed else 'FAILED'}  {check.words}")
            sentence = report.sentence[0].upper() + report.sentence[1:].removesuffix(".")
            console.answer(f"{report.role}: {report.status}. {sentence}.")

    names = ("role", "status", "sentence", "version", "checks", "n_rows", "cpu_s")
    rows = [fields_of(report, *names) for report in reports]
    console.emit({"rounds": rows}, show)
