"""Bandit on a storage of the caller's own.

Arms, decisions and rewards are wherever the caller keeps them, per user and kind of agent. This module
reads the arms, draws one by Thompson sampling over their Beta posteriors, and says what a reward adds to
which. What is durable, and what happens to two updates at once, is the storage's to say; drift,
evidence, verdicts and constraints need the store of this tool.
"""

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from convergence_core.bandit.arms import BetaArms, checked_reward
from convergence_core.bandit.policy import Policy
from convergence_core.errors import ConfigurationError, NoArmsError, Problem, WrongUserError
from convergence_core.records import Json
from tasks.serving.answers import RuntimeSelection, as_dict
from tasks.serving.offers import arm_id_of
from tasks.serving.rewards import Reward
from tasks.serving.settings import RuntimeArm, RuntimeConfig
from tasks.store.runtime.rows import StoredArm

REMEMBERED = 100_000
"""Decisions of this process whose user is known without the storage."""
SERVED = ("system", "agent_type", "default_arms", "min_arms", "reward_metrics", "floor", "seed")
"""Settings that hold with a storage of the caller's own."""


@runtime_checkable
class RuntimeStorage(Protocol):
    """Storage of the caller's own. Every argument is given by its name."""

    async def get_arms(self, *, user_id: str, agent_type: str) -> Sequence[Any]:
        """Return the arms: mappings or objects with ``arm_id``, ``params``, ``alpha`` and ``beta``."""
        ...

    async def initialize_arms(
        self, *, user_id: str, agent_type: str, arms: Sequence[Mapping[str, Any]]
    ) -> Any:
        """Keep the first arms of a user: ``arm_id``, ``params``, ``alpha`` and ``beta`` of each."""
        ...

    async def create_decision(
        self,
        *,
        user_id: str,
        agent_type: str,
        arm_pulled: str,
        strategy_params: Mapping[str, Any],
        arms_snapshot: Sequence[Mapping[str, Any]],
        metadata: Mapping[str, Any] | None = None,
    ) -> Any:
        """Keep a decision; return its id, or what has it as ``decision_id`` or ``id``."""
        ...

    async def update_performance(
        self,
        *,
        user_id: str,
        agent_type: str,
        decision_id: str,
        reward: float,
        engagement: float | None = None,
        grading: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        computed_update: Mapping[str, Any] | None = None,
    ) -> Any:
        """Keep a reward and add ``computed_update`` to its arm; it may be left out of the signature."""
        ...

    async def get_decision(self, *, user_id: str, decision_id: str) -> Any:
        """Return a decision, ``None`` if there is none; a ``reward`` in it: it was rewarded."""
        ...


