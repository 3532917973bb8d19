"""``train``: adapters of a local model, trained on what people rate."""

import re
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence import console
from convergence.cli import options
from convergence_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.training.jobs import TrainingStep
    from tasks.training.round import RoundReport


def train(  # noqa: PLR0917 - Typer's options
    config: Annotated[
        Path, typer.Argument(metavar="[CONFIG]", help="optimization.yaml")
    ] = options.CONFIG_FILE,
    role: Annotated[
        str | None, typer.Option(help="Whose answers. Default: every role with marks.")
    ] = None,
    now: Annotated[
        bool,
        typer.Option("--now", help="Do not wait for idleness, nor for `min_ratings` new marks."),
    ] = False,
    daemon: Annotated[
        bool,
        typer.Option("--daemon", help="Look again every `feedback.training.interval_s` seconds."),
    ] = False,
    thoughts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Train --role to think instead: JSON lines of `think`, `predict` and `follows`.",
        ),
    ] = None,
    store: options.Store = None,
    as_json: options.AsJson = False,
) -> None:
    """Train the local model on what people rated, and answer from it where it is better.

    One round for each role with enough new marks: a new adapter is trained, judged on prompts that were
    never trained on, and activated if it passes every check. Says what it waits for otherwise.

    Exit code 1: the training failed. 100: a new adapter was rejected, or is undecided because ratings are missing.
    """
    from tasks.chat.roles import persona_of  # noqa: PLC0415 - as below
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic
    from tasks.inputs.storage import bound_folder  # noqa: PLC0415 - as above
    from tasks.store.feedback.feedback_store import FeedbackStore  # noqa: PLC0415 - brings SQLite
    from tasks.training.jobs import no_report  # noqa: PLC0415 - only where it is needed
    from tasks.training.looks import look_at_roles  # noqa: PLC0415 - as above
    from tasks.training.thinker_round import train_thinker  # noqa: PLC0415 - as above

    if daemon and as_json:
        rule = "must not be given beside --json, which prints one value"
        raise ConfigurationError.of("--daemon", rule, "Leave one of them out.")
    if thoughts is not None and (daemon or now or role is None):
        rule = "must be given with --role, and without --daemon and --now"
        raise ConfigurationError.of("--thoughts", rule, "Name the role that thinks.")
    loaded = load(config)
    training = loaded.configuration.feedback.training
    waiting: dict[str, str] = {}
    with FeedbackStore(bound_folder(loaded) if store is None else store) as feedback:
        if daemon:
            console.answer(
                f"Looking at the ratings of {feedback.root} every {training.interval_s:g} s. Ctrl-C ends it."
            )
        while True:
            progress = None if as_json else partial(_progress, n_steps=training.steps)
            if thoughts is not None and role is not None:
                on_step = no_report if progress is None else progress(role)
                persona = persona_of(role, loaded.configuration.feedback.roles)
                reports = [
                    train_thinker(
                        loaded, feedback, role, thoughts, persona=persona, on_step=on_step
                    )
                ]
            else:
                reports = look_at_roles(
                    loaded, feedback, role=role, is_forced=now, on_step=progress
                )
            has_marks = bool(reports)
            if daemon:
                reports = _news(reports, waiting)
            _show(reports, as_json=as_json, has_marks=has_marks or "" in waiting)
            waiting.setdefault("", "no marks")
            if not daemon:
                break
            time.sleep(training.interval_s)
    statuses = {one.status for one in reports}
    if "failed" in statuses:
        raise typer.Exit(1)
    if statuses & {"rejected", "undecided"}:
        raise typer.Exit(options.EXIT_NO)


def _progress(role: str, n_steps: int) -> "Callable[[TrainingStep], None]":
    """Return what tells of every quarter of the steps."""

    def tell(step: "TrainingStep") -> None:
        if step.step == 1 or step.step * 4 // n_steps > (step.step - 1) * 4 // n_steps:
            console.say(f"{role}: step {step.step} of {n_steps}, loss {step.loss:.4f}", "dim")

    return tell


def _news(reports: "list[RoundReport]", waiting: dict[str, str]) -> "list[RoundReport]":
    """Return the reports without those that wait for what they waited for; keeps what each role waits for."""
    news = []
    for one in reports:
        # Times and loads change with every look; what is missing is the reason.
        reason = re.sub(r"\d+(\.\d+)?", "#", one.sentence) if one.status == "waiting" else ""
        if not reason or waiting.get(one.role) != reason:
            news.append(one)
        waiting[one.role] = reason
    return news


def _show(reports: "list[RoundReport]", *, as_json: bool, has_marks: bool) -> None:
    if as_json:
        found: Any = [
            {
                "role": one.role,
                "status": one.status,
                "sentence": one.sentence,
                "version": one.version,
                "checks": [asdict(check) for check in one.checks],
                "n_rows": one.n_rows,
                "cpu_s": one.cpu_s,
            }
            for one in reports
        ]
        console.answer_json({"rounds": found})
        return
    if not has_marks:
        console.say(
            "No answer of the model that is trained was rated yet. `convergence chat` asks and rates."
        )
    for one in reports:
        for check in one.checks:
            console.answer(f"  {'passed' if check.passed else 'FAILED'}  {check.words}")
        sentence = one.sentence[0].upper() + one.sentence[1:].removesuffix(".")
        console.answer(f"{one.role}: {one.status}. {sentence}.")
