"""Systems served from one store: what Python's functions and the HTTP service have in common.

A request is an ``Operation`` (``tasks.serving.operations``): the Python functions perform each by itself, the
service many to a commit. Settings live in the store, so every process serves by the latest.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convergence.runtime.settings import RuntimeArm, RuntimeConfig, reward_of
from convergence_core.bandit.priors import nightly_prior
from convergence_core.errors import NoArmsError
from convergence_core.records import Json, canonical_json
from tasks.serving.offers import arm_id_of, offer_of
from tasks.serving.operations import Operation
from tasks.serving.rewards import RewardOutcome, RewardWrite as LoggedReward
from tasks.serving.settings import ServingSettings
from tasks.serving.system import Bandit, Selection
from tasks.store.database import Connection
from tasks.store.runtime.rows import ArmOffer, Group, StoredArm
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.writes import NewReward, check_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """What came of a decision, as a caller tells it."""

    user_id: str
    decision_id: str
    reward: float | None = None
    signals: Mapping[str, float] | None = None
    engagement_score: float | None = None
    grading_score: float | None = None
    metadata: Mapping[str, Any] | None = None
    cost: float | None = None
    """What the request cost, in the system's own unit."""

    def __post_init__(self) -> None:
        """Refuse a cost that is none.

        Raises:
            ValueError: it is below 0, or not finite.
        """
        check_cost(self.cost)

    @property
    def details_json(self) -> str | None:
        """All that is told beside the reward; ``None``: nothing."""
        details = {
            name: value
            for name, value in (
                ("signals", None if self.signals is None else dict(self.signals)),
                ("engagement_score", self.engagement_score),
                ("grading_score", self.grading_score),
                ("cost", self.cost),
                ("metadata", None if self.metadata is None else dict(self.metadata)),
            )
            if value is not None
        }
        return canonical_json(details) if details else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultServed:
    """A default serves: there are too few arms, and nothing can be learned."""

    arm_id: str
    params: Mapping[str, Json]


class MissingRewardError(ValueError):
    """A reward was announced, and none was given."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A system's settings as they were read, and the bandits that serve by them."""

    text: str | None
    config: RuntimeConfig
    bandits: dict[str, Bandit]


