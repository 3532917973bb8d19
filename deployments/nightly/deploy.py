"""Deployments, their work pool and their automations, made on a Prefect server.

Everything is found by its name and brought to what it should be: twice is as good as once.
"""

import asyncio
import contextlib
import importlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.automations import Automation
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.schedules import Cron
from prefect.types.entrypoint import EntrypointType

from deployments.nightly.automations import crash_zombies, notice_names, notices
from deployments.nightly.plan import ALERTS, JOB_ENVIRONMENT, Planned


def deploy(
    planned: Sequence[Planned],
    *,
    pool: str,
    timezone: str,
    folder: Path,
    system: str,
    suffix: str = "",
) -> tuple[str, ...]:
    """Bring pool, deployments and automations to what they should be.

    Args:
        planned: the deployments.
        pool: name of a work pool of type process; made if there is none, as those of single deployments.
        timezone: IANA name, for the schedules.
        folder: working directory of the runs.
        system: whose deployments they are.
        suffix: of their names.

    Returns:
        The names of the automations.

    Raises:
        ValueError: the time zone or a schedule is none.
    """
    return asyncio.run(_deploy(planned, pool, timezone, folder, system, suffix))


async def _deploy(  # noqa: PLR0917 - as above
    planned: Sequence[Planned], pool: str, timezone: str, folder: Path, system: str, suffix: str
) -> tuple[str, ...]:
    async with get_client() as client:
        for name in dict.fromkeys((pool, *(deployment.pool or pool for deployment in planned))):
            await _have_pool(client, name)
        ids = {
            deployment.full_name: await _have_deployment(
                deployment, deployment.pool or pool, timezone, folder
            )
            for deployment in planned
        }
        alerts_name = f"notify/{ALERTS}{suffix}"
        alerts = ids.pop(alerts_name, None)
        if alerts is None:
            with contextlib.suppress(ObjectNotFound):
                existing = await client.read_deployment_by_name(alerts_name)
                await client.delete_deployment(existing.id)
        automations = [crash_zombies()]
        if alerts is not None:
            automations += notices(system, suffix, watched=tuple(ids.values()), alerts=alerts)
        for automation in automations:
            await _have_automation(automation)
        names = tuple(automation.name for automation in automations)
        for name in notice_names(suffix) - set(names):
            for unwanted in await client.read_automations_by_name(name):
                await client.delete_automation(unwanted.id)
    return names


async def _have_pool(client: PrefectClient, name: str) -> None:
    try:
        await client.read_work_pool(name)
    except ObjectNotFound:
        # A worker that has just started makes it, too.
        with contextlib.suppress(ObjectAlreadyExists):
            await client.create_work_pool(WorkPoolCreate(name=name, type="process"))


async def _have_deployment(planned: Planned, pool: str, timezone: str, folder: Path) -> UUID:
    module, _, name = planned.entrypoint.rpartition(".")
    schedules = (
        [Cron(planned.cron, timezone=timezone, active=planned.is_active)] if planned.cron else []
    )
    deployment: Any = RunnerDeployment.from_flow(
        getattr(importlib.import_module(module), name),
        name=planned.name,
        description=planned.description,
        parameters=dict(planned.parameters),
        schedules=schedules,
        tags=list(planned.tags),
        version=version("convergence-optimizer"),
        work_pool_name=pool,
        job_variables={"working_dir": str(folder), "env": dict(JOB_ENVIRONMENT)},
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    deployment_id: UUID = await deployment.aapply()
    return deployment_id


async def _have_automation(automation: Automation) -> None:
    try:
        existing: Any = await Automation.aread(name=automation.name)
    except ValueError:
        await automation.acreate()
        return
    automation.id = existing.id
    await automation.aupdate()
