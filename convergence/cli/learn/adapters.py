"""``adapters``: trained adapters, their checks, activation and rollback."""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence import console
from convergence.cli import options
from convergence.cli.locations import open_feedback
from convergence_core.feedback.activation_gate import lacks_power
from convergence_core.feedback.adapter_records import answering_words
from convergence_core.feedback.live_test_records import LiveRule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from convergence_core.feedback.adapter_records import AdapterRecord
    from convergence_core.feedback.held_out_metrics import HeldOutMetric
    from convergence_core.feedback.live_test_records import LiveTest
    from tasks.store.feedback.adapter_store import AdapterStore

app = typer.Typer(
    name="adapters",
    no_args_is_help=True,
    help="List trained adapters with their checks, activate one, or roll back.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
BY = "command line"
"""Who changes a status here."""
Version = Annotated[str, typer.Argument(metavar="VERSION", help="Name of the adapter.")]


_COLUMNS: "dict[str, Callable[[AdapterRecord], str]]" = {
    "version": lambda one: one.version,
    "role": lambda one: one.role,
    "status": lambda one: one.status.replace("_", " "),
    "marks": lambda one: f"{one.n_rows:,}",
    "objective": lambda one: one.objective,
    "from": lambda one: one.parent or "base model",
    "since": lambda one: one.since,
    "reason": lambda one: one.reason or "registered",
}


_METRICS: "dict[str, Callable[[HeldOutMetric], str]]" = {
    "metric": lambda one: one.name,
    "before": lambda one: f"{one.before:.3g}",
    "after": lambda one: f"{one.after:.3g}",
    "change [95 % interval]": lambda one: one.change_words,
    "prompts": lambda one: f"{one.n_prompts:,}",
    "unit": lambda one: one.unit,
}


def _told(test: "LiveTest") -> "dict[str, Any]":
    return {**asdict(test), "words": test.words}


@contextmanager
def _adapters(store: "Path | None", config: "Path | None") -> "Iterator[AdapterStore]":
    from tasks.store.feedback.adapter_store import AdapterStore  # noqa: PLC0415 - brings SQLite

    with open_feedback(store, config) as feedback:
        yield AdapterStore(feedback)


@app.command("list")
def list_adapters(
    role: Annotated[str | None, typer.Option(help="Only of this role.")] = None,
    store: options.Store = None,
    config: options.Config = None,
    as_json: options.AsJson = False,
) -> None:
    """List adapters with their statuses, oldest first."""
    with _adapters(store, config) as adapters:
        found, tests = adapters.records(role), adapters.live_tests(role)
    if as_json:
        console.answer_json({"adapters": found, "live_tests": [_told(one) for one in tests]})
    elif not found:
        console.answer("No adapter was trained; the base model answers.")
    else:
        console.show(console.table_of(found, _COLUMNS, right=("marks",)))
        for one in tests:
            if one.status == "running":
                console.answer(one.words)


@app.command()
def show(
    version: Version,
    store: options.Store = None,
    config: options.Config = None,
    as_json: options.AsJson = False,
) -> None:
    """Show an adapter: status, files, the verdict of each check, held-out metrics, its test on live traffic."""
    from convergence_core.feedback.held_out_metrics import metrics_of  # noqa: PLC0415 - brings NumPy
    from tasks.store.feedback.adapter_store import AdapterStore  # noqa: PLC0415 - brings SQLite
    from tasks.store.feedback.training_rounds import TrainingRounds  # noqa: PLC0415 - as above

    with open_feedback(store, config) as feedback:
        adapters = AdapterStore(feedback)
        one = adapters.record(version)
        made = TrainingRounds(feedback).of_version(version)
        metrics = metrics_of(None if made is None else made.metrics.get("held_out"))
        checks, problem = adapters.checks(version), adapters.files_problem(one)
        tests = [test for test in adapters.live_tests(one.role) if test.version == version]
    if as_json:
        told = [_told(test) for test in tests]
        shown: dict[str, Any] = {"adapter": one, "checks": checks, "live_tests": told}
        shown |= {"files_problem": problem, "held_out": metrics}
        console.answer_json(shown)
        return
    console.answer(one.status_words)
    console.answer(one.origin_words)
    console.answer(f"files: {problem or f'as registered, SHA-256 {one.folder_sha256}'}")
    for check in checks:
        console.answer(check.words)
    if metrics:
        console.answer("Held-out metrics, which decide nothing; means over prompts:")
        console.show(console.table_of(metrics, _METRICS, right=("before", "after", "prompts")))
    if not checks:
        console.answer("It was not checked yet.")
    for test in tests:
        console.answer(test.words)


@app.command()
def activate(
    version: Version,
    store: options.Store = None,
    config: options.Config = None,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Let an adapter that passed every check answer for its role; asks unless --yes.

    One that only lacks ratings for a certain gain is tried, blinded, on half of the conversations.
    """
    with _adapters(store, config) as adapters:
        role = adapters.record(version).role
        rule = LiveRule() if lacks_power(adapters.checks(version)) else None
        what = "answer" if rule is None else "be tried on live traffic"
        console.confirm(f"Let {version} {what} for the role {role}?", yes=yes)
        adapters.activate(version, BY, reason="activated by hand", live_rule=rule)
    if as_json:
        console.answer_json({"role": role, "active": version})
        return
    console.say(answering_words(version, role))


@app.command()
def rollback(
    role: Annotated[str, typer.Option(help="Whose adapter is taken back.")] = "assistant",
    store: options.Store = None,
    config: options.Config = None,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
) -> None:
    """Take the active adapter of a role back; the one before it answers again; asks unless --yes.

    Its files are held against those that were registered. Marks that only the adapter that is taken back
    was trained on are open for training again.
    """
    with _adapters(store, config) as adapters:
        console.confirm(f"Take the active adapter of the role {role} back?", yes=yes)
        active = adapters.rollback(role, BY, reason="rolled back by hand")
    if as_json:
        console.answer_json({"role": role, "active": active})
        return
    console.say(answering_words(active, role, again=True))