class Systems:
    """All systems of one store. Thread-safe."""

    def __init__(self, store: RuntimeStore) -> None:
        self.store = store
        self._mutex = threading.Lock()
        self._known: dict[str, _Known] = {}

    def configure(self, config: RuntimeConfig) -> None:
        """Keep a system's settings and put its default arms on offer.

        Raises:
            ArmChangedError: an arm of that name has other parameters.
            StoreWriteError: nothing is kept.
        """
        if config.default_arms:
            self.offer(config, config.agent_type, config.default_arms)
        self.store.save_settings(config.system, json.loads(config.model_dump_json()))

    def offer(
        self, config: RuntimeConfig, agent_type: str, arms: tuple[RuntimeArm, ...]
    ) -> list[ArmOffer]:
        """Put arms on offer, live; return them by their names."""
        offers = [_offer(arm, config) for arm in arms]
        self.store.offer(
            config.system, agent_type, offers, trust=config.prior_trust, kind=config.kind
        )
        return offers

    def config(self, system: str) -> RuntimeConfig:
        """Return a system's settings; the defaults if nobody ever said."""
        return self._latest(system).config

    def bandit(self, system: str, agent_type: str | None = None) -> Bandit:
        """Return who serves an agent type, by the latest settings."""
        return self.served(system, agent_type)[1]

    def served(self, system: str, agent_type: str | None) -> tuple[RuntimeConfig, Bandit]:
        """Return both."""
        known = self._latest(system)
        name = agent_type or known.config.agent_type
        with self._mutex:
            if name not in known.bandits:
                settings = ServingSettings.of(known.config.model_dump())
                known.bandits[name] = Bandit(
                    self.store, system, name, settings=settings, seed=known.config.seed
                )
            return known.config, known.bandits[name]

    def selecting(
        self,
        system: str,
        *,
        user_id: str,
        agent_type: str | None = None,
        context: Mapping[str, Json] | None = None,
        request_key: str | None = None,
    ) -> Operation[Selection | DefaultServed]:
        """Return the choice of an arm; without enough arms the first default serves.

        Raises, when performed:
            NoArmsError: there is neither an arm nor a default.
            RequestReusedError: the key stands for another request.
        """
        return _Selecting(self, (system, agent_type), (user_id, context, request_key))

    def updating(self, system: str, told: Reward) -> "RewardUpdate":
        """Return the taking in of a reward.

        Raises, when performed:
            NothingToldError: neither reward, signals nor engagement score.
            ValueError: the reward or a signal is not in [0, 1].
        """
        return RewardUpdate(self, system, told)

    def reward(self, system: str, told: Reward) -> float | None:
        """Return the reward that is meant; ``None``: there is none."""
        metrics = () if told.signals is None else self.config(system).reward_metrics
        return reward_of(metrics, told.reward, told.signals, told.engagement_score)

    def arms(self, system: str, agent_type: str | None = None) -> list[dict[str, Any]]:
        """Return all arms with what is believed of them, those retired included.

        Raises:
            NoArmsError: nothing was ever offered there.
        """
        kinds = [kind for name, kind in self.store.systems() if name == system]
        if not kinds or agent_type not in {None, *kinds}:
            raise NoArmsError(f"nothing was ever offered for `{system}`")
        found = []
        for kind in kinds if agent_type is None else [agent_type]:
            group = self.known_group(system, kind)
            for arm in self.store.arms(group.group_id):
                more = {
                    "params": dict(arm.params),
                    "run_id": arm.run_id,
                    "retired": arm.is_retired,
                }
                found.append({**shown_arm(arm), "agent_type": kind, **more})
        return found

    def retire(self, system: str, arm_id: str, agent_type: str | None = None) -> bool:
        """Take an arm off offer, live; return whether it was on.

        Raises:
            NoArmsError: no arm of that name was ever offered there.
        """
        group = self.known_group(system, agent_type)
        if arm_id not in {arm.arm_id for arm in self.store.arms(group.group_id)}:
            raise NoArmsError(f"no arm `{arm_id}` was ever offered for `{system}`")
        kind = agent_type or self.config(system).agent_type
        return self.store.retire(system, kind, arm_id)

    def known_group(self, system: str, agent_type: str | None) -> Group:
        """Return a group.

        Raises:
            NoArmsError: nothing was ever offered there.
        """
        kind = agent_type or self.config(system).agent_type
        group = self.store.group(system, kind)
        if group is None:
            raise NoArmsError(f"nothing was ever offered for `{system}` / `{kind}`")
        return group

    def decision(self, system: str, user_id: str, decision_id: str) -> dict[str, Any] | None:
        """Return a user's decision and its reward, ``None`` if there is none of that id."""
        found = self.store.decision(decision_id)
        if found is None or found.system != system or found.user_id != user_id:
            return None
        return {
            name: getattr(found, name)
            for name in (
                "decision_id", "agent_type", "arm_id", "params", "version", "propensity",
                "is_fresh", "created_us", "expires_us", "reward", "reward_status",
            )
        }  # fmt: skip

    def _latest(self, system: str) -> _Known:
        text = self.store.settings_text(system)
        with self._mutex:
            known = self._known.get(system)
            if known is None or known.text != text:
                values = {} if text is None else json.loads(text)
                config = RuntimeConfig.model_validate({**values, "system": system})
                known = self._known[system] = _Known(text, config, {})
            return known


def shown_arm(arm: StoredArm) -> dict[str, Any]:
    """Return an arm's state as callers see it."""
    return {
        "arm_id": arm.arm_id,
        "alpha": arm.alpha,
        "beta": arm.beta,
        "mean": arm.alpha / (arm.alpha + arm.beta),
        "n": arm.n,
        "prior": arm.prior,
        "cost": arm.cost,
    }


