"""``store``: checks, maintenance and synchronization of a results store."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from convergence import console
from convergence.cli import locations, options
from convergence_core.errors import ConfigurationError

app = typer.Typer(
    name="store",
    no_args_is_help=True,
    help="Check and maintain a results store.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def check(
    store: options.Store = None,
    config: options.Config = None,
    as_json: options.AsJson = False,
) -> None:
    """Read every file of the store and compare it with its digest. Exit code 1 if one is damaged."""
    opened = locations.open_store(store, config)
    damage = [f"{one.path}: {one.reason}" for one in opened.check()]
    n_without = opened.n_without_digest()
    if as_json:
        answer = {"ok": not damage, "damage": damage, "n_without_digest": n_without}
        console.answer_json(answer)
    else:
        for line in damage or ["Every file of the store can be read and is as it was written."]:
            console.say(line)
        if n_without:
            console.say(
                f"{n_without:,} files carry no digest, for an older version wrote them: changed bits "
                "that keep ranges and sums stay unseen there."
            )
    if damage:
        raise typer.Exit(1)


@app.command()
def maintain(
    keep_days: Annotated[
        int | None,
        typer.Option(min=1, help="Remove tables of finished runs that are older."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed.")] = False,
    store: options.Store = None,
    config: options.Config = None,
    as_json: options.AsJson = False,
) -> None:
    """Sweep leftovers, remove old runs if asked to, check every file, refresh the catalogue.

    The two latest runs of each system stay, and those that a champion came from. What was paid for
    stays in the journal. Files of adapters that never answer again go: of stale ones after an hour, of
    rejected ones after a week. Exit code 1 if a file is damaged.
    """
    from tasks.run.maintenance import maintain_store  # noqa: PLC0415 - brings DuckDB

    path = locations.open_store(store, config).path
    report = maintain_store(path, keep_days=keep_days, dry_run=dry_run)
    if as_json:
        names = ("n_swept", "removed", "adapters", "damage", "n_runs", "n_bytes")
        console.answer_json({name: getattr(report, name) for name in names})
    else:
        verb = "would be removed" if dry_run else "removed"
        files_verb = verb if dry_run else "were removed"
        for label in report.removed:
            console.say(f"{label}: {verb}")
        for version in report.adapters:
            console.say(f"{version}, which never answers again: its files {files_verb}")
        console.say(
            f"{report.n_runs} runs, {report.n_bytes / 1e6:.1f} MB; {report.n_swept} files swept, "
            f"{len(report.removed)} runs {verb}."
        )
        for line in report.damage:
            console.say(line)
    if report.damage:
        raise typer.Exit(1)


@app.command()
def forget(
    user: Annotated[str, typer.Argument(help="Whom to forget, as answers and ratings name them.")],
    yes: options.Yes = False,
    store: options.Store = None,
    config: options.Config = None,
    as_json: options.AsJson = False,
) -> None:
    """Remove a user's answers, ratings and comparisons for good, also from the tables and their address.

    Decisions stay without the user. Files that `convergence export` wrote are not the store's.
    """
    from tasks.store.feedback.removal import forget_user  # noqa: PLC0415 - brings DuckDB

    path = locations.open_store(store, config).path
    console.confirm(f"Remove all that {user} wrote, was answered or rated from {path}?", yes=yes)
    report = forget_user(Path(path), user)
    if as_json:
        console.answer_json({one.name: getattr(report, one.name) for one in fields(report)})
        return
    console.say(
        f"Removed: {report.n_interactions:,} answers, {report.n_ratings:,} ratings, "
        f"{report.n_comparisons:,} comparisons. {report.n_decisions:,} decisions do not name the user "
        f"any more, and the weights of {report.n_adapters:,} adapters are gone. Test cases that you "
        "approved, and files that you exported, are yours to clear."
    )


@app.command()
def sync(
    config: Annotated[
        Path, typer.Argument(help="Configuration whose `storage.path` is an address.")
    ] = Path(locations.CONFIG_NAME),
    publish: Annotated[
        bool, typer.Option("--publish", help="Publish what is only here, too: a moved store.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Fetch what other machines have published on object storage.

    Runs do so by themselves when they begin; `query`, `report` and `runs` read what is here.
    """
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic
    from tasks.inputs.storage import bound_store  # noqa: PLC0415 - as above
    from tasks.store.tables.object_storage import Mirror  # noqa: PLC0415 - only where it is needed

    loaded = load(config)
    url = loaded.configuration.storage.remote
    if url is None:
        raise ConfigurationError.of(
            "storage.path",
            "must be an address of object storage to be synchronized",
            "Write one, e.g. `s3://bucket/nightly`.",
            value=loaded.configuration.storage.path,
            file=str(config),
        )
    mirror = Mirror(bound_store(loaded, url), url)
    n_fetched = mirror.pull()
    n_published = mirror.push() if publish else 0
    if as_json:
        console.answer_json({"n_fetched": n_fetched, "n_published": n_published})
    else:
        console.say(f"{n_fetched} files fetched, {n_published} published.")
