"""Make deployments, their work pool and their automations on the configured Prefect server.

Everything is found by its name and brought to what it should be: twice is as good as once.
"""

import asyncio
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convergence.nightly.plan import HEARTBEAT_S, JOB_ENVIRONMENT, Planned

if TYPE_CHECKING:
    from prefect.automations import Automation

POOL = "local"
ZOMBIE_S = 3 * HEARTBEAT_S
"""Without a sign of life for so long, a run that gave one counts as crashed."""
GHOSTS = "convergence: crash runs that give no sign of life"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """What there is now."""

    pool: str
    deployments: tuple[str, ...]
    """Their full names."""
    automations: tuple[str, ...]


def deploy(planned: Sequence[Planned], *, pool: str, timezone: str, folder: Path) -> Deployed:
    """Bring pool, deployments and automations to what they should be; return them.

    Args:
        planned: the deployments.
        pool: name of a work pool of type process; made if there is none.
        timezone: IANA name, for the schedules.
        folder: working directory of the runs.

    Raises:
        ValueError: the time zone or a schedule is none.
    """
    return asyncio.run(_deploy(planned, pool, timezone, folder))


async def _deploy(planned: Sequence[Planned], pool: str, timezone: str, folder: Path) -> Deployed:
    await _have_pool(pool)
    for one in planned:
        await _have_deployment(one, pool, timezone, folder)
    automations = [ghost_automation()]
    for automation in automations:
        await _have_automation(automation)
    return Deployed(
        pool=pool,
        deployments=tuple(one.full_name for one in planned),
        automations=tuple(automation.name for automation in automations),
    )


async def _have_pool(name: str) -> None:
    from prefect.client.orchestration import get_client  # noqa: PLC0415 - takes seconds
    from prefect.client.schemas.actions import WorkPoolCreate  # noqa: PLC0415 - as above
    from prefect.exceptions import ObjectNotFound  # noqa: PLC0415 - as above

    async with get_client() as client:
        try:
            await client.read_work_pool(name)
        except ObjectNotFound:
            await client.create_work_pool(WorkPoolCreate(name=name, type="process"))


async def _have_deployment(one: Planned, pool: str, timezone: str, folder: Path) -> None:
    from prefect.deployments.runner import RunnerDeployment  # noqa: PLC0415 - takes seconds
    from prefect.schedules import Cron  # noqa: PLC0415 - as above
    from prefect.types.entrypoint import EntrypointType  # noqa: PLC0415 - as above

    module, _, name = one.entrypoint.rpartition(".")
    flow = getattr(importlib.import_module(module), name)
    deployment: Any = RunnerDeployment.from_flow(
        flow,
        name=one.name,
        description=one.description,
        parameters=dict(one.parameters),
        schedules=[]
        if one.cron is None
        else [Cron(one.cron, timezone=timezone, active=one.is_active)],
        tags=list(one.tags),
        version=version("convergence-optimizer"),
        work_pool_name=pool,
        job_variables={"working_dir": str(folder), "env": dict(JOB_ENVIRONMENT)},
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    await deployment.aapply()


def ghost_automation() -> "Automation":
    """Return what crashes runs that gave a sign of life and then none: killed with their worker."""
    from prefect.automations import (  # noqa: PLC0415 - takes seconds
        Automation,
        EventTrigger,
        Posture,
    )
    from prefect.client.schemas.objects import StateType  # noqa: PLC0415 - as above
    from prefect.events.actions import ChangeFlowRunState  # noqa: PLC0415 - as above

    ended = ("Completed", "Failed", "Cancelled", "Crashed")
    beat = "prefect.flow-run.heartbeat"
    return Automation(
        name=GHOSTS,
        description=f"A run that beat and then not for {ZOMBIE_S} s was killed with its worker.",
        trigger=EventTrigger(
            after={beat},
            expect={beat, *(f"prefect.flow-run.{state}" for state in ended)},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=ZOMBIE_S),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED,
                message=f"No sign of life for {ZOMBIE_S} s. `convergence resume`, or the next "
                "scheduled run, goes on where it was.",
            )
        ],
    )


async def _have_automation(automation: "Automation") -> None:
    from prefect.automations import Automation  # noqa: PLC0415 - takes seconds

    try:
        found: Any = await Automation.aread(name=automation.name)
    except ValueError:
        await automation.acreate()
        return
    automation.id = found.id
    await automation.aupdate()
