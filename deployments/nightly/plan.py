"""Which deployments there are, as data: what ``convergence deploy`` makes and ``serve`` serves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEARTBEAT_S = 30
"""Seconds between two signs of life of a deployed run; Prefect takes none below this."""
JOB_ENVIRONMENT: Mapping[str, str] = {
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_S),
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "OPENBLAS_NUM_THREADS": "1",
}
"""What every process of a deployed run finds in its environment."""
ALERTS = "alerts"
"""Name of the deployment that tells people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified:
    """Who is told, by the names of environment variables of the worker that hold their addresses."""

    webhook_env: str | None = None
    slack_env: str | None = None

    def __bool__(self) -> bool:
        """Whether anybody is told."""
        return self.webhook_env is not None or self.slack_env is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One deployment."""

    entrypoint: str
    """Dotted name of its flow: importable wherever the package is installed."""
    name: str
    description: str
    parameters: Mapping[str, Any]
    cron: str | None = None
    """``None``: started by hand."""
    is_active: bool = True
    """Whether its schedule is on; an inactive one can be switched on on Prefect's page."""
    tags: tuple[str, ...] = field(default=("convergence",))

    @property
    def flow_name(self) -> str:
        """Name of its flow, which is that of the function."""
        return self.entrypoint.rpartition(".")[2]

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
    notified: Notified = Notified(),
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
        notified: who is told when something happens; nobody: there is no deployment for it.
        suffix: appended to each name, so that several systems have deployments of their own.
    """
    tags = ("convergence", f"system:{system}")
    telling = Planned(
        entrypoint="flows.notify.notify",
        name=f"{ALERTS}{suffix}",
        description=f"Tell people what happened to {system}; automations start it.",
        parameters={"webhook_env": notified.webhook_env, "slack_env": notified.slack_env},
        tags=(*tags, ALERTS),
    )
    return (
        Planned(
            entrypoint="flows.optimize.optimize",
            name=f"nightly{suffix}",
            description=f"Optimize {system} every night; parameters override its configuration.",
            parameters={"config": str(config)},
            cron=cron,
            tags=(*tags, "nightly"),
        ),
        Planned(
            entrypoint="flows.optimize.optimize",
            name=f"adhoc{suffix}",
            description=f"Optimize {system} now, with the parameters of your choice.",
            parameters={"config": str(config), "resume": "never"},
            tags=(*tags, "adhoc"),
        ),
        Planned(
            entrypoint="flows.fold.fold",
            name=f"hourly{suffix}",
            description=f"Bring the decisions and rewards of {system} home and look at them.",
            parameters={"store": str(store), "drift_events": True},
            cron="0 * * * *",
            tags=(*tags, "hourly"),
        ),
        Planned(
            entrypoint="flows.maintain.maintain",
            name=f"daily{suffix}",
            description=f"Sweep, check and, with keep_days, thin out the store of {system}.",
            parameters={"store": str(store), "keep_days": keep_days},
            cron="30 4 * * *",
            tags=(*tags, "daily"),
        ),
        Planned(
            entrypoint="flows.sao.sao",
            name=f"weekly{suffix}",
            description=f"Write preferences for {system}, on the evidence of its newest run.",
            parameters={"config": str(config)},
            cron="0 5 * * 0",
            is_active=writes_preferences,
            tags=(*tags, "weekly"),
        ),
        *((telling,) if notified else ()),
    )
