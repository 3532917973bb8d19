"""Arms at run time, live: what is on offer, and the nightly priors behind it.

Running processes and services take a change up with their next request.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from convergence.runtime import home_of
from convergence.runtime_settings import RuntimeArm

__all__ = [
    "runtime_arms",
    "runtime_arms_sync",
    "runtime_offer_arms",
    "runtime_offer_arms_sync",
    "runtime_reset_priors",
    "runtime_reset_priors_sync",
    "runtime_retire_arm",
    "runtime_retire_arm_sync",
]


def runtime_arms_sync(system: str, *, agent_type: str | None = None) -> list[dict[str, Any]]:
    """Return all arms with what is believed of them, those retired included.

    Raises:
        LookupError: nothing was ever offered there.
    """
    return home_of(system).arms(system, agent_type)


def runtime_offer_arms_sync(
    system: str,
    arms: Sequence[RuntimeArm | Mapping[str, Any]],
    *,
    agent_type: str | None = None,
) -> list[str]:
    """Put arms on offer, or back on offer; return their names.

    Raises:
        ArmChangedError: an arm of that name has other parameters; nothing is offered.
    """
    home = home_of(system)
    config = home.config(system)
    checked = tuple(
        arm if isinstance(arm, RuntimeArm) else RuntimeArm.model_validate(arm) for arm in arms
    )
    return [offer.arm_id for offer in home.offer(config, agent_type or config.agent_type, checked)]


def runtime_retire_arm_sync(system: str, arm_id: str, *, agent_type: str | None = None) -> bool:
    """Take an arm off offer, its decisions and rewards kept; return whether it was on.

    Raises:
        LookupError: no arm of that name was ever offered there.
    """
    return home_of(system).retire(system, arm_id, agent_type)


def runtime_reset_priors_sync(system: str, *, agent_type: str | None = None) -> None:
    """Take the nightly priors out of all arms; what rewards taught stays.

    Raises:
        LookupError: nothing was ever offered there.
    """
    home = home_of(system)
    home.known_group(system, agent_type)
    home.store.drop_priors(system, agent_type or home.config(system).agent_type)


async def runtime_arms(system: str, *, agent_type: str | None = None) -> list[dict[str, Any]]:
    """Do as ``runtime_arms_sync``, in a thread."""
    return await asyncio.to_thread(runtime_arms_sync, system, agent_type=agent_type)


async def runtime_offer_arms(
    system: str,
    arms: Sequence[RuntimeArm | Mapping[str, Any]],
    *,
    agent_type: str | None = None,
) -> list[str]:
    """Do as ``runtime_offer_arms_sync``, in a thread."""
    return await asyncio.to_thread(runtime_offer_arms_sync, system, arms, agent_type=agent_type)


async def runtime_retire_arm(system: str, arm_id: str, *, agent_type: str | None = None) -> bool:
    """Do as ``runtime_retire_arm_sync``, in a thread."""
    return await asyncio.to_thread(runtime_retire_arm_sync, system, arm_id, agent_type=agent_type)


async def runtime_reset_priors(system: str, *, agent_type: str | None = None) -> None:
    """Do as ``runtime_reset_priors_sync``, in a thread."""
    await asyncio.to_thread(runtime_reset_priors_sync, system, agent_type=agent_type)
