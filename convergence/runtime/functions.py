"""Python's interface at run time: selections, rewards and arms.

``configure_runtime`` says what a system offers; ``runtime_select`` chooses an arm for a request and
``runtime_update`` learns from its reward. Every function is defined once and offered twice: to be
awaited, and with ``_sync`` at its end for code without a loop. What is acknowledged is on the disk; any
number of processes may share the folder, and they take a change of arms or settings up with their next
request.
"""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pydantic import ValidationError

from convergence.runtime.run_arms import runtime_config
from convergence.types import ConvergenceConfig
from convergence_core.errors import ConfigurationError, NoArmsError, Problem
from tasks.serving.answers import RuntimeSelection, as_dict
from tasks.serving.operations import performed
from tasks.serving.propose_arms import means_of, proposed_arms, rng_of
from tasks.serving.settings import RewardMetric, RuntimeArm, RuntimeConfig
from tasks.serving.systems import Systems
from tasks.store.runtime.rows import Reward
from tasks.store.runtime.runtime_store import RuntimeStore

__all__ = [
    "RewardMetric",
    "RuntimeArm",
    "RuntimeConfig",
    "RuntimeSelection",
    "configure_runtime",
    "configure_runtime_sync",
    "runtime_arms",
    "runtime_arms_sync",
    "runtime_evidence",
    "runtime_evidence_sync",
    "runtime_evolve_arms",
    "runtime_evolve_arms_sync",
    "runtime_get_decision",
    "runtime_get_decision_sync",
    "runtime_offer_arms",
    "runtime_offer_arms_sync",
    "runtime_quality",
    "runtime_quality_sync",
    "runtime_reset_priors",
    "runtime_reset_priors_sync",
    "runtime_retire_arm",
    "runtime_retire_arm_sync",
    "runtime_select",
    "runtime_select_sync",
    "runtime_update",
    "runtime_update_sync",
]

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_STORAGE = "./convergence-data"
_systems: dict[str, Systems] = {}
"""System → the store that it was configured in."""
_stores: dict[Path, Systems] = {}
_mutex = threading.Lock()


