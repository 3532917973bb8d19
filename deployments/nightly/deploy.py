"""Creation of deployments, their work pool and automations on a Prefect server.

Every object is found by name and updated, so a repetition has no further effect.
"""

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


async def deploy(
    planned: Sequence[Planned],
    *,
    pool: str,
    timezone: str,
    folder: Path,
    system: str,
    suffix: str = "",
) -> tuple[str, ...]:
    """Create or update the work pool, deployments and automations.

    Args:
        planned: the deployments.
        pool: name of a work pool of type process. It is created if missing, as are the pools of
            single deployments.
        timezone: IANA name, for the schedules.
        folder: working directory of the runs.
        system: name of the deployments' system.
        suffix: suffix of their names.

    Returns:
        The names of the automations.

    Raises:
        ValueError: the time zone or a schedule is invalid.
    """
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
        # A worker that has just started also creates it.
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