class CustomStorageBandit:
    """Bandit of one system on a storage of the caller's own. Thread-safe as far as the storage is."""

    def __init__(self, config: RuntimeConfig, storage: object) -> None:
        """Serve by these settings.

        Raises:
            ConfigurationError: a setting needs the store of this tool, or the storage lacks a method.
        """
        if not isinstance(storage, RuntimeStorage):
            raise ConfigurationError.of(
                "storage",
                "must be a folder, or have get_arms, initialize_arms, create_decision, "
                "update_performance and get_decision",
                "See convergence.runtime.custom_storage.RuntimeStorage.",
                value=type(storage).__name__,
            )
        problems = _unsupported(config)
        if problems:
            raise ConfigurationError(problems)
        self.config = config
        self._storage = storage
        self._rng = np.random.default_rng(config.seed)
        self._mutex = threading.Lock()
        self._users: dict[str, str] = {}
        """Decision → its user, of the latest ``REMEMBERED`` decisions."""
        parameters = inspect.signature(storage.update_performance).parameters
        self._takes_update = "computed_update" in parameters or any(
            one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()
        )

    async def select(
        self, *, user_id: str, agent_type: str | None, context: Mapping[str, Any] | None
    ) -> RuntimeSelection:
        """Choose an arm; see ``runtime_select``.

        Raises:
            NoArmsError: there are too few arms and no default.
        """
        kind = agent_type or self.config.agent_type
        arms = await self._arms(user_id, kind)
        if not arms and self.config.default_arms:
            first = [
                {"arm_id": _name(arm), "params": dict(arm.params), "alpha": 1.0, "beta": 1.0}
                for arm in self.config.default_arms
            ]
            await self._storage.initialize_arms(user_id=user_id, agent_type=kind, arms=first)
            arms = await self._arms(user_id, kind)
        if len(arms) < self.config.min_arms:
            if not self.config.default_arms:
                raise NoArmsError(
                    f"`{self.config.system}` has fewer than {self.config.min_arms} arms and no "
                    "default. Give `default_arms`, or lower `min_arms`."
                )
            arm = self.config.default_arms[0]
            return RuntimeSelection(decision_id=None, arm_id=_name(arm), params=arm.params)
        posteriors = BetaArms.begin([a["alpha"] for a in arms], [a["beta"] for a in arms])
        policy = Policy.of(posteriors.propensities(), explore=self.config.floor)
        with self._mutex:
            choice = policy.choose(float(self._rng.random()))
            drawn = float(posteriors.draw(self._rng)[choice.arm])
        chosen = arms[choice.arm]
        kept = await self._storage.create_decision(
            user_id=user_id,
            agent_type=kind,
            arm_pulled=chosen["arm_id"],
            strategy_params=chosen["params"],
            arms_snapshot=arms,
            metadata={"propensity": choice.propensity, "context": dict(context or {})},
        )
        decision_id = _field(kept, "decision_id", _field(kept, "id", kept))
        if decision_id is None:
            raise ValueError("`create_decision` of the storage must return the decision's id")
        with self._mutex:
            self._users[str(decision_id)] = user_id
            if len(self._users) > REMEMBERED:
                del self._users[next(iter(self._users))]
        return RuntimeSelection(
            decision_id=str(decision_id),
            arm_id=chosen["arm_id"],
            params=chosen["params"],
            sampled_value=drawn,
            propensity=choice.propensity,
            fresh=True,
            arms_state=tuple(arms),
        )

    async def update(self, given: Reward, agent_type: str | None) -> dict[str, Any]:
        """Take in the reward of a decision; see ``runtime_update``.

        Raises:
            ValueError: the reward or a signal is not in [0, 1], or it names no user and the decision
                was made by another process; nothing is stored.
            WrongUserError: the decision served another user; nothing is stored.
        """
        if given.cost is not None:
            raise ValueError(
                "`cost` needs the store of this tool: put it into `metadata` of a storage of your own"
            )
        value = given.meant(lambda: self.config.reward_metrics)
        if value is None or given.decision_id is None:
            return as_dict(given.outcome("none", value))
        value = checked_reward(value)
        user_id = self._user_of(given.decision_id, given.user_id)
        key: dict[str, Any] = {"user_id": user_id, "decision_id": given.decision_id}
        known = await self._storage.get_decision(**key)
        before = _field(known, "reward", None)
        if known is None:
            return as_dict(given.outcome("unknown", value))
        if before is not None:
            is_same = float(before) == value
            return as_dict(given.outcome("duplicate" if is_same else "conflict", value))
        outcome = given.outcome("ok", value, learns=True)
        added: dict[str, Any] = (
            {"computed_update": outcome.computed_update} if self._takes_update else {}
        )
        await self._storage.update_performance(
            **key,
            agent_type=agent_type or self.config.agent_type,
            reward=value,
            engagement=given.engagement_score,
            grading=given.grading_score,
            metadata=given.metadata,
            **added,
        )
        return as_dict(outcome)

    def _user_of(self, decision_id: str, given: str | None) -> str:
        """Return the user that a decision served, as this process knows it or as given."""
        with self._mutex:
            known = self._users.get(decision_id)
        if known is not None and given not in {None, known}:
            raise WrongUserError.of(decision_id, given or "")
        user_id = known if given is None else given
        if user_id is None:
            raise ValueError(
                f"`user_id` must be given for decision {decision_id}: another process made it, and a "
                "storage of your own keeps decisions per user"
            )
        return user_id

    async def decision(self, *, user_id: str, decision_id: str) -> dict[str, Any] | None:
        """Return a decision as the storage has it, ``None`` if there is none."""
        found: dict[str, Any] | None = await self._storage.get_decision(
            user_id=user_id, decision_id=decision_id
        )
        return found

    async def evolve(
        self, propose: Callable[..., list[RuntimeArm]], *, user_id: str, agent_type: str | None
    ) -> list[RuntimeArm]:
        """Return new arms bred from a user's best ones; see ``runtime_evolve_arms``.

        Raises:
            NoArmsError: the user has none.
        """
        arms = await self._arms(user_id, agent_type or self.config.agent_type)
        if not arms:
            raise NoArmsError(f"`{self.config.system}` has no arms of {user_id!r}")
        stored = [
            StoredArm(
                arm_id=arm["arm_id"], params=arm["params"], prior=None, base_alpha=1.0,
                base_beta=1.0, base_seq=0, alpha=arm["alpha"], beta=arm["beta"], n=0, run_id=None,
                is_retired=False,
            )
            for arm in arms
        ]  # fmt: skip
        with self._mutex:
            return propose(stored, [arm["mean"] for arm in arms], self._rng)

    async def _arms(self, user_id: str, agent_type: str) -> list[dict[str, Any]]:
        """Return the arms as the storage has them, in our form.

        Raises:
            ValueError: one of them is none.
        """
        found = await self._storage.get_arms(user_id=user_id, agent_type=agent_type)
        return [_arm(one) for one in found or ()]


