"""The Python interface at run time: ``runtime_select`` and ``runtime_update``.

``configure_runtime`` says what a system offers; ``runtime_select`` chooses an arm for a request and
``runtime_update`` learns from what came of it. Every function has a twin that ends in ``_sync``. What
is acknowledged is on the disk; any number of processes may share the folder.
"""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convergence.runtime.settings import (
    RewardMetric,
    RuntimeArm,
    RuntimeConfig,
    checked_settings,
)
from convergence_core.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from convergence.runtime.custom_storage import CustomStorageBandit, RuntimeStorage
    from convergence.runtime.systems import DefaultServed, Systems
    from tasks.serving.system import Selection

__all__ = [
    "RewardMetric",
    "RuntimeArm",
    "RuntimeConfig",
    "RuntimeSelection",
    "configure_runtime",
    "configure_runtime_sync",
    "runtime_evidence",
    "runtime_evidence_sync",
    "runtime_get_decision",
    "runtime_get_decision_sync",
    "runtime_quality",
    "runtime_quality_sync",
    "runtime_select",
    "runtime_select_sync",
    "runtime_update",
    "runtime_update_sync",
]

DEFAULT_STORAGE = "./convergence-data"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSelection:
    """The arm that serves a request."""

    decision_id: str | None
    """Give it to ``runtime_update``; ``None``: a default served, and nothing can be learned."""
    arm_id: str
    params: Mapping[str, Any]
    sampled_value: float | None
    """A draw of the arm's mean reward."""
    arms_state: tuple[dict[str, Any], ...]
    """Every arm on offer: ``arm_id``, ``alpha``, ``beta``, ``mean``, ``n``, ``prior``, ``cost``."""
    metadata: Mapping[str, Any]
    """``propensity``, ``policy_version``, ``fresh``; or ``fallback``."""


_homes: "dict[str, Systems]" = {}
"""System → the store that it was configured in."""
_stores: "dict[Path, Systems]" = {}
_callers: "dict[str, CustomStorageBandit]" = {}
"""System → what serves it from a storage of the caller's own."""
_mutex = threading.Lock()


def configure_runtime_sync(
    system: str,
    *,
    config: RuntimeConfig | Mapping[str, Any] | None = None,
    storage: "str | Path | RuntimeStorage | None" = None,
) -> RuntimeConfig:
    """Say what a system offers and how it serves; may be called again with other settings.

    Settings are kept in the store, and every process that serves the system follows. With a storage of
    your own they are kept in this process.

    Args:
        system: name of the optimized system.
        config: its settings; by default what is in the store serves as it is.
        storage: folder of the store, shared by all processes of this machine; by default
            ``./convergence-data``. Or an object with the five methods of
            ``convergence.runtime.custom_storage.RuntimeStorage``, which keeps arms and decisions itself.

    Raises:
        ConfigurationError: a setting is wrong, or needs the store of this tool.
        ArmChangedError: an arm of that name has other parameters.
        StoreError: the folder cannot be used.
    """
    if storage is not None and not isinstance(storage, str | Path):
        return _configured_by_caller(system, checked_settings(system, config or {}), storage)
    home = opened(Path(storage or DEFAULT_STORAGE))
    if config is None:
        settings = home.config(system)
    else:
        settings = checked_settings(system, config)
        home.configure(settings)
    with _mutex:
        _homes[system] = home
        _callers.pop(system, None)
    return settings


def _configured_by_caller(system: str, settings: RuntimeConfig, storage: object) -> RuntimeConfig:
    from convergence.runtime.custom_storage import CustomStorageBandit, RuntimeStorage  # noqa: PLC0415 - NumPy

    if not isinstance(storage, RuntimeStorage):
        raise ConfigurationError(
            [
                Problem(
                    key="storage",
                    rule="must be a folder, or have get_arms, initialize_arms, create_decision, "
                    "update_performance and get_decision",
                    value=type(storage).__name__,
                    fix="See convergence.runtime.custom_storage.RuntimeStorage.",
                )
            ]
        )
    served = CustomStorageBandit(settings, storage)
    with _mutex:
        _callers[system] = served
    return settings


def caller_of(system: str) -> "CustomStorageBandit | None":
    """Return what serves a system from a storage of the caller's own; ``None``: a store does."""
    with _mutex:
        return _callers.get(system)


def runtime_select_sync(
    system: str,
    *,
    user_id: str,
    agent_type: str | None = None,
    context: Mapping[str, Any] | None = None,
) -> RuntimeSelection:
    """Choose an arm for a request; the decision is durable when this returns.

    Without arms in the store, or fewer than ``min_arms``, the first default arm serves with
    ``decision_id=None``.

    Raises:
        LookupError: there is neither an arm nor a default.
        StoreError: the decision could not be logged.
    """
    caller = caller_of(system)
    if caller is not None:
        chosen = asyncio.run(
            caller.select(user_id=user_id, agent_type=agent_type, context=context)
        )
        return _shown_caller(*chosen)
    from tasks.serving.operations import performed  # noqa: PLC0415 - brings SQLite

    home = home_of(system)
    operation = home.selecting(system, user_id=user_id, agent_type=agent_type, context=context)
    return _shown(performed(home.store, operation))


