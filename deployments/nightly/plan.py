"""Deployments of a system as data, for ``convergence deploy``."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tasks.prefect_support.settings import NO_TELEMETRY

HEARTBEAT_S = 30
"""Seconds between two heartbeats of a deployed run; Prefect accepts no less."""
ZOMBIE_S = 3 * HEARTBEAT_S
"""Seconds without a heartbeat after which a run counts as crashed."""
ZOMBIES = "convergence: crash runs that give no sign of life"
"""Name of the automation that crashes such runs."""
JOB_ENVIRONMENT: Mapping[str, str] = {
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S),
    **NO_TELEMETRY,
    "OPENBLAS_NUM_THREADS": "1",
}
"""Environment variables of every process of a deployed run."""
TRAINING_CRON = "*/15 * * * *"
"""Schedule of checks for training. Starting a flow run costs some CPU seconds; `convergence train
--daemon` costs none and checks every minute.
"""
GAMES_CRON = "0 6 * * 0"
"""Schedule of language games: on Sundays, after the preferences."""
ALERTS = "alerts"
"""Name of the deployment that notifies users."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned deployment."""

    flow_name: str
    """Name of its flow, also of the flow's function and module."""
    name: str
    parameters: Mapping[str, Any]
    cron: str | None = None
    """Schedule; ``None`` for manual starts."""
    is_active: bool = True
    """Whether its schedule is active; Prefect's page can activate it later."""
    description: str = ""
    tags: tuple[str, ...] = ()
    pool: str | None = None
    """Its work pool; ``None`` means the common one."""

    @property
    def entrypoint(self) -> str:
        """Dotted name of its flow, importable wherever the package is installed."""
        return f"flows.{self.flow_name}.{self.flow_name}"

    @property
    def full_name(self) -> str:
        """Name for ``prefect deployment run``."""
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
        config: absolute path of its configuration.
        store: absolute path of its store.
        system: name of the system.
        cron: schedule of its optimization.
        keep_days: see ``flows.maintain``.
        writes_preferences: whether its configuration has ``society.learning.sao_enabled``.
        trains: whether its configuration has `feedback.training`.
        plays_games: whether its configuration has ``society.games.enabled``.
        training_pool: work pool whose workers train; ``None`` means the common one.
        webhook_env: environment variable of the worker with a webhook's address. Without this and
            ``slack_env`` no deployment notifies users.
        slack_env: environment variable of the worker with the address of a Slack webhook.
        suffix: appended to each name, so that each system has separate deployments.
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
