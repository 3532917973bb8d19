"""Make deployments, their work pool and their automations on the configured Prefect server.

Everything is found by its name and brought to what it should be: twice is as good as once.
"""

import asyncio
import contextlib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from deployments.nightly.automations import ghosts, notices
from deployments.nightly.plan import ALERTS, JOB_ENVIRONMENT, Planned

if TYPE_CHECKING:
    from prefect.automations import Automation

POOL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """What there is now."""

    pool: str
    deployments: tuple[str, ...]
    """Their full names."""
    automations: tuple[str, ...]


def deploy(
    planned: Sequence[Planned],
    *,
    pool: str,
    timezone: str,
    folder: Path,
    system: str,
    suffix: str = "",
) -> Deployed:
    """Bring pool, deployments and automations to what they should be; return them.

    Args:
        planned: the deployments.
        pool: name of a work pool of type process; made if there is none.
        timezone: IANA name, for the schedules.
        folder: working directory of the runs.
        system: whose deployments they are.
        suffix: of their names.

    Raises:
        ValueError: the time zone or a schedule is none.
    """
    return asyncio.run(_deploy(planned, pool, timezone, folder, system, suffix))


async def _deploy(  # noqa: PLR0917 - as above
    planned: Sequence[Planned], pool: str, timezone: str, folder: Path, system: str, suffix: str
) -> Deployed:
    await _have_pool(pool)
    ids = {one.full_name: await _have_deployment(one, pool, timezone, folder) for one in planned}
    telling = f"notify/{ALERTS}{suffix}"
    teller = ids.pop(telling, None)
    if teller is None:
        await _have_no_deployment(telling)
    told = notices(system, suffix, watched=tuple(ids.values()), teller=teller)
    automations = [ghosts(), *told.wanted]
    for automation in automations:
        await _have_automation(automation)
    for name in told.unwanted:
        await _have_no_automation(name)
    return Deployed(
        pool=pool,
        deployments=tuple(one.full_name for one in planned),
        automations=tuple(automation.name for automation in automations),
    )


async def _have_pool(name: str) -> None:
    from prefect.client.orchestration import get_client  # noqa: PLC0415 - takes seconds
    from prefect.client.schemas.actions import WorkPoolCreate  # noqa: PLC0415 - as above
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound  # noqa: PLC0415 - as above

    async with get_client() as client:
        try:
            await client.read_work_pool(name)
        except ObjectNotFound:
            # A worker that has just started makes it, too.
            with contextlib.suppress(ObjectAlreadyExists):
                await client.create_work_pool(WorkPoolCreate(name=name, type="process"))


async def _have_deployment(one: Planned, pool: str, timezone: str, folder: Path) -> UUID:
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
    deployment_id: UUID = await deployment.aapply()
    return deployment_id


async def _have_automation(automation: "Automation") -> None:
    from prefect.automations import Automation  # noqa: PLC0415 - takes seconds

    try:
        found: Any = await Automation.aread(name=automation.name)
    except ValueError:
        await automation.acreate()
        return
    automation.id = found.id
    await automation.aupdate()


async def _have_no_automation(name: str) -> None:
    from prefect.client.orchestration import get_client  # noqa: PLC0415 - takes seconds

    async with get_client() as client:
        for automation in await client.read_automations_by_name(name):
            await client.delete_automation(automation.id)


async def _have_no_deployment(full_name: str) -> None:
    from prefect.client.orchestration import get_client  # noqa: PLC0415 - takes seconds
    from prefect.exceptions import ObjectNotFound  # noqa: PLC0415 - as above

    async with get_client() as client:
        try:
            found = await client.read_deployment_by_name(full_name)
        except ObjectNotFound:
            return
        await client.delete_deployment(found.id)
