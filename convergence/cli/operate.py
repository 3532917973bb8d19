"""``up``, ``deploy``, ``down``, ``doctor``, ``version``: services, this machine."""

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
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the server.")] = 4200,
    pool: Annotated[str, typer.Option(help="Work pool of the worker.")] = POOL,
    show_ui: Annotated[
        bool, typer.Option("--ui/--no-ui", help="Start `convergence ui` as well.")
    ] = True,
    ui_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Its port; 0: any free one.")
    ] = 8710,
    store: options.Store = None,
    config: options.Config = None,
    as_json: options.AsJson = False,
) -> None:
    """Start Prefect's server, a worker and the web application here, in the background.

    Started already, it says where. `convergence down` ends them.
    """
    from deployments.nightly import pages, services  # noqa: PLC0415 - only where it is needed

    home = services.home()
    found = services.up(home, host=host, port=port, pool=pool, working_dir=Path.cwd())
    address = None
    if show_ui:
        path = locations.store_path(store, config).absolute()
        address = pages.up(home, store=path, port=ui_port, working_dir=Path.cwd())
    if as_json:
        console.answer_json({**services.as_json(found), "ui": address})
        return
    console.say(f"Prefect's page   {found.url}", style="bold")
    console.say(f"worker           work pool {found.pool}, process {found.worker.pid}")
    if address is not None:
        typer.echo(f"runs and answers {address}")  # it holds a token, which messages do not show
    elif show_ui:
        console.say(f"The web application did not start: read {pages.log_of(home)}", "yellow")
    console.say("For Prefect's own commands in this terminal:")
    typer.echo(f"export PREFECT_API_URL={found.api_url}")
    console.say("Next: `convergence deploy`. `convergence down` ends them.")


def down(as_json: options.AsJson = False) -> None:
    """End the server, the worker and the web application that `convergence up` started.

    A run in progress is stopped; what was paid is kept, and it can be resumed.
    """
    from deployments.nightly import pages, services  # noqa: PLC0415 - only where it is needed

    pages.down(services.home())
    found = services.down(services.home())
    if as_json:
        console.answer_json({"ended": found is not None})
    elif found is None:
        console.say("Nothing was started by `convergence up`.")
    else:
        console.say(f"Ended the server at {found.url} and its worker.")


