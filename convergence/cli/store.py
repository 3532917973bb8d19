"""``store``: checks, maintenance and synchronization of a results store."""

from pathlib import Path
from typing import Annotated

import typer

from convergence import console
from convergence.cli import locations, options
from convergence_core.errors import ConfigurationError
from convergence_core.records import fields_of

app = options.command_group("store", "Check and maintain a results store.")


@app.command()
def check(
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Compare every file of the store with its digest. Exit code 1 if a file is damaged."""
    opened = locations.open_store(store, config)
    damage = [f"{path}: {reason}" for path, reason in opened.check().items()]
    lines = damage or ["Every file of the store is readable and unchanged."]
    console.emit({"ok": not damage, "damage": damage}, "\n".join(lines))
    if damage:
        raise typer.Exit(1)


@app.command()
def maintain(
    keep_days: Annotated[
        int | None,
        typer.Option(min=1, help="Remove tables of finished runs older than this."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be removed.")
    ] = False,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Sweep leftovers, remove old runs with --keep-days, check every file.

    Keeps the two latest runs of each system, the runs of champions, and the journal of paid calls.
    Removes files of adapters that never answer again: stale ones after an hour, rejected ones after a
    week. Exit code 1 if a file is damaged.
    """
    from tasks.run.maintenance import maintain_store  # noqa: PLC0415 - brings DuckDB

    path = locations.open_store(store, config).path
    report = maintain_store(path, keep_days=keep_days, dry_run=dry_run)
    verb = "would be removed" if dry_run else "removed"
    lines = [
        *(f"{label}: {verb}" for label in report.removed),
        *(
            f"files of adapter {version}, which never answers again: {verb}"
            for version in report.adapters
        ),
        f"{report.n_runs} runs, {report.n_bytes / 1e6:.1f} MB; {report.n_swept} files swept, "
        f"{len(report.removed)} runs {verb}.",
        *report.damage,
    ]
    names = ("n_swept", "removed", "adapters", "damage", "n_runs", "n_bytes")
    console.emit(fields_of(report, *names), "\n".join(lines))
    if report.damage:
        raise typer.Exit(1)


@app.command()
def forget(
    user: Annotated[
        str, typer.Argument(metavar="USER", help="Name of the user in answers and ratings.")
    ],
    yes: options.Yes = False,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Permanently remove a user's answers, ratings and comparisons, also from tables and storage.

    Decisions stay, without the user's name. Files that `convergence export` wrote stay.
    """
    from tasks.store.feedback.removal import forget_user  # noqa: PLC0415 - brings DuckDB

    path = locations.open_store(store, config).path
    console.confirm(f"Remove all questions, answers and ratings of {user} from {path}?", yes=yes)
    report = forget_user(Path(path), user)
    console.emit(
        report,
        f"Removed: {report.n_interactions:,} answers, {report.n_ratings:,} ratings, "
        f"{report.n_comparisons:,} comparisons, the user's name in {report.n_decisions:,} decisions and "
        f"the weights of {report.n_adapters:,} adapters. Remove approved test cases and exported files "
        "yourself.",
    )


@app.command()
def sync(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG", help="Configuration whose `storage.path` is an address."),
    ] = Path(locations.CONFIG_NAME),
    _json: options.AsJson = False,
) -> None:
    """Fetch what other machines have published on object storage.

    A run fetches when it starts; `query`, `report` and `runs` read local files only.
    """
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic
    from tasks.inputs.storage import bound_folder  # noqa: PLC0415 - as above
    from tasks.store.tables.object_storage import Mirror  # noqa: PLC0415 - only where it is needed

    loaded = load(config)
    url = loaded.configuration.storage.remote
    if url is None:
        raise ConfigurationError.of(
            "storage.path",
            "must be an address of object storage",
            "Write one, e.g. `s3://bucket/nightly`.",
            value=loaded.configuration.storage.path,
            file=str(config),
        )
    n_fetched = Mirror(bound_folder(loaded), url).pull()
    console.emit({"n_fetched": n_fetched}, f"{n_fetched} files fetched.")
