"""One system at run time: choose an arm for a request, learn from what came of it.

``Bandit`` joins the store with the deciding core. Its propensities are a version of a policy that
all processes share: whoever finds the version stale makes the next one, and everybody reads it. It
blocks, so async code calls it from a thread; it holds no lock across disk or network.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convergence_core.bandit import Encoder, GaussianArms, Policy
from convergence_core.errors import NoArmsError
from convergence_core.gate import BestArmTest, TrafficPlan, verdict_plan
from convergence_core.records import Json, canonical_json
from tasks.serving.evidence import Folder, TrafficEvidence, design_of, evidence_of
from tasks.serving.linear_arms import Contextual
from tasks.serving.offers import decision_id, gaussian_arms, prob_best
from tasks.serving.operations import Operation, performed
from tasks.serving.quality import ArmQuality, quality_of, quality_plan
from tasks.serving.rewards import RewardOutcome, RewardWrite
from tasks.serving.settings import ServingSettings, stored_settings
from tasks.store.database import Connection
from tasks.store.runtime.rows import (
    Group,
    NewDecision,
    StoredArm,
    StoredPolicy,
)
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import active_guard
from tasks.store.runtime.writes import (
    NewReward,
    is_outdated,
    log_decision,
)

OTHERS_PATIENCE = 2.0
"""How many times as stale a version may be that another process is about to replace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The arm that serves a request."""

    decision_id: str
    arm_id: str
    params: Mapping[str, Json]
    propensity: float
    sampled_value: float
    """A draw of the chosen arm's mean."""
    version: int
    is_fresh: bool
    """Whether the arm was drawn for this request, not kept from an earlier one."""
    arms: tuple[StoredArm, ...]
    """All arms on offer, as the policy saw them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A policy version ready to choose by."""

    group: Group
    policy: Policy
    version: int
    """0: contextual arms have a policy for each request."""
    arms: tuple[StoredArm, ...]
    moments: tuple[np.ndarray, np.ndarray] | None = None
    """Means and standard deviations of the arms; ``None``: they are Beta."""