def deploy(  # noqa: PLR0917 - Typer's options
    config: Annotated[Path, typer.Argument(help="Configuration of the system.")] = Path(
        locations.CONFIG_NAME
    ),
    cron: Annotated[str, typer.Option(help="When it is optimized.")] = "0 2 * * *",
    timezone: Annotated[str, typer.Option(help="IANA name of the schedules' zone.")] = "UTC",
    keep_days: Annotated[
        int | None,
        typer.Option(min=1, help="Days after which runs lose their tables. Default: never."),
    ] = None,
    pool: Annotated[str, typer.Option(help="Work pool, made if there is none.")] = POOL,
    training_pool: Annotated[
        str | None,
        typer.Option(
            help="Work pool of train/idle alone, made if there is none. Default: --pool."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Tells the deployments of several systems apart: nightly-NAME."),
    ] = None,
    notify_webhook: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable of the worker: whom to tell."),
    ] = None,
    notify_slack: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The same, for a webhook that takes Slack's form."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Make the deployments of a system on the Prefect server: nightly, adhoc, hourly, daily, weekly, idle.

    Twice is as good as once: what is there is brought to what it should be. The server is that of
    Prefect's settings, else the one that `convergence up` started.
    """
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic and numpy

    loaded = load(config)
    _check_schedule(cron, timezone)
    _check_names({"--notify-webhook": notify_webhook, "--notify-slack": notify_slack})
    trains = "training" in loaded.configuration.feedback.model_fields_set
    if training_pool is not None and not trains:
        rule = "must be left out where the configuration has no `feedback.training`"
        fix = "Write `feedback: {training: {}}`, or leave the option out: nothing is trained."
        raise ConfigurationError.of("--training-pool", rule, fix, value=training_pool)
    with _server():
        from deployments.nightly import deploy  # noqa: PLC0415 - only where it is needed
        from deployments.nightly.plan import Notified, plan  # noqa: PLC0415 - as above

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
            learns_policy=loaded.configuration.prompts.policy.enabled,
            plays_games=loaded.configuration.society.games.enabled,
            training_pool=training_pool,
            notified=Notified(webhook_env=notify_webhook, slack_env=notify_slack),
            suffix=suffix,
        )
        automations = deploy.deploy(
            planned,
            pool=pool,
            timezone=timezone,
            folder=Path.cwd(),
            system=loaded.configuration.api.name,
            suffix=suffix,
        )
    if as_json:
        console.answer_json(
            {
                "pool": pool,
                "deployments": [one.full_name for one in planned],
                "automations": list(automations),
            }
        )
        return
    for one in planned:
        when = "by hand" if one.cron is None else f"{one.cron} {timezone}"
        when = when if one.is_active else "off"
        console.say(f"{one.full_name:<24} {when:<18} {one.description}")
    console.say(f"Run one now: prefect deployment run {planned[0].full_name}")


def _check_names(option_to_name: dict[str, str | None]) -> None:
    """Refuse what is no name of a variable, without showing it: it may be the address itself.

    Raises:
        ConfigurationError: an option has such a value.
    """
    problems = [
        Problem(
            key=option,
            rule="must be the name of an environment variable, not an address",
            value="",
            fix=f"`export ALERTS_URL=https://…` where the worker runs, and `{option} ALERTS_URL`.",
        )
        for option, name in option_to_name.items()
        if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
    ]
    if problems:
        raise ConfigurationError(problems)


def _check_schedule(cron: str, timezone: str) -> None:
    """Refuse what no schedule can be made of.

    Raises:
        ConfigurationError: the zone or the expression is none.
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
    """Use the configured Prefect server, else the one that ``up`` started, while the block lasts.

    Raises:
        PrefectServerError: there is neither, or it does not answer.
    """
    from tasks.prefect_support.settings import prepare  # noqa: PLC0415 - must come before Prefect

    prepare(quiet=True)
    from prefect.settings import (  # noqa: PLC0415 - takes a second
        PREFECT_API_URL,
        temporary_settings,
    )

    from convergence.optimize.execution import greet  # noqa: PLC0415 - as above
    from deployments.nightly import services  # noqa: PLC0415 - as above

    url = services.api_url()
    if url is None:
        raise PrefectServerError(
            "PREFECT_API_URL: must name a Prefect server, but is not set; fix: "
            "`convergence up`, or set it to the address of your own"
        )
    with temporary_settings(updates={PREFECT_API_URL: url}):
        greet(url)
        yield


def doctor(
    store: options.Store = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Configuration whose environment variables are checked as well."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Check that this machine can run optimizations, and say what to do where it cannot.

    Exit code 1 if a check failed; warnings do not count.
    """
    from convergence.doctor import examine  # noqa: PLC0415 - loads SQLite and Prefect's settings

    if config is None and Path(locations.CONFIG_NAME).is_file():
        config = Path(locations.CONFIG_NAME)
    findings = examine(store=locations.store_path(store, config), config=config)
    failed = any(finding.level == "failed" for finding in findings)
    if as_json:
        console.answer_json({"ok": not failed, "findings": findings})
    else:
        marks = {"ok": ("ok", "green"), "warning": ("note", "yellow"), "failed": ("FAIL", "red")}
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            mark, style = marks[finding.level]
            out = console.out()
            out.print(f"{mark:<5}", style=style, end="")
            out.print(f"{finding.check:<{width}}  {finding.found}", markup=False)
            if finding.fix:
                out.print(f"{'':<{5 + width}}  {finding.fix}", markup=False)
    if failed:
        raise typer.Exit(1)


def version(
    as_json: options.AsJson = False,
) -> None:
    """Print the version."""
    from tasks.version import code_version  # noqa: PLC0415 - reads the installed metadata

    if as_json:
        console.answer_json({"convergence-optimizer": code_version()})
    else:
        console.answer(f"convergence-optimizer {code_version()}")
