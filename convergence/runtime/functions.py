"""Python interface at run time: selections, rewards and arms.

``configure_runtime`` sets the arms of a system, ``runtime_select`` chooses an arm for a request,
and ``runtime_update`` learns from its reward. Each function has an awaitable form and a blocking
one with the suffix ``_sync``. A call returns after its effect is on disk. Any number of processes
may share the folder; each uses changed arms and settings from its next request.
"""

import asyncio
import functools
import json
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, cast
from uuid import UUID

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from convergence.types import ConvergenceConfig
from convergence_core.config.secrecy import shown
from convergence_core.errors import ConfigurationError, NoArmsError, Problem
from convergence_core.field_types import Name
from convergence_core.records import canonical_json
from tasks.inputs.loader import load_mapping
from tasks.json_values import NotJsonError, to_json
from tasks.serving.answers import RuntimeSelection, as_dict
from tasks.serving.operations import performed
from tasks.serving.propose_arms import proposed_arms
from tasks.serving.settings import RewardMetric, RuntimeArm, RuntimeConfig
from tasks.serving.systems import Systems
from tasks.store.layout import store_root
from tasks.store.runtime.rows import Reward
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.parquet_store import ParquetStore

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
    "runtime_retire_arm",
    "runtime_retire_arm_sync",
    "runtime_select",
    "runtime_select_sync",
    "runtime_update",
    "runtime_update_sync",
]

P = ParamSpec("P")
T = TypeVar("T")
UserId: TypeAlias = str | int | UUID

DEFAULT_STORAGE = "./convergence-data"
_systems: dict[str, Systems] = {}
"""System → open store, set by ``configure_runtime``."""
_stores: dict[Path, Systems] = {}
_mutex = threading.Lock()
_NAME: Final = TypeAdapter[str](Name)


def _identifier(value: object, name: str = "user_id") -> str:
    """Return the stored form of a user's or decision's id; an integer or UUID becomes its text.

    Raises:
        ValueError: it is neither text, nor an integer, nor a UUID, or HTTP does not accept it.
    """
    if isinstance(value, bool) or not isinstance(value, str | Integral | UUID):
        rule = "must be a string, an integer or a UUID"
        raise ValueError(f"`{name}` {rule}, but got {shown(value)}")
    try:
        return _NAME.validate_python(str(value))
    except ValidationError:
        rule = "must have 1 to 200 characters of Unicode, none of them a control character"
        raise ValueError(f"`{name}` {rule}, but got {shown(value)}") from None