def _unsupported(config: RuntimeConfig) -> list[Problem]:
    """Return the settings that need the store of this tool."""
    default = RuntimeConfig(system=config.system)
    problems = [
        Problem(
            key=name,
            rule="needs the store of this tool: a storage of your own keeps Beta arms alone",
            value=repr(getattr(config, name))[:80],
            fix="Leave it out, or give `storage` the folder of a store.",
        )
        for name in RuntimeConfig.model_fields
        if name not in SERVED and getattr(config, name) != getattr(default, name)
    ]
    return problems + [
        Problem(
            key=f"default_arms.{i}.prior_mean",
            rule="needs the store of this tool: a storage of your own begins at Beta(1, 1)",
            value=repr(arm.prior_mean),
            fix="Leave it out, or let `initialize_arms` begin elsewhere.",
        )
        for i, arm in enumerate(config.default_arms)
        if arm.prior_mean is not None
    ]


def _arm(one: Any) -> dict[str, Any]:
    name, params = _field(one, "arm_id", None), _field(one, "params", None)
    alpha, beta = (_field(one, key, 1.0) for key in ("alpha", "beta"))
    numbers = all(isinstance(n, int | float) and n > 0 and np.isfinite(n) for n in (alpha, beta))
    if not isinstance(name, str) or not isinstance(params, Mapping) or not numbers:
        raise ValueError(
            "an arm of the storage must have `arm_id` (text), `params` (a mapping), and `alpha` and "
            f"`beta` above 0, but got {str(one)[:120]}"
        )
    return {
        "arm_id": name,
        "params": dict(cast("Mapping[str, Json]", params)),
        "alpha": float(alpha),
        "beta": float(beta),
        "mean": float(alpha) / (float(alpha) + float(beta)),
    }


def _field(value: Any, name: str, default: Any) -> Any:
    if isinstance(value, Mapping):
        return value.get(name, default)
    return getattr(value, name, default)


def _name(arm: RuntimeArm) -> str:
    return arm.arm_id or arm_id_of(arm.params)