def runtime_update_sync(
    system: str,
    *,
    user_id: str,
    decision_id: str | None,
    reward: float | None = None,
    signals: Mapping[str, float] | None = None,
    agent_type: str | None = None,
    engagement_score: float | None = None,
    grading_score: float | None = None,
    metadata: Mapping[str, Any] | None = None,
    cost: float | None = None,
) -> dict[str, Any]:
    """Take in what came of a decision; durable when this returns.

    The reward is that of ``signals`` if metrics are configured, else ``reward``, else
    ``engagement_score``. Without any of them nothing is learned: no reward is no reward. Signals,
    scores, ``metadata`` (JSON) and ``cost``, in the system's own unit, are stored beside the reward;
    of costs the mean of each arm is kept.

    Returns:
        ``success``, ``status`` (``ok``, ``late``, ``duplicate``, ``conflict``, ``unknown``,
        ``none``), ``reward``, ``engagement_score``, ``grading_score``, ``computed_update``.

    Raises:
        ValueError: the reward or a signal is not in [0, 1], or the cost below 0; nothing is stored.
        StoreError: it could not be stored.
    """
    caller = caller_of(system)
    if caller is not None:
        _refuse_cost(cost)
        return asyncio.run(
            caller.update(
                user_id=user_id,
                decision_id=decision_id,
                reward=reward,
                signals=signals,
                agent_type=agent_type,
                engagement_score=engagement_score,
                grading_score=grading_score,
                metadata=metadata,
            )
        )
    from convergence.runtime.systems import Reward, shown_update  # noqa: PLC0415 - NumPy
    from tasks.serving.operations import performed  # noqa: PLC0415 - brings SQLite

    home = home_of(system)
    told = Reward(
        user_id=user_id,
        decision_id=decision_id or "",
        reward=reward,
        signals=signals,
        engagement_score=engagement_score,
        grading_score=grading_score,
        metadata=metadata,
        cost=cost,
    )
    value = home.reward(system, told)
    if value is None or decision_id is None:  # nothing was told, or a default served
        return shown_update(told, value, None)
    return shown_update(told, value, performed(home.store, home.updating(system, told)))


def runtime_get_decision_sync(
    system: str, *, user_id: str, decision_id: str
) -> dict[str, Any] | None:
    """Return a decision and its reward, ``None`` if this user has none of that id."""
    caller = caller_of(system)
    if caller is not None:
        found: dict[str, Any] | None = asyncio.run(
            caller.decision(user_id=user_id, decision_id=decision_id)
        )
        return found
    return home_of(system).decision(system, user_id, decision_id)


def runtime_evidence_sync(system: str, *, agent_type: str | None = None) -> dict[str, Any]:
    """Return what traffic cost so far (``regret``) and what it shows so far (``log_e``, ``winner``).

    It may be looked at as often as one likes: a winner is wrong with probability ``alpha`` at most.

    Raises:
        LookupError: there are no two arms to compare.
    """
    found = home_of(system).bandit(system, agent_type).evidence()
    return {name: getattr(found, name) for name in found.__slots__}


def runtime_quality_sync(system: str, *, agent_type: str | None = None) -> list[dict[str, Any]]:
    """Return which arms hold ``least_quality``, with their intervals and costs (mode ``quality``).

    Each arm on offer: ``arm_id``, ``standing`` (``holds``, ``fails``, ``undecided``), ``low``,
    ``high``, ``cost``, ``serves``. It may be looked at as often as one likes: with probability
    ``1 - alpha`` no arm is ever said to hold what it does not.

    Raises:
        LookupError: nothing is on offer, or the system serves by another mode.
    """
    return [asdict(arm) for arm in home_of(system).bandit(system, agent_type).quality()]


async def configure_runtime(
    system: str,
    *,
    config: RuntimeConfig | Mapping[str, Any] | None = None,
    storage: "str | Path | RuntimeStorage | None" = None,
) -> RuntimeConfig:
    """Do as ``configure_runtime_sync``, in a thread."""
    return await asyncio.to_thread(configure_runtime_sync, system, config=config, storage=storage)


async def runtime_select(
    system: str,
    *,
    user_id: str,
    agent_type: str | None = None,
    context: Mapping[str, Any] | None = None,
) -> RuntimeSelection:
    """Do as ``runtime_select_sync``, in a thread; a storage of your own is awaited here."""
    caller = caller_of(system)
    if caller is not None:
        found = await caller.select(user_id=user_id, agent_type=agent_type, context=context)
        return _shown_caller(*found)
    return await asyncio.to_thread(
        runtime_select_sync, system, user_id=user_id, agent_type=agent_type, context=context
    )