def shown_update(
    told: Reward, value: float | None, learned: RewardOutcome | None
) -> dict[str, Any]:
    """Return what became of a reward as callers see it.

    Args:
        told: as it was told.
        value: the reward that was meant; ``None``: there was none.
        learned: what became of it; ``None``: nothing.
    """
    status = "none" if learned is None else learned.status
    answer: dict[str, Any] = {
        "success": status in {"ok", "late", "duplicate"},
        "status": status,
        "reward": value,
        "engagement_score": told.engagement_score,
        "grading_score": told.grading_score,
        "computed_update": None,
    }
    if learned is not None and learned.learned and value is not None:
        answer["computed_update"] = {"alpha": value, "beta": 1.0 - value}
    if learned is not None and learned.alarm is not None:
        answer["alarm"] = learned.alarm
    return answer


class RewardUpdate(Operation[RewardOutcome]):
    """The taking in of a reward, as a caller tells it."""

    def __init__(self, systems: Systems, system: str, told: Reward) -> None:
        self._systems, self._system, self._told = systems, system, told
        self.place = system
        self._inner: Operation[RewardOutcome] | None = None
        self.reward: float | None = None
        """The reward that is meant; ``None`` before it is prepared."""

    def prepare(self) -> None:
        """Find out which number is the reward."""
        told = self._told
        self.reward = self._systems.reward(self._system, told)
        if self.reward is None:
            raise MissingRewardError("no reward was told, and no reward is no reward")
        new = NewReward(
            system=self._system,
            decision_id=told.decision_id,
            reward=self.reward,
            user_id=told.user_id,
            details_json=told.details_json,
            cost=told.cost,
        )
        self._inner = LoggedReward(new, self._systems.store.now_us)
        self._inner.prepare()

    def write(self, connection: Connection) -> None:
        """Take the reward in."""
        assert self._inner is not None  # noqa: S101 - prepared
        self._inner.write(connection)

    def result(self) -> RewardOutcome:
        """Return what became of it."""
        assert self._inner is not None  # noqa: S101 - prepared
        return self._inner.result()


class _Selecting(Operation[Selection | DefaultServed]):
    """A choice of an arm, or of the default."""

    def __init__(
        self,
        systems: Systems,
        place: tuple[str, str | None],
        request: tuple[str, Mapping[str, Json] | None, str | None],
    ) -> None:
        self._systems, self._request = systems, request
        self._system, self._agent_type = place
        self.place = self._system
        self._inner: Operation[Selection] | None = None
        self._bandit: Bandit | None = None
        self._fallback: DefaultServed | None = None

    def prepare(self) -> None:
        """Choose by the policy in force."""
        config, bandit = self._systems.served(self._system, self._agent_type)
        try:
            if config.min_arms > 1 and bandit.n_on_offer() < config.min_arms:
                raise NoArmsError(
                    f"`{self._system}` has fewer than {config.min_arms} arms and no default. "
                    "Give `default_arms`, or lower `min_arms`."
                )
            # Prepared again by the same bandit, it chooses by the same random number.
            if self._inner is None or bandit is not self._bandit:
                self._inner, self._bandit = bandit.selecting(*self._request), bandit
            self._inner.prepare()
        except NoArmsError:
            if not config.default_arms:
                raise
            self._inner, self._fallback = None, _default(config)

    def write(self, connection: Connection) -> None:
        """Log the decision; a default is none."""
        if self._inner is not None:
            self._inner.write(connection)
        self.is_outdated = self._inner is not None and self._inner.is_outdated

    def result(self) -> Selection | DefaultServed:
        """Return the arm that serves."""
        if self._inner is not None:
            return self._inner.result()
        assert self._fallback is not None  # noqa: S101 - prepared
        return self._fallback


def _default(config: RuntimeConfig) -> DefaultServed:
    arm = config.default_arms[0]
    return DefaultServed(arm_id=arm.arm_id or arm_id_of(arm.params), params=arm.params)


def _offer(arm: RuntimeArm, config: RuntimeConfig) -> ArmOffer:
    prior = None
    if arm.prior_mean is not None and arm.prior_sd is not None:
        prior = nightly_prior(
            arm.prior_mean,
            arm.prior_sd,
            discount=config.prior_discount,
            most=config.prior_most,
        )
    return offer_of(arm.params, arm.arm_id, prior, arm.cost)
