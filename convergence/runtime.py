"""The Python interface at run time: ``runtime_select`` and ``runtime_update``.

``configure_runtime`` says what a system offers; ``runtime_select`` chooses an arm for a request and
``runtime_update`` learns from what came of it. Every function has a twin that ends in ``_sync``. What
is acknowledged is on the disk; any number of processes may share the folder.
"""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convergence.runtime_settings import (
    RewardMetric,
    RuntimeArm,
    RuntimeConfig,
    checked_settings,
    reward_of,
)

if TYPE_CHECKING:
    from convergence_core.store.runtime import RuntimeStore
    from tasks.serving import Bandit, Selection

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
    """Every arm on offer: ``arm_id``, ``alpha``, ``beta``, ``mean``, ``n``, ``prior``."""
    metadata: Mapping[str, Any]
    """``propensity``, ``policy_version``, ``fresh``; or ``fallback``."""


@dataclass(frozen=True, slots=True)
class _System:
    config: RuntimeConfig
    store: "RuntimeStore"
    bandits: "dict[str, Bandit]"


_systems: dict[str, _System] = {}
_stores: "dict[Path, RuntimeStore]" = {}
_mutex = threading.Lock()


def configure_runtime_sync(
    system: str,
    *,
    config: RuntimeConfig | Mapping[str, Any] | None = None,
    storage: str | Path | None = None,
) -> RuntimeConfig:
    """Say what a system offers and how it serves; may be called again with other settings.

    Args:
        system: name of the optimized system.
        config: its settings; by default what is in the store serves as it is.
        storage: folder of the store, shared by all processes of this machine; by default
            ``./convergence-data``.

    Raises:
        ConfigurationError: a setting is wrong.
        StoreError: the folder cannot be used.
    """
    settings = checked_settings(system, config)
    store = _store(Path(storage or DEFAULT_STORAGE))
    if settings.default_arms:
        store.offer(
            system,
            settings.agent_type,
            [_offer(arm, settings) for arm in settings.default_arms],
            trust=settings.prior_trust,
        )
    with _mutex:
        _systems[system] = _System(settings, store, {})
    return settings


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
    from tasks.serving import NoArmsError  # noqa: PLC0415 - brings NumPy

    known = _known(system)
    bandit = _bandit(known, agent_type)
    try:
        if known.config.min_arms > 1 and bandit.n_on_offer() < known.config.min_arms:
            return _fallback(known)
        return _shown(bandit.select(user_id, context=context))
    except NoArmsError:
        if not known.config.default_arms:
            raise
        return _fallback(known)


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
    metadata: Mapping[str, Any] | None = None,  # noqa: ARG001 - the original's, kept by callers
) -> dict[str, Any]:
    """Take in what came of a decision; durable when this returns.

    The reward is that of ``signals`` if metrics are configured, else ``reward``, else
    ``engagement_score``. Without any of them nothing is learned: no reward is no reward.

    Returns:
        ``success``, ``status`` (``ok``, ``late``, ``duplicate``, ``conflict``, ``unknown``,
        ``none``), ``reward``, ``engagement_score``, ``grading_score``, ``computed_update``.

    Raises:
        ValueError: the reward or a signal is not in [0, 1]; nothing is stored.
        StoreError: it could not be stored.
    """
    known = _known(system)
    value = reward_of(known.config, reward, signals, engagement_score)
    answer: dict[str, Any] = {
        "success": False,
        "status": "none",
        "reward": value,
        "engagement_score": engagement_score,
        "grading_score": grading_score,
        "computed_update": None,
    }
    if value is None or decision_id is None:
        return answer
    found = known.store.decision(decision_id)
    if found is not None and found.user_id != user_id:
        return {**answer, "status": "unknown"}
    learned = _bandit(known, agent_type).update(decision_id, value)
    answer |= {"success": learned.status in {"ok", "late", "duplicate"}, "status": learned.status}
    if learned.learned:
        answer["computed_update"] = {"alpha": value, "beta": 1.0 - value}
    if learned.alarm is not None:
        answer["alarm"] = learned.alarm
    return answer


def runtime_get_decision_sync(
    system: str, *, user_id: str, decision_id: str
) -> dict[str, Any] | None:
    """Return a decision and its reward, ``None`` if this user has none of that id."""
    found = _known(system).store.decision(decision_id)
    if found is None or found.system != system or found.user_id != user_id:
        return None
    return {
        name: getattr(found, name)
        for name in (
            "decision_id", "agent_type", "arm_id", "params", "version", "propensity", "is_fresh",
            "created_us", "expires_us", "reward", "reward_status",
        )
    }  # fmt: skip