async def runtime_update(
    system: str,
    *,
    user_id: str,
    decision_id: str | None,
    reward: float | None = None,
    signals: Mapping[str, float] | None = None,
    agent_type: str | None = None,
    engagement_score: float | None = None,
    grading_score: float | None = None,
    metadata: Mapping[str, Any] | None = None,
    cost: float | None = None,
) -> dict[str, Any]:
    """Do as ``runtime_update_sync``, in a thread; a storage of your own is awaited here."""
    caller = caller_of(system)
    if caller is not None:
        _refuse_cost(cost)
        return await caller.update(
            user_id=user_id,
            decision_id=decision_id,
            reward=reward,
            signals=signals,
            agent_type=agent_type,
            engagement_score=engagement_score,
            grading_score=grading_score,
            metadata=metadata,
        )
    return await asyncio.to_thread(
        runtime_update_sync,
        system,
        user_id=user_id,
        decision_id=decision_id,
        reward=reward,
        signals=signals,
        agent_type=agent_type,
        engagement_score=engagement_score,
        grading_score=grading_score,
        metadata=metadata,
        cost=cost,
    )


async def runtime_get_decision(
    system: str, *, user_id: str, decision_id: str
) -> dict[str, Any] | None:
    """Do as ``runtime_get_decision_sync``, in a thread; a storage of your own is awaited here."""
    caller = caller_of(system)
    if caller is not None:
        found: dict[str, Any] | None = await caller.decision(
            user_id=user_id, decision_id=decision_id
        )
        return found
    return await asyncio.to_thread(
        runtime_get_decision_sync, system, user_id=user_id, decision_id=decision_id
    )


async def runtime_evidence(system: str, *, agent_type: str | None = None) -> dict[str, Any]:
    """Do as ``runtime_evidence_sync``, in a thread."""
    return await asyncio.to_thread(runtime_evidence_sync, system, agent_type=agent_type)


async def runtime_quality(system: str, *, agent_type: str | None = None) -> list[dict[str, Any]]:
    """Do as ``runtime_quality_sync``, in a thread."""
    return await asyncio.to_thread(runtime_quality_sync, system, agent_type=agent_type)


def opened(path: Path) -> "Systems":
    """Return the systems of a folder, opened once in a process."""
    from convergence.runtime.systems import Systems  # noqa: PLC0415 - brings NumPy and SQLite
    from tasks.store.runtime.runtime_store import RuntimeStore  # noqa: PLC0415 - as above

    root = path.absolute()
    with _mutex:
        if root not in _stores:
            _stores[root] = Systems(RuntimeStore(root))
        return _stores[root]


def home_of(system: str) -> "Systems":
    """Return where a system is served from: the folder it was configured in, or the default.

    Raises:
        ConfigurationError: it is served from a storage of the caller's own.
    """
    if caller_of(system) is not None:
        raise ConfigurationError(
            [
                Problem(
                    key="storage",
                    rule="must be a folder for this: a storage of your own keeps arms and decisions "
                    "alone",
                    value=system,
                    fix="Call `configure_runtime` with the folder of a store.",
                )
            ]
        )
    with _mutex:
        found = _homes.get(system)
    return opened(Path(DEFAULT_STORAGE)) if found is None else found


def _refuse_cost(cost: float | None) -> None:
    if cost is not None:
        raise ValueError(
            "`cost` needs the store of this tool: put it into `metadata` of a storage of your own"
        )


def _shown_caller(
    decision_id: str | None,
    arm: Mapping[str, Any],
    drawn: float | None,
    arms: list[dict[str, Any]],
    metadata: dict[str, Any],
) -> RuntimeSelection:
    return RuntimeSelection(
        decision_id=decision_id,
        arm_id=arm["arm_id"],
        params=arm["params"],
        sampled_value=drawn,
        arms_state=tuple(arms),
        metadata=metadata,
    )


def _shown(found: "Selection | DefaultServed") -> RuntimeSelection:
    from convergence.runtime.systems import DefaultServed, shown_arm  # noqa: PLC0415 - brings NumPy

    if isinstance(found, DefaultServed):
        return RuntimeSelection(
            decision_id=None,
            arm_id=found.arm_id,
            params=found.params,
            sampled_value=None,
            arms_state=(),
            metadata={"fallback": True},
        )
    return RuntimeSelection(
        decision_id=found.decision_id,
        arm_id=found.arm_id,
        params=found.params,
        sampled_value=found.sampled_value,
        arms_state=tuple(shown_arm(arm) for arm in found.arms),
        metadata={
            "propensity": found.propensity,
            "policy_version": found.version,
            "fresh": found.is_fresh,
        },
    )
