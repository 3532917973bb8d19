"""``adapters``: trained adapters, their checks, activation and rollback."""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence import console
from convergence.cli import options
from convergence.cli.locations import open_feedback

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from convergence_core.feedback.adapter_records import AdapterRecord
    from convergence_core.feedback.live_test_records import LiveTest
    from tasks.store.feedback.adapter_store import AdapterStore

app = options.command_group(
    "adapters", "List trained adapters with their checks, activate one, or roll back."
)
BY = "command line"
Version = Annotated[str, typer.Argument(metavar="VERSION", help="Name of the adapter.")]


_COLUMNS: "dict[str, Callable[[AdapterRecord], str]]" = {
    "version": lambda adapter: adapter.version,
    "role": lambda adapter: adapter.role,
    "status": lambda adapter: adapter.status.replace("_", " "),
    "ratings": lambda adapter: f"{adapter.n_rows:,}",
    "objective": lambda adapter: adapter.objective,
    "from": lambda adapter: adapter.parent or "base model",
    "since": lambda adapter: adapter.since,
    "reason": lambda adapter: adapter.reason or "registered",
}


def _live_test(test: "LiveTest") -> "dict[str, Any]":
    return {**asdict(test), "words": test.words}


@contextmanager
def _adapters(store: "Path | None", config: "Path | None") -> "Iterator[AdapterStore]":
    from tasks.store.feedback.adapter_store import AdapterStore  # noqa: PLC0415 - brings SQLite

    with open_feedback(store, config) as feedback:
        yield AdapterStore(feedback)


@app.command("list")
def list_adapters(
    role: Annotated[str | None, typer.Option(help="Show only this role.")] = None,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """List adapters with their statuses, oldest first."""
    with _adapters(store, config) as adapters:
        records, tests = adapters.records(role), adapters.live_tests(role)

    def show() -> None:
        if not records:
            console.answer("No trained adapter; the base model answers.")
            return
        console.show(console.table_of(records, _COLUMNS, right=("ratings",)))
        for test in tests:
            if test.status == "running":
                console.answer(test.words)

    console.emit({"adapters": records, "live_tests": [_live_test(test) for test in tests]}, show)


@app.command()
def show(
    version: Version,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Show an adapter: status, files, checks and its test on live traffic."""
    with _adapters(store, config) as adapters:
        adapter = adapters.record(version)
        checks, problem = adapters.checks(version), adapters.files_problem(adapter)
        tests = [test for test in adapters.live_tests(adapter.role) if test.version == version]

    def show() -> None:
        console.answer(adapter.status_words)
        console.answer(adapter.origin_words)
        console.answer(f"files: {problem or f'as registered, SHA-256 {adapter.folder_sha256}'}")
        for check in checks:
            console.answer(check.words)
        if not checks:
            console.answer("Not checked yet.")
        for test in tests:
            console.answer(test.words)

    tested = [_live_test(test) for test in tests]
    console.emit(
        {"adapter": adapter, "checks": checks, "live_tests": tested, "files_problem": problem},
        show,
    )


@app.command()
def activate(
    version: Version,
    store: options.Store = None,
    config: options.Config = None,
    yes: options.Yes = False,
    _json: options.AsJson = False,
) -> None:
    """Activate an adapter that passed every check; asks unless --yes.

    An adapter that only lacks ratings is tried, blinded, on half of the conversations.
    """
    with _adapters(store, config) as adapters:
        role = adapters.record(version).role
        from convergence_core.config.feedback import LiveTestConfig  # noqa: PLC0415 - brings pydantic
        from convergence_core.feedback.activation_gate import lacks_power  # noqa: PLC0415 - as above

        rule = LiveTestConfig() if lacks_power(adapters.checks(version)) else None
        effect = "answer" if rule is None else "be tried on live traffic"
        console.confirm(f"Let {version} {effect} for the role {role}?", yes=yes)
        adapters.activate(version, BY, reason="activated by hand", live_rule=rule)
    console.emit({"role": role, "active": version}, _answering(version, role))


def _answering(version: str | None, role: str, *, again: bool = False) -> str:
    from convergence_core.feedback.adapter_records import answering_words  # noqa: PLC0415 - brings pydantic

    return answering_words(version, role, again=again)


@app.command()
def rollback(
    role: Annotated[str, typer.Option(help="Role to roll back.")] = "assistant",
    store: options.Store = None,
    config: options.Config = None,
    yes: options.Yes = False,
    _json: options.AsJson = False,
) -> None:
    """Roll a role back to the adapter before the active one; asks unless --yes.

    Compares its files with the registered digest. Ratings that trained only the rolled-back adapter may
    train again.
    """
    with _adapters(store, config) as adapters:
        console.confirm(f"Roll back the active adapter of the role {role}?", yes=yes)
        active = adapters.rollback(role, BY, reason="rolled back by hand")
    console.emit({"role": role, "active": active}, _answering(active, role, again=True))