def runtime_evidence_sync(system: str, *, agent_type: str | None = None) -> dict[str, Any]:
    """Return what traffic cost so far (``regret``) and what it shows so far (``log_e``, ``winner``).

    It may be looked at as often as one likes: a winner is wrong with probability ``alpha`` at most.

    Raises:
        LookupError: there are no two arms to compare.
    """
    found = _bandit(_known(system), agent_type).evidence()
    return {name: getattr(found, name) for name in found.__slots__}


async def configure_runtime(
    system: str,
    *,
    config: RuntimeConfig | Mapping[str, Any] | None = None,
    storage: str | Path | None = None,
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
    """Do as ``runtime_select_sync``, in a thread."""
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
) -> dict[str, Any]:
    """Do as ``runtime_update_sync``, in a thread."""
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
    )


async def runtime_get_decision(
    system: str, *, user_id: str, decision_id: str
) -> dict[str, Any] | None:
    """Do as ``runtime_get_decision_sync``, in a thread."""
    return await asyncio.to_thread(
        runtime_get_decision_sync, system, user_id=user_id, decision_id=decision_id
    )


async def runtime_evidence(system: str, *, agent_type: str | None = None) -> dict[str, Any]:
    """Do as ``runtime_evidence_sync``, in a thread."""
    return await asyncio.to_thread(runtime_evidence_sync, system, agent_type=agent_type)


def _store(path: Path) -> "RuntimeStore":
    """Return the store of a folder, opened once in a process."""
    from convergence_core.store.runtime import RuntimeStore  # noqa: PLC0415 - brings SQLite

    root = path.absolute()
    with _mutex:
        if root not in _stores:
            _stores[root] = RuntimeStore(root)
        return _stores[root]


def _known(system: str) -> _System:
    with _mutex:
        found = _systems.get(system)
    if found is None:
        configure_runtime_sync(system)
        return _known(system)
    return found


def _bandit(known: _System, agent_type: str | None) -> "Bandit":
    from tasks.serving import Bandit, ServingSettings  # noqa: PLC0415 - brings NumPy

    name = agent_type or known.config.agent_type
    with _mutex:
        if name not in known.bandits:
            shared = (
                ServingSettings.__dataclass_fields__.keys() & RuntimeConfig.model_fields.keys()
            )
            known.bandits[name] = Bandit(
                known.store,
                known.config.system,
                name,
                settings=ServingSettings(**{key: getattr(known.config, key) for key in shared}),
                seed=known.config.seed,
            )
        return known.bandits[name]


def _offer(arm: RuntimeArm, config: RuntimeConfig) -> Any:
    from convergence_core.bandit.priors import nightly_prior  # noqa: PLC0415 - with the store
    from tasks.serving import offer_of  # noqa: PLC0415 - brings NumPy

    prior = None
    if arm.prior_mean is not None and arm.prior_sd is not None:
        prior = nightly_prior(
            arm.prior_mean,
            arm.prior_sd,
            discount=config.prior_discount,
            most=config.prior_most,
        )
    return offer_of(arm.params, arm.arm_id, prior)


def _fallback(known: _System) -> RuntimeSelection:
    from tasks.serving import NoArmsError, arm_id_of  # noqa: PLC0415 - brings NumPy

    if not known.config.default_arms:
        raise NoArmsError(
            f"`{known.config.system}` has fewer than {known.config.min_arms} arms and no default. "
            "Give `default_arms`, or lower `min_arms`."
        )
    arm = known.config.default_arms[0]
    return RuntimeSelection(
        decision_id=None,
        arm_id=arm.arm_id or arm_id_of(arm.params),
        params=arm.params,
        sampled_value=None,
        arms_state=(),
        metadata={"fallback": True},
    )


def _shown(selection: "Selection") -> RuntimeSelection:
    return RuntimeSelection(
        decision_id=selection.decision_id,
        arm_id=selection.arm_id,
        params=selection.params,
        sampled_value=selection.sampled_value,
        arms_state=tuple(
            {
                "arm_id": arm.arm_id,
                "alpha": arm.alpha,
                "beta": arm.beta,
                "mean": arm.alpha / (arm.alpha + arm.beta),
                "n": arm.n,
                "prior": arm.prior,
            }
            for arm in selection.arms
        ),
        metadata={
            "propensity": selection.propensity,
            "policy_version": selection.version,
            "fresh": selection.is_fresh,
        },
    )
