"""Arms at run time, live: what is on offer, and the nightly priors behind it.

Running processes and services take a change up with their next request.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convergence.runtime.functions import caller_of, home_of, opened
from convergence.runtime.settings import RuntimeArm
from convergence_core.errors import NoArmsError

__all__ = [
    "runtime_arms",
    "runtime_arms_sync",
    "runtime_evolve_arms",
    "runtime_evolve_arms_sync",
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


def runtime_evolve_arms_sync(
    system: str,
    *,
    user_id: str | None = None,
    agent_type: str | None = None,
    top_n: int = 3,
    search_space: Mapping[str, Any] | None = None,
    evolution_config: Mapping[str, Any] | None = None,
    storage: str | Path | None = None,
) -> list[RuntimeArm]:
    """Return new arms bred from the best ones, for a look: they are not on offer yet.

    ``runtime_offer_arms`` puts them there. No arm, on offer or retired, comes again.

    Args:
        system: whose arms.
        user_id: whose arms, where a storage of your own keeps them per user; in a store users share
            their arms, and it is not needed.
        agent_type: its kind of agent; by default that of its settings.
        top_n: arms that are parents, those of the highest posterior means.
        search_space: as in ``optimization.yaml``; by default what the arms on offer span.
        evolution_config: as ``optimization.evolution`` there: ``mutation_rate``,
            ``crossover_rate``, ``selection``, ``tournament_size``; ``population_size`` is the number of
            new arms, by default ``top_n``.
        storage: folder of the store; by default that of ``configure_runtime``.

    Raises:
        ConfigurationError: the space or the evolution is wrong, or no arm lies in the space.
        LookupError: nothing is on offer there.
    """
    from tasks.serving.offers import arm_id_of  # noqa: PLC0415 - as above
    from tasks.serving.propose_arms import bred, means_of, rng_of  # noqa: PLC0415 - brings NumPy

    if top_n < 1:
        raise ValueError(f"top_n must be 1 or more, but got {top_n}")
    caller = caller_of(system) if storage is None else None
    if caller is not None:
        return asyncio.run(
            caller.evolve(
                user_id=user_id or "",
                agent_type=agent_type,
                top_n=top_n,
                search_space=search_space,
                evolution=evolution_config,
            )
        )
    home = home_of(system) if storage is None else opened(Path(storage))
    group = home.known_group(system, agent_type)
    bandit = home.bandit(system, agent_type)
    arms = home.store.arms(group.group_id)
    if not bandit.n_on_offer():
        raise NoArmsError(f"all arms of `{system}` are retired")
    children = bred(
        arms,
        means_of(group.kind, arms, bandit.settings),
        rng_of(home.config(system).seed),
        top_n=top_n,
        search_space=search_space,
        evolution=evolution_config,
    )
    found = [dict(child.params) for child in children]
    return [RuntimeArm(arm_id=arm_id_of(params), params=params) for params in found]


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


async def runtime_evolve_arms(
    system: str,
    *,
    user_id: str | None = None,
    agent_type: str | None = None,
    top_n: int = 3,
    search_space: Mapping[str, Any] | None = None,
    evolution_config: Mapping[str, Any] | None = None,
    storage: str | Path | None = None,
) -> list[RuntimeArm]:
    """Do as ``runtime_evolve_arms_sync``, in a thread; a storage of your own is awaited here."""
    caller = caller_of(system) if storage is None else None
    if caller is not None:
        return await caller.evolve(
            user_id=user_id or "",
            agent_type=agent_type,
            top_n=top_n,
            search_space=search_space,
            evolution=evolution_config,
        )
    return await asyncio.to_thread(
        runtime_evolve_arms_sync,
        system,
        user_id=user_id,
        agent_type=agent_type,
        top_n=top_n,
        search_space=search_space,
        evolution_config=evolution_config,
        storage=storage,
    )
