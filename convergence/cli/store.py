"""``store``: is it whole, and what may go."""

from pathlib import Path
from typing import Annotated

import typer

from convergence.cli import console, locations
from convergence_core.errors import ConfigurationError, Problem

app = typer.Typer(
    name="store",
    no_args_is_help=True,
    help="Check and maintain a results store.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
JSON_HELP = "Answer as JSON."


@app.command()
def check(
    store: Annotated[Path | None, typer.Option(help=locations.STORE_HELP)] = None,
    config: Annotated[Path | None, typer.Option(help=locations.CONFIG_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Read every file of the store to its last page. Exit code 1 if one is damaged."""
    console.settings.json = as_json
    damage = locations.open_store(store, config).check()
    if as_json:
        console.answer_json(
            {"ok": not damage, "damage": [f"{one.path}: {one.reason}" for one in damage]}
        )
    for one in damage if not as_json else ():
        console.say(f"{one.path}: {one.reason}")
    if damage:
        raise typer.Exit(1)
    if not as_json:
        console.say("Every file of the store can be read.")


@app.command()
def maintain(
    keep_days: Annotated[
        int | None,
        typer.Option(min=1, help="Remove tables of finished runs that are older."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed.")] = False,
    store: Annotated[Path | None, typer.Option(help=locations.STORE_HELP)] = None,
    config: Annotated[Path | None, typer.Option(help=locations.CONFIG_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Sweep leftovers, remove old runs if asked to, check every file, refresh the catalogue.

    The two latest runs of each system stay, and those that a champion came from. What was paid for
    stays in the journal. Exit code 1 if a file is damaged.
    """
    console.settings.json = as_json
    from tasks.run.maintenance import maintain_store  # noqa: PLC0415 - brings DuckDB

    path = locations.open_store(store, config).path
    report = maintain_store(path, keep_days=keep_days, dry_run=dry_run)
    if as_json:
        console.answer_json(
            {
                "n_swept": report.n_swept,
                "removed": list(report.removed),
                "damage": list(report.damage),
                "n_runs": report.n_runs,
                "n_bytes": report.n_bytes,
            }
        )
    else:
        verb = "would be removed" if dry_run else "removed"
        for label in report.removed:
            console.say(f"{label}: {verb}")
        console.say(
            f"{report.n_runs} runs, {report.n_bytes / 1e6:.1f} MB; {report.n_swept} files swept, "
            f"{len(report.removed)} runs {verb}."
        )
        for line in report.damage:
            console.say(line)
    if report.damage:
        raise typer.Exit(1)


@app.command()
def sync(
    config: Annotated[
        Path, typer.Argument(help="Configuration whose `storage.path` is an address.")
    ] = Path(locations.CONFIG_NAME),
    publish: Annotated[
        bool, typer.Option("--publish", help="Publish what is only here, too: a moved store.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Fetch what other machines have published on object storage.

    Runs do so by themselves when they begin; `query`, `report` and `runs` read what is here.
    """
    console.settings.json = as_json
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic
    from tasks.inputs.storage import bound_store  # noqa: PLC0415 - as above
    from tasks.store.tables.object_storage import Mirror  # noqa: PLC0415 - only where it is needed

    loaded = load(config)
    url = loaded.configuration.storage.remote
    if url is None:
        raise ConfigurationError(
            [
                Problem(
                    key="storage.path",
                    rule="must be an address of object storage to be synchronized",
                    value=loaded.configuration.storage.path,
                    fix="Write one, e.g. `s3://bucket/nightly`.",
                    file=str(config),
                )
            ]
        )
    mirror = Mirror(bound_store(loaded, url), url)
    n_fetched = mirror.pull()
    n_published = mirror.push() if publish else 0
    if as_json:
        console.answer_json({"n_fetched": n_fetched, "n_published": n_published})
    else:
        console.say(f"{n_fetched} files fetched, {n_published} published.")