def _twins(
    function: Callable[P, T],
) -> tuple[Callable[P, Coroutine[Any, Any, T]], Callable[P, T]]:
    """Return a function's awaitable form, which uses a thread, and its blocking form."""

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
    """Validate settings.

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
        settings = RuntimeConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError([_problem(defect) for defect in error.errors()]) from error
    if settings.guardrails and settings.kind == "linear":
        raise ConfigurationError.of(
            "guardrails",
            "need arms of `kind: beta`, since linear arms have no ramp",
            "Remove guardrails, or configure a system with `kind: beta`.",
            value=", ".join(settings.guardrails),
        )
    return settings


def _problem(defect: ErrorDetails) -> Problem:
    """Return one problem of the settings."""
    path, kind = defect["loc"], defect["type"]
    parts: dict[str, type[BaseModel]] = {
        "default_arms": RuntimeArm,
        "reward_metrics": RewardMetric,
    }
    model = parts.get(str(path[0]), RuntimeConfig) if len(path) > 1 else RuntimeConfig
    key = ".".join(str(part) for part in path)
    if kind in ("extra_forbidden", "missing"):
        rule = "is not a setting" if kind == "extra_forbidden" else "must be given"
        return Problem(key=key, rule=rule, fix=f"Known settings: {', '.join(model.model_fields)}.")
    rule = defect["msg"][:1].lower() + defect["msg"][1:].replace("nput should", "nput must")
    fix = "Correct it, or leave it out for its default."
    return Problem(
        key=key, rule=rule.removeprefix("input "), value=shown(defect["input"]), fix=fix
    )


def _configure_runtime(
    system: str,
    *,
    config: RuntimeConfig | ConvergenceConfig | Mapping[str, Any] | None = None,
    storage: str | Path | None = None,
) -> RuntimeConfig:
    """Set a system's arms and settings; call again to change them.

    The store keeps the settings for every process that serves the system.

    Args:
        system: name of the optimized system.
        config: its settings; by default those in the store. For a ``ConvergenceConfig``, the arms
            are the best candidates of the latest run, or points of the search space before the
            first run. The arms of an earlier such call retire, unless they are champion or on a
            ramp.
        storage: folder of the store, shared by all processes of this machine; by default
            ``./convergence-data``.

    Returns:
        The validated settings.

    Raises:
        ConfigurationError: a setting is wrong.
        ArmChangedError: an arm of that name exists with other parameters.
        StoreError: the folder cannot be used.

    Example:
        >>> arms = [{"params": {"temperature": t}} for t in (0.2, 0.8)]
        >>> configure_runtime_sync("my_api", config={"default_arms": arms})
    """
    is_derived = isinstance(config, ConvergenceConfig)
    if isinstance(config, ConvergenceConfig):
        storage = storage or (None if config.storage is None else config.storage.path)
        config = runtime_config(system, config, Path(storage or DEFAULT_STORAGE))
    opened = _opened(Path(storage or DEFAULT_STORAGE))
    if config is None:
        settings = opened.config(system)
    else:
        settings = _checked_settings(system, config)
        opened.configure(settings, replaces=is_derived)
    with _mutex:
        _systems[system] = opened
    return settings


def _plain(**values: Any) -> dict[str, Any]:
    """Return values as JSON: NumPy numbers and decimals become plain ones.

    Raises:
        ValueError: a value has no JSON form; the message names it.
    """
    try:
        return cast("dict[str, Any]", to_json(values))
    except NotJsonError as error:
        raise ValueError(f"arguments must be JSON values, but {error}") from None


def _runtime_select(
    system: str,
    *,
    user_id: UserId,
    agent_type: str | None = None,
    context: Mapping[str, Any] | None = None,
) -> RuntimeSelection:
    """Choose an arm for a request and store the decision before returning.

    If the store holds no active arm, the first default arm that was not retired serves with
    ``decision_id=None``.

    Args:
        system: name of the optimized system.
        user_id: user whom the request serves; an integer or a UUID counts as its text.
        agent_type: kind of agent; by default the settings' kind.
        context: features of the request, for linear arms and sticky sessions.

    Returns:
        The arm's parameters, and the decision's id for ``runtime_update``.

    Raises:
        LookupError: the system has neither an active arm nor a default that was not retired.
        ValueError: the context has no JSON form, or the user's id is invalid.
        StoreError: the decision could not be stored.

    Example:
        >>> selection = runtime_select_sync("my_api", user_id="u1")
        >>> selection.params
        {"temperature": 0.2}
    """
    systems = systems_of(system)
    context = _plain(context=context)["context"]
    selection = systems.selection(
        system, user_id=_identifier(user_id), agent_type=agent_type, context=context
    )
    return performed(systems.store, selection)


def _runtime_update(
    system: str,
    *,
    decision_id: str | UUID | None,
    user_id: UserId | None = None,
    reward: float | None = None,
    signals: Mapping[str, float] | None = None,
    engagement_score: float | None = None,
    grading_score: float | None = None,
    metadata: Mapping[str, Any] | None = None,
    cost: float | None = None,
) -> dict[str, Any]:
    """Store the reward of a decision and learn from it.

    The reward comes from ``signals`` if the system has reward metrics, else from ``reward``, else
    from ``engagement_score``. Without any of them the system learns nothing. The call stores
    signals, scores, ``metadata`` (JSON) and ``cost`` (in the system's unit) with the reward, and
    keeps the mean cost of each arm. ``user_id`` is optional, because the decision knows its user.

    Returns:
        ``success``, ``status`` (``ok``, ``late``, ``duplicate``, ``conflict``, ``unknown``,
        ``none``), ``reward``, ``engagement_score``, ``grading_score``, ``computed_update``,
        ``alarm``.

    Raises:
        ValueError: the reward or a signal is no number or outside [0, 1], the cost is negative, or
            the metadata have no JSON form; stores nothing.
        WrongUserError: the decision served another user; stores nothing.
        StoreError: the reward could not be stored.

    Example:
        >>> outcome = runtime_update_sync(
        ...     "my_api", decision_id=selection.decision_id, reward=0.8
        ... )
        >>> outcome["status"]
        "ok"
    """
    plain = _plain(
        reward=reward, signals=signals, engagement_score=engagement_score,
        grading_score=grading_score, metadata=metadata, cost=cost,
    )  # fmt: skip
    numbers = {name: x for name, x in plain.items() if name not in ("signals", "metadata")}
    for name, number in (numbers | (plain["signals"] or {})).items():
        is_truth = name == "cost" and isinstance(number, bool)  # a reward may be a boolean
        if is_truth or not isinstance(number, int | float | None):
            raise ValueError(f"`{name}` must be a number, but got {shown(number)}")
        if number is not None and abs(number) > sys.float_info.max:
            raise ValueError(f"`{name}` must be a finite number, but got {shown(number)}")
    numbers = {name: None if x is None else float(x) for name, x in numbers.items()}
    user = None if user_id is None else _identifier(user_id)
    decision = None if decision_id is None else _identifier(decision_id, "decision_id")
    given = Reward(user_id=user, decision_id=decision, **plain | numbers)
    systems = systems_of(system)
    return as_dict(performed(systems.store, systems.update(system, given)))


def _runtime_get_decision(
    system: str, *, user_id: UserId, decision_id: str | UUID
) -> dict[str, Any] | None:
    """Return a decision with its reward, or ``None`` if this user has no decision with that id.

    Example:
        >>> runtime_get_decision_sync("my_api", user_id="u1", decision_id=selection.decision_id)
    """
    user, name = _identifier(user_id), _identifier(decision_id, "decision_id")
    decision = systems_of(system).decision(system, user, name)
    return None if decision is None else as_dict(decision)


def _runtime_evidence(system: str, *, agent_type: str | None = None) -> dict[str, Any]:
    """Return the regret so far and the evidence for a winner.

    You may check at any time: the winner is wrong with probability at most ``alpha``.

    Returns:
        ``regret`` in rewards, ``log_e`` (evidence, nats), ``winner`` (``None`` while undecided)
        and more.

    Raises:
        LookupError: the system has fewer than two arms.

    Example:
        >>> runtime_evidence_sync("my_api")["winner"]
    """
    return as_dict(systems_of(system).bandit(system, agent_type).evidence())


def _runtime_arms(system: str, *, agent_type: str | None = None) -> list[dict[str, Any]]:
    """Return all arms, including retired ones, with their posteriors.

    Returns:
        For each arm: ``arm_id``, ``params``, ``alpha``, ``beta``, ``mean`` (of the reward, in
        [0, 1]), ``n`` (rewards), ``cost``, ``retired`` and more.

    Raises:
        LookupError: the system never offered an arm.

    Example:
        >>> {arm["arm_id"]: arm["mean"] for arm in runtime_arms_sync("my_api")}
    """
    return [as_dict(arm) for arm in systems_of(system).arms(system, agent_type)]


def _runtime_offer_arms(
    system: str,
    arms: Sequence[RuntimeArm | Mapping[str, Any]],
    *,
    agent_type: str | None = None,
) -> list[str]:
    """Activate new or retired arms and return their names.

    Raises:
        ArmChangedError: an arm of that name exists with other parameters; activates none.

    Example:
        >>> runtime_offer_arms_sync("my_api", [{"arm_id": "cool", "params": {"temperature": 0.1}}])
        ["cool"]
    """
    checked = [RuntimeArm.model_validate(arm) for arm in arms]
    return systems_of(system).offer(system, checked, agent_type)


def _runtime_retire_arm(system: str, arm_id: str, *, agent_type: str | None = None) -> bool:
    """Retire an arm, keep its data, and return whether it was active.

    Raises:
        LookupError: the system never offered an arm of that name.

    Example:
        >>> runtime_retire_arm_sync("my_api", "cool")
        True
    """
    return systems_of(system).retire(system, arm_id, agent_type)


def _runtime_evolve_arms(
    system: str,
    *,
    agent_type: str | None = None,
    top_n: int = 3,
    search_space: Mapping[str, Any] | None = None,
    evolution_config: Mapping[str, Any] | None = None,
    storage: str | Path | None = None,
) -> list[RuntimeArm]:
    """Breed new arms from the best ones and return them without activating them.

    Review them, then pass them to ``runtime_offer_arms``. No returned arm equals an existing one,
    active or retired.

    Args:
        system: name of the optimized system.
        agent_type: kind of agent; by default the settings' kind.
        top_n: number of parents, chosen by highest posterior mean; 1 or more.
        search_space: as in ``optimization.yaml``; by default the range of the active arms.
        evolution_config: as ``optimization.evolution``: ``mutation_rate``, ``crossover_rate``,
            ``selection``; ``population_size`` is the number of new arms, by default ``top_n``.
        storage: folder of the store; by default the one of ``configure_runtime``.

    Raises:
        ConfigurationError: the space or the evolution is wrong, or no arm lies in the space.
        LookupError: no arm is active.

    Example:
        >>> arms = runtime_evolve_arms_sync("my_api", top_n=2)
        >>> runtime_offer_arms_sync("my_api", arms)
    """
    if top_n < 1:
        raise ValueError(f"top_n must be 1 or more, but got {top_n}")
    systems = systems_of(system) if storage is None else _opened(Path(storage))
    group = systems.known_group(system, agent_type)
    arms = systems.store.arms(group.group_id)
    if all(arm.is_retired for arm in arms):
        raise NoArmsError(f"all arms of `{system}` are retired")
    return proposed_arms(
        arms,
        np.random.default_rng(systems.config(system).seed),
        top_n=top_n,
        search_space=search_space,
        evolution=evolution_config,
    )


configure_runtime, configure_runtime_sync = _twins(_configure_runtime)
runtime_select, runtime_select_sync = _twins(_runtime_select)
runtime_update, runtime_update_sync = _twins(_runtime_update)
runtime_get_decision, runtime_get_decision_sync = _twins(_runtime_get_decision)
runtime_evidence, runtime_evidence_sync = _twins(_runtime_evidence)
runtime_arms, runtime_arms_sync = _twins(_runtime_arms)
runtime_offer_arms, runtime_offer_arms_sync = _twins(_runtime_offer_arms)
runtime_retire_arm, runtime_retire_arm_sync = _twins(_runtime_retire_arm)
runtime_evolve_arms, runtime_evolve_arms_sync = _twins(_runtime_evolve_arms)


def systems_of(system: str) -> Systems:
    """Return the systems of a store: the configured one, or the default."""
    with _mutex:
        systems = _systems.get(system)
    return _opened(Path(DEFAULT_STORAGE)) if systems is None else systems


def _opened(path: Path) -> Systems:
    """Return the systems of a folder; a process opens each folder once."""
    root = path.absolute()
    with _mutex:
        if root not in _stores:
            _stores[root] = Systems(RuntimeStore(root))
        return _stores[root]


N_ARMS: Final = 4
"""Number of arms derived from an optimization."""


def runtime_config(system: str, config: ConvergenceConfig, folder: Path) -> RuntimeConfig:
    """Return settings whose arms come from an optimization.

    Args:
        system: name of the system at run time.
        config: configuration of the optimization, run or not.
        folder: folder of the store that holds its runs.

    Raises:
        ConfigurationError: the configuration is wrong.
        StoreError: the store cannot be read.
    """
    points = _of_runs(config.api.name, folder) or _of_space(config)
    return RuntimeConfig(
        system=system, default_arms=tuple(RuntimeArm(params=point) for point in points)
    )


def _of_runs(name: str, folder: Path) -> list[dict[str, Any]]:
    """Return the best candidates of the latest finished run; empty if there is none."""
    if not store_root(folder).is_dir():
        return []
    store = ParquetStore(folder)
    finished = [run for run in store.runs(name) if run.status == "done"]
    if not finished:
        return []
    rows = store.rows(
        "SELECT params_json FROM leaderboard WHERE run_id = $run AND rank <= $n ORDER BY rank",
        {"run": finished[0].run_id, "n": N_ARMS},
    )
    return [json.loads(row["params_json"]) for row in rows]


def _of_space(config: ConvergenceConfig) -> list[dict[str, Any]]:
    """Return distinct points of the search space, always the same for a space."""
    mapping = config.to_mapping()
    mapping["evaluation"]["test_cases"] = {"inline": [{"input": {}}]}
    space = load_mapping(mapping, Path(), allow_callable=True).space
    rng = np.random.default_rng(0)
    default = space.baseline()
    points = [] if default is None else [dict(default)]
    points += [dict(space.sample(rng)) for _ in range(8 * N_ARMS)]
    different = {canonical_json(point): point for point in reversed(points)}
    return [*reversed(different.values())][:N_ARMS]
