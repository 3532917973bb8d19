"""Commands on services and this machine: start, deploy, stop, check."""

import contextlib
import re
import zoneinfo
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from convergence import console
from convergence.cli import locations, options
from convergence_core.errors import ConfigurationError, PrefectServerError, Problem

POOL = "local"


def up(  # noqa: PLR0917 - Typer's options
    host: Annotated[str, typer.Option(help="Address of Prefect's server.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of Prefect's server.")] = 4200,
    pool: Annotated[str, typer.Option(help="Work pool of the worker.")] = POOL,
    show_ui: Annotated[
        bool, typer.Option("--ui/--no-ui", help="Also start `convergence ui`.")
    ] = True,
    ui_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the pages; 0 picks a free one.")
    ] = 8710,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Start Prefect's server, a worker and the pages on this machine, in the background.

    Prints their addresses, also if they run already. `convergence down` stops them.
    """
    from deployments.nightly import pages, services  # noqa: PLC0415 - only where it is needed

    home = services.home()
    started = services.up(home, host=host, port=port, pool=pool)
    address = None
    if show_ui:
        path = locations.store_path(store, config).absolute()
        address = pages.up(home, store=path, port=ui_port)

    def show() -> None:
        console.say(f"Prefect's page   {started.url}", style="bold")
        console.say(f"worker           work pool {started.pool}, process {started.worker.pid}")
        if address is not None:
            typer.echo(f"runs and answers {address}")  # holds a token, which messages hide
        elif show_ui:
            console.say(f"The web application did not start: read {home / pages.LOG}", "yellow")
        console.say("For Prefect's own commands in this terminal:")
        typer.echo(f"export PREFECT_API_URL={started.api_url}")
        console.say("Next: `convergence deploy`. `convergence down` stops them.")

    console.emit({**services.as_json(started), "ui": address}, show)


def down(_json: options.AsJson = False) -> None:
    """Stop the server, the worker and the pages that `convergence up` started.

    A run in progress stops and keeps its paid answers; `convergence resume` continues it.
    """
    from deployments.nightly import pages, services  # noqa: PLC0415 - only where it is needed

    pages.down(services.home())
    stopped = services.down(services.home())
    console.emit(
        {"ended": stopped is not None},
        "`convergence up` has started nothing."
        if stopped is None
        else f"Stopped the server at {stopped.url} and its worker.",
    )


def deploy(  # noqa: PLR0917 - Typer's options
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="Configuration of the system.")
    ] = Path(locations.CONFIG_NAME),
    cron: Annotated[str, typer.Option(help="Schedule of the nightly run.")] = "0 2 * * *",
    timezone: Annotated[str, typer.Option(help="Time zone of the schedules (IANA name).")] = "UTC",
    keep_days: Annotated[
        int | None,
        typer.Option(min=1, help="Days after which a run's tables are removed. Default: never."),
    ] = None,
    notify_webhook: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Environment variable of the worker that holds a webhook's address.",
        ),
    ] = None,
    notify_slack: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The same, for a webhook in Slack's format."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Suffix of the deployments' names: nightly-NAME."),
    ] = None,
    pool: Annotated[str, typer.Option(help="Work pool; created if missing.")] = POOL,
    training_pool: Annotated[
        str | None,
        typer.Option(help="Work pool of train/idle; created if missing. Default: --pool."),
    ] = None,
    _json: options.AsJson = False,
) -> None:
    """Schedule a system on the Prefect server: nightly runs, hourly exports, upkeep.

    Repeating the command updates the deployments. Uses the server in Prefect's settings, else the one
    that `convergence up` started.
    """
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic and numpy

    loaded = load(config)
    _check_schedule(cron, timezone)
    _check_names({"--notify-webhook": notify_webhook, "--notify-slack": notify_slack})
    trains = "training" in loaded.configuration.feedback.model_fields_set
    if training_pool is not None and not trains:
        rule = "needs `feedback.training` in the configuration"
        fix = "Write `feedback: {training: {}}`, or remove the option."
        raise ConfigurationError.of("--training-pool", rule, fix, value=training_pool)
    with _server():
        import asyncio  # noqa: PLC0415 - only where it is needed

        from deployments.nightly import deploy  # noqa: PLC0415 - as above
        from deployments.nightly.plan import plan  # noqa: PLC0415 - as above

        suffix = "" if name is None else f"-{name}"
        store = (loaded.base_dir / loaded.configuration.storage.folder).resolve()
        planned = plan(
            config.resolve(),
            store,
            system=loaded.configuration.api.name,
            cron=cron,
            keep_days=keep_days,
            writes_preferences=loaded.configuration.society.learning.sao_enabled,
            trains=trains,
            plays_games=loaded.configuration.society.games.enabled,
            training_pool=training_pool,
            webhook_env=notify_webhook,
            slack_env=notify_slack,
            suffix=suffix,
        )
        work = deploy.deploy(
            planned,
            pool=pool,
            timezone=timezone,
            folder=Path.cwd(),
            system=loaded.configuration.api.name,
            suffix=suffix,
        )
        automations = asyncio.run(work)
    lines = []
    for deployment in planned:
        when = "by hand" if deployment.cron is None else f"{deployment.cron} {timezone}"
        when = when if deployment.is_active else "off"
        lines.append(f"{deployment.full_name:<24} {when:<18} {deployment.description}")
    lines.append(f"Run one now: prefect deployment run {planned[0].full_name}")
    console.emit(
        {
            "pool": pool,
            "deployments": [deployment.full_name for deployment in planned],
            "automations": list(automations),
        },
        "\n".join(lines),
    )


def _check_names(option_to_name: dict[str, str | None]) -> None:
    """Reject values that are no variable names, without showing these possible secrets.

    Raises:
        ConfigurationError: an option has such a value.
    """
    problems = [
        Problem(
            key=option,
            rule="must be the name of an environment variable, not an address",
            value="",
            fix=f"`export ALERTS_URL=https://…` on the worker, and `{option} ALERTS_URL`.",
        )
        for option, name in option_to_name.items()
        if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
    ]
    if problems:
        raise ConfigurationError(problems)


def _check_schedule(cron: str, timezone: str) -> None:
    """Reject an invalid schedule.

    Raises:
        ConfigurationError: the zone or the expression is invalid.
    """
    from prefect.schedules import Cron  # noqa: PLC0415 - takes seconds

    def is_right(make: Callable[[], object]) -> bool:
        try:
            make()
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            return False
        return True

    problems = []
    if not is_right(lambda: zoneinfo.ZoneInfo(timezone)):
        rule, fix = "must be an IANA name", "For example `--timezone Europe/Berlin`."
        problems.append(Problem(key="--timezone", rule=rule, value=timezone, fix=fix))
    if not is_right(lambda: Cron(cron, timezone="UTC")):
        rule = "must be a cron expression of five fields"
        fix = 'For example `--cron "0 2 * * *"`, every night at two.'
        problems.append(Problem(key="--cron", rule=rule, value=cron, fix=fix))
    if problems:
        raise ConfigurationError(problems)


@contextlib.contextmanager
def _server() -> Iterator[None]:
    """Use the configured Prefect server, else the one that ``up`` started, within the block.

    Raises:
        PrefectServerError: there is no server, or it does not answer.
    """
    from tasks.prefect_support.settings import prepare  # noqa: PLC0415 - must come before Prefect

    prepare(quiet=True)
    from prefect.settings import PREFECT_API_URL, temporary_settings  # noqa: PLC0415 - takes a second

    from convergence.optimize.execution import greet  # noqa: PLC0415 - as above
    from deployments.nightly import services  # noqa: PLC0415 - as above

    url = services.api_url()
    if url is None:
        raise PrefectServerError(
            "PREFECT_API_URL: must name a Prefect server, but is not set; fix: "
            "`convergence up`, or set it to your server's address"
        )
    with temporary_settings(updates={PREFECT_API_URL: url}):
        greet(url)
        yield


def doctor(
    store: options.Store = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Also check the environment variables of this configuration."),
    ] = None,
    _json: options.AsJson = False,
) -> None:
    """Check that this machine can run optimizations, and name fixes.

    Exit code 1 if a check fails; warnings do not count.
    """
    from convergence.doctor import examine  # noqa: PLC0415 - loads SQLite and Prefect's settings

    if config is None and Path(locations.CONFIG_NAME).is_file():
        config = Path(locations.CONFIG_NAME)
    findings = list(examine(store=locations.store_path(store, config), config=config))
    failed = any(finding.level == "failed" for finding in findings)

    def show() -> None:
        marks = {"ok": ("ok", "green"), "warning": ("note", "yellow"), "failed": ("FAIL", "red")}
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            mark, style = marks[finding.level]
            out = console.out()
            out.print(f"{mark:<5}", style=style, end="")
            out.print(f"{finding.check:<{width}}  {finding.state}", markup=False)
            if finding.fix:
                out.print(f"{'':<{5 + width}}  {finding.fix}", markup=False)

    console.emit({"ok": not failed, "findings": findings}, show)
    if failed:
        raise typer.Exit(1)


def version(_json: options.AsJson = False) -> None:
    """Print the version."""
    from tasks.version import code_version  # noqa: PLC0415 - reads the installed metadata

    name, version = "convergence-optimizer", code_version()
    console.emit({name: version}, lambda: console.answer(f"{name} {version}"))