def _twins(
    function: Callable[P, T],
) -> tuple[Callable[P, Coroutine[Any, Any, T]], Callable[P, T]]:
    """Return a function to be awaited, its blocking work done in a thread, and one that blocks."""

    @functools.wraps(function)
    async def awaited(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(function, *args, **kwargs)

    @functools.wraps(function)
    def blocking(*args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    for twin, end in ((awaited, ""), (blocking, "_sync")):
        twin.__name__ = twin.__qualname__ = f"{function.__name__.removeprefix('_')}{end}"
    return awaited, blocking


def _checked_settings(
    system: str, config: RuntimeConfig | Mapping[str, Any] | None
) -> RuntimeConfig:
    """Return settings as given, checked.

    Raises:
        ConfigurationError: a setting is wrong.
    """
    if isinstance(config, RuntimeConfig):
        values: dict[str, Any] = config.model_dump()
    else:
        values = dict(config or {})
    if values.setdefault("system", system) != system:
        problem = Problem(
            key="system",
            rule="must be the name that is configured",
            value=str(values["system"]),
            fix=f"Write `{system}`, or leave it out.",
        )
        raise ConfigurationError([problem])
    try:
        return RuntimeConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(
            [
                Problem(
                    key=".".join(str(part) for part in found["loc"]),
                    rule=found["msg"][:1].lower() + found["msg"][1:],
                    value=repr(found["input"])[:80],
                    fix=f"Known settings: {', '.join(sorted(RuntimeConfig.model_fields))}.",
                )
                for found in error.errors()
            ]
        ) from error


def _configure_runtime(
    system: str,
    *,
    config: RuntimeConfig | ConvergenceConfig | Mapping[str, Any] | None = None,
    storage: str | Path | None = None,
) -> RuntimeConfig:
    """Say what a system offers and how it serves; may be called again with other settings.

    Settings are kept in the store, and every process that serves the system follows.

    Args:
        system: name of the optimized system.
        config: its settings; by default what is in the store serves as it is. A ``ConvergenceConfig``
            offers the best candidates of its latest run, or before there is one points of its space.
        storage: folder of the store, shared by all processes of this machine; by default
            ``./convergence-data``.

    Raises:
        ConfigurationError: a setting is wrong.
        ArmChangedError: an arm of that name has other parameters.
        StoreError: the folder cannot be used.
    """
    if isinstance(config, ConvergenceConfig):
        storage = storage or (None if config.storage is None else config.storage.path)
        config = runtime_config(system, config, Path(storage or DEFAULT_STORAGE))
    opened = _opened(Path(storage or DEFAULT_STORAGE))
    if config is None:
        settings = opened.config(system)
    else:
        settings = _checked_settings(system, config)
        opened.configure(settings)
    with _mutex:
        _systems[system] = opened
    return settings


def _runtime_select(
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
    systems = systems_of(system)
    selection = systems.selection(system, user_id=user_id, agent_type=agent_type, context=context)
    return performed(systems.store, selection)


def _runtime_update(
    system: str,
    *,
    decision_id: str | None,
    user_id: str | None = None,
    reward: float | None = None,
    signals: Mapping[str, float] | None = None,
    engagement_score: float | None = None,
    grading_score: float | None = None,
    metadata: Mapping[str, Any] | None = None,
    cost: float | None = None,
) -> dict[str, Any]:
    """Take in the reward of a decision; durable when this returns.

    The reward is that of ``signals`` if metrics are configured, else ``reward``, else
    ``engagement_score``. Without any of them nothing is learned: no reward is no reward. Signals,
    scores, ``metadata`` (JSON) and ``cost``, in the system's own unit, are stored beside the reward;
    of costs the mean of each arm is kept. ``user_id`` may be left out: the decision knows its user.

    Returns:
        ``success``, ``status`` (``ok``, ``late``, ``duplicate``, ``conflict``, ``unknown``,
        ``none``), ``reward``, ``engagement_score``, ``grading_score``, ``computed_update``,
        ``alarm``.

    Raises:
        ValueError: the reward or a signal is not in [0, 1], or the cost below 0; nothing is stored.
        WrongUserError: ``user_id`` is not the user that the decision served; nothing is stored.
        StoreError: it could not be stored.
    """
    given = Reward(
        user_id=user_id, decision_id=decision_id, reward=reward, signals=signals,
        engagement_score=engagement_score, grading_score=grading_score, metadata=metadata,
        cost=cost,
    )  # fmt: skip
    systems = systems_of(system)
    return as_dict(performed(systems.store, systems.update(system, given)))


def _runtime_get_decision(system: str, *, user_id: str, decision_id: str) -> dict[str, Any] | None:
    """Return a decision and its reward, ``None`` if this user has none of that id."""
    found = systems_of(system).decision(system, user_id, decision_id)
    return None if found is None else as_dict(found)


def _runtime_evidence(system: str, *, agent_type: str | None = None) -> dict[str, Any]:
    """Return what traffic cost so far (``regret``) and what it shows so far (``log_e``, ``winner``).

    It may be looked at as often as one likes: a winner is wrong with probability ``alpha`` at most.

    Raises:
        LookupError: there are no two arms to compare.
    """
    return as_dict(systems_of(system).bandit(system, agent_type).evidence())


def _runtime_quality(system: str, *, agent_type: str | None = None) -> list[dict[str, Any]]:
    """Return which arms hold ``least_quality``, with their intervals and costs (mode ``quality``).

    Each arm on offer: ``arm_id``, ``standing`` (``holds``, ``fails``, ``undecided``), ``low``,
    ``high``, ``cost``, ``serves``. It may be looked at as often as one likes: with probability
    ``1 - alpha`` no arm is ever said to hold what it does not.

    Raises:
        LookupError: nothing is on offer, or the system serves by another mode.
    """
    return [asdict(arm) for arm in systems_of(system).bandit(system, agent_type).quality()]


def _runtime_arms(system: str, *, agent_type: str | None = None) -> list[dict[str, Any]]:
    """Return all arms with their posteriors, those retired included.

    Raises:
        LookupError: nothing was ever offered there.
    """
    return [as_dict(arm) for arm in systems_of(system).arms(system, agent_type)]


def _runtime_offer_arms(
    system: str,
    arms: Sequence[RuntimeArm | Mapping[str, Any]],
    *,
    agent_type: str | None = None,
) -> list[str]:
    """Put arms on offer, or back on offer; return their names.

    Raises:
        ArmChangedError: an arm of that name has other parameters; nothing is offered.
    """
    checked = [RuntimeArm.model_validate(arm) for arm in arms]
    return systems_of(system).offer(system, checked, agent_type)


def _runtime_retire_arm(system: str, arm_id: str, *, agent_type: str | None = None) -> bool:
    """Take an arm off offer, its decisions and rewards kept; return whether it was on.

    Raises:
        LookupError: no arm of that name was ever offered there.
    """
    return systems_of(system).retire(system, arm_id, agent_type)


def _runtime_reset_priors(system: str, *, agent_type: str | None = None) -> None:
    """Take the nightly priors out of all arms; what rewards taught stays.

    Raises:
        LookupError: nothing was ever offered there.
    """
    systems_of(system).reset_priors(system, agent_type)


def _runtime_evolve_arms(
    system: str,
    *,
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
        agent_type: its kind of agent; by default that of its settings.
        top_n: arms that are parents, those of the highest posterior means.
        search_space: as in ``optimization.yaml``; by default what the arms on offer span.
        evolution_config: as ``optimization.evolution`` there: ``mutation_rate``,
            ``crossover_rate``, ``selection``; ``population_size`` is the number of
            new arms, by default ``top_n``.
        storage: folder of the store; by default that of ``configure_runtime``.

    Raises:
        ConfigurationError: the space or the evolution is wrong, or no arm lies in the space.
        LookupError: nothing is on offer there.
    """
    if top_n < 1:
        raise ValueError(f"top_n must be 1 or more, but got {top_n}")
    systems = systems_of(system) if storage is None else _opened(Path(storage))
    group = systems.known_group(system, agent_type)
    bandit = systems.bandit(system, agent_type)
    arms = systems.store.arms(group.group_id)
    if not bandit.n_on_offer():
        raise NoArmsError(f"all arms of `{system}` are retired")
    means = means_of(group.kind, arms, bandit.settings)
    return proposed_arms(
        arms,
        means,
        rng_of(systems.config(system).seed),
        top_n=top_n,
        search_space=search_space,
        evolution=evolution_config,
    )


configure_runtime, configure_runtime_sync = _twins(_configure_runtime)
runtime_select, runtime_select_sync = _twins(_runtime_select)
runtime_update, runtime_update_sync = _twins(_runtime_update)
runtime_get_decision, runtime_get_decision_sync = _twins(_runtime_get_decision)
runtime_evidence, runtime_evidence_sync = _twins(_runtime_evidence)
runtime_quality, runtime_quality_sync = _twins(_runtime_quality)
runtime_arms, runtime_arms_sync = _twins(_runtime_arms)
runtime_offer_arms, runtime_offer_arms_sync = _twins(_runtime_offer_arms)
runtime_retire_arm, runtime_retire_arm_sync = _twins(_runtime_retire_arm)
runtime_reset_priors, runtime_reset_priors_sync = _twins(_runtime_reset_priors)
runtime_evolve_arms, runtime_evolve_arms_sync = _twins(_runtime_evolve_arms)


def systems_of(system: str) -> Systems:
    """Return the store that a system is served from: where it was configured, or the default."""
    with _mutex:
        found = _systems.get(system)
    return _opened(Path(DEFAULT_STORAGE)) if found is None else found


def _opened(path: Path) -> Systems:
    """Return the systems of a folder, opened once in a process."""
    root = path.absolute()
    with _mutex:
        if root not in _stores:
            _stores[root] = Systems(RuntimeStore(root))
        return _stores[root]
