"""Deployments of a system, as data: what ``convergence deploy`` makes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tasks.prefect_support.settings import NO_TELEMETRY

HEARTBEAT_S = 30
"""Seconds between two signs of life of a deployed run; Prefect takes none below this."""
ZOMBIE_S = 3 * HEARTBEAT_S
"""Without a sign of life for so long, a run that gave one counts as crashed."""
ZOMBIES = "convergence: crash runs that give no sign of life"
"""Name of the automation that crashes them."""
JOB_ENVIRONMENT: Mapping[str, str] = {
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S),
    **NO_TELEMETRY,
    "OPENBLAS_NUM_THREADS": "1",
}
"""What every process of a deployed run finds in its environment."""
TRAINING_CRON = "*/15 * * * *"
"""When training is looked for. Starting a flow run costs some CPU seconds; `convergence train --daemon` costs
none, and looks every minute."""
GAMES_CRON = "0 6 * * 0"
"""When language games are played: on Sundays, after the preferences."""
ALERTS = "alerts"
"""Name of the deployment that notifies people."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One deployment."""

    flow_name: str
    """Of its flow, which is that of the function and of its module."""
    name: str
    parameters: Mapping[str, Any]
    cron: str | None = None
    """``None``: started by hand."""
    is_active: bool = True
    """Whether its schedule is on; an inactive one can be switched on on Prefect's page."""
    description: str = ""
    tags: tuple[str, ...] = ()
    pool: str | None = None
    """Work pool of its own. ``None``: that of all."""

    @property
    def entrypoint(self) -> str:
        """Dotted name of its flow: importable wherever the package is installed."""
        return f"flows.{self.flow_name}.{self.flow_name}"

    @property
    def full_name(self) -> str:
        """As ``prefect deployment run`` takes it."""
        return f"{self.flow_name}/{self.name}"


def plan(
    config: Path,
    store: Path,
    *,
    system: str,
    cron: str = "0 2 * * *",
    keep_days: int | None = None,
    writes_preferences: bool = False,
    trains: bool = False,
    plays_games: bool = False,
    training_pool: str | None = None,
    webhook_env: str | None = None,
    slack_env: str | None = None,
    suffix: str = "",
) -> tuple[Planned, ...]:
    """Return the deployments of one optimized system.

    Args:
        config: its configuration, absolute.
        store: its store, absolute.
        system: its name.
        cron: when it is optimized.
        keep_days: see ``flows.maintain``.
        writes_preferences: whether its configuration has ``society.learning.sao_enabled``.
        trains: whether its configuration has `feedback.training`.
        plays_games: whether its configuration has ``society.games.enabled``.
        training_pool: work pool whose workers train; ``None``: that of all.
        webhook_env: environment variable of the worker that holds a webhook's address. Without this and
            ``slack_env`` there is no deployment that notifies people.
        slack_env: the same of a webhook in Slack's format.
        suffix: appended to each name, so that several systems have deployments of their own.
    """
    of_config, of_store = {"config": str(config)}, {"store": str(store)}
    addresses = {"webhook_env": webhook_env, "slack_env": slack_env}
    planned = [
        Planned("optimize", "nightly", of_config, cron, description=
                f"Optimize {system} every night; parameters override its configuration."),
        Planned("optimize", "adhoc", {**of_config, "resume": "never"}, description=
                f"Optimize {system} now, with the parameters of your choice."),
        Planned("fold", "hourly", {**of_store, "drift_events": True}, "0 * * * *", description=
                f"Export the decisions and rewards of {system}; update its gates."),
        Planned("maintain", "daily", {**of_store, "keep_days": keep_days}, "30 4 * * *", description=
                f"Sweep, check and, with keep_days, thin out the store of {system}."),
        Planned("sao", "weekly", of_config, "0 5 * * 0", is_active=writes_preferences, description=
                f"Write preferences for {system}, on the evidence of its newest run."),
    ]  # fmt: skip
    if trains:
        text = f"Train the local model of {system} on new ratings, where the machine is idle."
        planned.append(
            Planned(
                "train", "idle", of_config, TRAINING_CRON, description=text, pool=training_pool
            )
        )
    if plays_games:
        text = f"Play a round of language games of {system}, and report which are kept."
        planned.append(Planned("games", "weekly", of_config, GAMES_CRON, description=text))
    if webhook_env is not None or slack_env is not None:
        text = f"Notify people about {system}; automations start it."
        planned.append(Planned("notify", ALERTS, addresses, description=text))
    tags = ("convergence", f"system:{system}")
    return tuple(
        replace(deployment, name=f"{deployment.name}{suffix}", tags=(*tags, deployment.name))
        for deployment in planned
    )