class Bandit:
    """One system and agent type, served from a store. Thread-safe."""

    def __init__(
        self,
        store: RuntimeStore,
        system: str,
        agent_type: str = "default",
        *,
        settings: ServingSettings | None = None,
        seed: int | None = None,
    ) -> None:
        """Serve what is on offer in the store.

        Args:
            store: shared by all processes of this machine.
            system: name of the optimized system.
            agent_type: its kind of agent.
            settings: how it serves; by default what the store keeps of it.
            seed: same seed and same rewards, same choices; ``None``: from the system's entropy.
        """
        self.system, self.agent_type = system, agent_type
        self.settings = settings or stored_settings(store, system)
        self._store = store
        self._folder = Folder(
            store, alpha=self.settings.alpha, min_effect=self.settings.min_effect
        )
        self._rng = np.random.default_rng(seed)
        self._mutex = threading.Lock()
        self._served: Served | None = None
        self._is_current = False
        """Whether it was in force when last looked at."""
        self._patience = 1.0
        self._contextual: Contextual | None = None

    def select(
        self,
        user_id: str,
        *,
        context: Mapping[str, Json] | None = None,
        request_key: str | None = None,
    ) -> Selection:
        """Choose an arm and log the decision durably.

        Args:
            user_id: whom it serves.
            context: features of the request.
            request_key: name of the request; asked again under it, it is answered alike.

        Raises:
            NoArmsError: nothing is on offer.
            RequestReusedError: the name stands for another request.
            StoreWriteError: the decision could not be logged.
        """
        return performed(self._store, self.selecting(user_id, context, request_key))

    def selecting(
        self,
        user_id: str,
        context: Mapping[str, Json] | None = None,
        request_key: str | None = None,
    ) -> Operation[Selection]:
        """Return ``select`` as an operation."""
        return _Selecting(self, user_id, context, request_key)

    def update(self, decision_id: str, reward: float) -> RewardOutcome:
        """Take in the reward of a decision; durable when this returns.

        Raises:
            ValueError: the reward is not in [0, 1].
            StoreWriteError: it could not be stored.
        """
        new = NewReward(system=self.system, decision_id=decision_id, reward=reward)
        return performed(self._store, self.updating(new))

    def updating(self, new: NewReward) -> Operation[RewardOutcome]:
        """Return ``update`` as an operation."""
        return RewardWrite(new, self._store.now_us, self.settings.terms)

    def n_on_offer(self) -> int:
        """Return how many arms are on offer."""
        group = self._store.group(self.system, self.agent_type)
        if group is None:
            return 0
        return sum(not arm.is_retired for arm in self._store.arms(group.group_id))

    def evidence(self) -> TrafficEvidence:
        """Return what the traffic shows so far; it may be looked at any time.

        Raises:
            NoArmsError: fewer than two arms were ever offered, or their rewards are no evidence.
        """
        group = self._group()
        if group.kind != "beta":
            raise NoArmsError(
                f"`{self.system}` has {group.kind} arms, and evidence needs beta arms"
            )
        arms = self._store.arms(group.group_id)
        contest = self._folder.contest(group.group_id, arms)
        if contest is None:
            raise NoArmsError(f"`{self.system}` has no two arms to compare")
        return evidence_of(contest, arms)

    def quality(self) -> tuple[ArmQuality, ...]:
        """Return which arms hold the quality that is asked for; it may be looked at any time.

        Raises:
            NoArmsError: nothing is on offer, or mode is not ``quality``.
        """
        group = self._group()
        if self.settings.mode != "quality":
            raise NoArmsError(f"`{self.system}` serves by {self.settings.mode}, not by quality")
        arms = self._store.arms(group.group_id)
        self._on_offer(arms)
        return quality_of(self.settings, arms)

    def uniform(self) -> float:
        """Return the next number in [0, 1) to choose by."""
        with self._mutex:
            return float(self._rng.random())

    def ask(
        self,
        user_id: str,
        context: Mapping[str, Json] | None,
        request_key: str | None,
        uniform: float,
    ) -> tuple[Served, NewDecision]:
        """Return a policy and a decision by it, not logged yet.

        The policy is the one that was in force when last looked at, without another look: ``log`` sees
        in the transaction whether it still is.
        """
        served = self._served if self._is_current else None
        if served is None:
            served = self._current(user_id, context)
        choice = served.policy.choose(uniform)
        now = self._store.now_us()
        expires = self.settings.expires_after_s
        return served, NewDecision(
            decision_id=decision_id(now),
            user_id=user_id,
            arm_id=served.arms[choice.arm].arm_id,
            version=served.version,
            propensity=choice.propensity,
            context_json=None if context is None else canonical_json(dict(context)),
            created_us=now,
            expires_us=None if expires is None else now + int(expires * 1e6),
            unit=self._unit(user_id, context),
            request_key=request_key,
        )

    def log(self, connection: Connection, served: Served, new: NewDecision) -> NewDecision | None:
        """Log a decision; ``None``: its policy is not in force any more, and nothing is logged."""
        group = served.group
        if served.version and is_outdated(
            connection,
            group.group_id,
            revision=group.revision,
            stale_at=served.policy.stale_at(self._patience),
        ):
            self._is_current = False
            return None
        return log_decision(connection, group.group_id, new)

    def answer(self, served: Served, logged: NewDecision) -> Selection:
        """Return what a logged decision means for its request."""
        arm = next((a for a in served.arms if a.arm_id == logged.arm_id), None)
        if arm is None:  # kept from before this process learned of it
            arm = next(
                a for a in self._store.arms(served.group.group_id) if a.arm_id == logged.arm_id
            )
        with self._mutex:
            if served.moments is None or arm not in served.arms:
                sampled = float(self._rng.beta(max(arm.alpha, 0.5), max(arm.beta, 0.5)))
            else:
                means, sds = served.moments
                place = served.arms.index(arm)
                sampled = float(self._rng.normal(means[place], sds[place]))
        return Selection(
            decision_id=logged.decision_id,
            arm_id=logged.arm_id,
            params=arm.params,
            propensity=logged.propensity,
            sampled_value=sampled,
            version=logged.version,
            is_fresh=logged.is_fresh,
            arms=served.arms,
        )

    def _unit(self, user_id: str, context: Mapping[str, Json] | None) -> str | None:
        if self.settings.sticky == "user":
            return f"user:{user_id}"
        session = (context or {}).get("session_id")
        if self.settings.sticky == "session" and session is not None:
            return f"session:{session}"
        return None

    def _group(self) -> Group:
        group = self._store.group(self.system, self.agent_type)
        if group is None:
            raise NoArmsError(f"nothing is on offer for `{self.system}` / `{self.agent_type}`")
        return group

    def _current(self, user_id: str, context: Mapping[str, Json] | None) -> Served:
        """Return the policy in force, making the next version if it is stale."""
        while True:
            group, served = self._group(), self._served
            if group.kind == "linear":
                return self._for_request(group, user_id, context)
            if (
                served is not None
                and served.group.revision == group.revision
                and not served.policy.is_stale(group.n, patience=self._patience)
            ):
                self._is_current = True
                return served
            found = self._stored(group) if group.version else None
            if found is None or found.policy.is_stale(group.n, patience=self._patience):
                found = self._made(group)
                # Who made the latest version makes the next one: of processes that all do so at
                # once, all but one work in vain.
                self._patience = OTHERS_PATIENCE if found is None else 1.0
            if found is not None:
                self._served, self._is_current = found, True
                return found

    def _for_request(
        self, group: Group, user_id: str, context: Mapping[str, Json] | None
    ) -> Served:
        """Return the policy of contextual arms for one request."""
        if self._contextual is None:
            encoder = Encoder(n_features=self.settings.n_features, pooling=self.settings.pooling)
            self._contextual = Contextual(self._store, group.group_id, self.agent_type, encoder)
        arms = self._on_offer(self._store.arms(group.group_id))
        believed = self._contextual.believed(arms, user_id, context)
        return Served(
            group=group,
            policy=Policy.of(believed.propensities, n=group.n, explore=self.settings.floor),
            version=0,
            arms=arms,
            moments=(believed.means, believed.sds),
        )

    def _on_offer(self, everyone: Sequence[StoredArm]) -> tuple[StoredArm, ...]:
        arms = tuple(arm for arm in everyone if not arm.is_retired)
        if not arms:
            raise NoArmsError(f"all arms of `{self.system}` / `{self.agent_type}` are retired")
        return arms

    def _moments(
        self, group: Group, arms: Sequence[StoredArm]
    ) -> tuple[np.ndarray, np.ndarray] | None:
        if group.kind != "gaussian":
            return None
        found = self._gaussian(arms)
        return found.means, found.sds

    def _gaussian(self, arms: Sequence[StoredArm]) -> GaussianArms:
        return gaussian_arms(arms, mean=self.settings.reward_mean, sd=self.settings.reward_sd)

    def _stored(self, group: Group) -> Served | None:
        """Return the latest stored version, ``None`` if arms changed since it was made."""
        policy = self._store.policy(group.group_id, group.version)
        arms = tuple(a for a in self._store.arms(group.group_id) if not a.is_retired)
        if policy.design.get("revision") != group.revision:
            return None
        return Served(
            group=group,
            policy=Policy.of(policy.shares, n=policy.n),
            version=policy.version,
            arms=arms,
            moments=self._moments(group, arms),
        )

    def _made(self, group: Group) -> Served | None:
        """Make and store the next version; ``None``: another process was first."""
        everyone = self._store.arms(group.group_id)
        arms = self._on_offer(everyone)
        contest = None
        if self.settings.mode == "verdict":
            contest = self._folder.contest(group.group_id, everyone)
        explore = self.settings.floor
        if group.n < group.explore_until:
            explore = max(explore, self.settings.explore_after_alarm)
        shares = self._shares(group, everyone, contest)
        policy = Policy.of(self._held_back(group, arms, shares), n=group.n, explore=explore)
        out = [] if contest is None else np.flatnonzero(contest.eliminated).tolist()
        design = design_of(everyone, [everyone[place].arm_id for place in out])
        design["revision"] = group.revision
        stored = StoredPolicy(
            version=group.version + 1,
            mode=self.settings.mode,
            n=group.n,
            arms=tuple(arm.arm_id for arm in arms),
            shares=policy.propensities,
            design=design,
        )
        if not self._store.save_policy(group.group_id, stored):
            return None
        return Served(
            group=replace(group, version=stored.version),
            policy=policy,
            version=stored.version,
            arms=arms,
            moments=self._moments(group, arms),
        )

    def _held_back(
        self, group: Group, arms: Sequence[StoredArm], shares: np.ndarray
    ) -> np.ndarray:
        """Return the shares with that of a former champion whose successor is watched."""
        guard = active_guard(self._store, group.group_id)
        names = [arm.arm_id for arm in arms]
        if guard is None or not {guard.promoted, guard.champion} <= set(names):
            return shares
        kept = np.zeros(len(arms))
        kept[names.index(guard.champion)] = guard.holdback
        return np.asarray((1.0 - guard.holdback) * shares / shares.sum() + kept)

    def _shares(
        self, group: Group, everyone: Sequence[StoredArm], contest: BestArmTest | None
    ) -> np.ndarray:
        """Return the shares of the arms on offer, before exploration."""
        on_offer = np.array([not arm.is_retired for arm in everyone])
        if contest is not None:
            with self._mutex:
                plan: TrafficPlan = verdict_plan(contest, self._rng, floor=0.0)
            wanted = np.array(plan.shares)[on_offer]
            if wanted.sum() > 0.0:
                return np.asarray(wanted / wanted.sum())
        if self.settings.mode == "quality":
            shares = np.array(quality_plan(self.settings, everyone).shares)
            return np.asarray(shares[on_offer])
        arms = [arm for arm in everyone if not arm.is_retired]
        if group.kind == "gaussian":
            return self._gaussian(arms).propensities()
        return prob_best(arms, group.trust)


class _Selecting(Operation[Selection]):
    """A choice of an arm."""

    def __init__(
        self,
        bandit: Bandit,
        user_id: str,
        context: Mapping[str, Json] | None,
        request_key: str | None,
    ) -> None:
        self._bandit = bandit
        self._request = (user_id, context, request_key)
        self._served: Served | None = None
        self._new: NewDecision | None = None
        self._logged: NewDecision | None = None
        self._uniform = bandit.uniform()

    def prepare(self) -> None:
        """Choose by the policy in force."""
        self._served, self._new = self._bandit.ask(*self._request, self._uniform)

    def write(self, connection: Connection) -> None:
        """Log the decision, unless its policy is outdated."""
        assert self._served is not None  # noqa: S101 - prepared
        assert self._new is not None  # noqa: S101 - prepared
        self._logged = self._bandit.log(connection, self._served, self._new)
        self.is_outdated = self._logged is None

    def result(self) -> Selection:
        """Return the arm."""
        assert self._served is not None  # noqa: S101 - prepared
        assert self._logged is not None  # noqa: S101 - written
        return self._bandit.answer(self._served, self._logged)
