"""One system at run time: choose an arm for a request, learn from what came of it.

``Bandit`` joins the store with the deciding core. Its propensities are a version of a policy that
all processes share: whoever finds the version stale makes the next one, and everybody reads it. It
blocks, so async code calls it from a thread; it holds no lock across disk or network.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convergence_core.bandit import Policy
from convergence_core.bandit.arms import checked_reward
from convergence_core.bandit.receipts import ReceiptStatus
from convergence_core.gate import Contest, Plan, verdict_plan
from convergence_core.records import Json, canonical_json
from convergence_core.store.runtime import RuntimeStore
from convergence_core.store.runtime_rows import (
    Group,
    NewDecision,
    StoredArm,
    StoredPolicy,
)
from convergence_core.store.runtime_writes import (
    Connection,
    NewReward,
    RewardTerms,
    log_decision,
    take_reward,
)
from tasks.evidence import Evidence, Folder, design_of, evidence_of
from tasks.offers import best_shares
from tasks.operations import Operation, performed
from tasks.serving_settings import ServingSettings, stored_settings


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
class Learned:
    """What became of a reward."""

    status: ReceiptStatus
    learned: bool
    alarm: str | None
    """The alarm it raised, in words; ``None``: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A policy version ready to choose by."""

    group: Group
    policy: Policy
    version: int
    arms: tuple[StoredArm, ...]


class NoArmsError(LookupError):
    """Nothing is on offer."""


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

    def update(self, decision_id: str, reward: float) -> Learned:
        """Take in the reward of a decision; durable when this returns.

        Raises:
            ValueError: the reward is not in [0, 1].
            StoreWriteError: it could not be stored.
        """
        new = NewReward(system=self.system, decision_id=decision_id, reward=reward)
        return performed(self._store, self.updating(new))

    def updating(self, new: NewReward) -> Operation[Learned]:
        """Return ``update`` as an operation."""
        return Updating(new, self._store.now_us, self.settings.terms)

    def n_on_offer(self) -> int:
        """Return how many arms are on offer."""
        group = self._store.group(self.system, self.agent_type)
        if group is None:
            return 0
        return sum(not arm.is_retired for arm in self._store.arms(group.group_id))

    def evidence(self) -> Evidence:
        """Return what the traffic shows so far; it may be looked at any time.

        Raises:
            NoArmsError: fewer than two arms were ever offered.
        """
        group = self._group()
        arms = self._store.arms(group.group_id)
        contest = self._folder.contest(group.group_id, arms)
        if contest is None:
            raise NoArmsError(f"`{self.system}` has no two arms to compare")
        return evidence_of(contest, arms)

    def ask(
        self, user_id: str, context: Mapping[str, Json] | None, request_key: str | None
    ) -> tuple[Served, NewDecision]:
        """Return the policy in force and a decision by it, not logged yet."""
        served = self._current()
        with self._mutex:
            uniform = float(self._rng.random())
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

    def answer(self, served: Served, logged: NewDecision) -> Selection:
        """Return what a logged decision means for its request."""
        arm = next((a for a in served.arms if a.arm_id == logged.arm_id), None)
        if arm is None:  # kept from before this process learned of it
            arm = next(
                a for a in self._store.arms(served.group.group_id) if a.arm_id == logged.arm_id
            )
        with self._mutex:
            sampled = float(self._rng.beta(arm.alpha, arm.beta))
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

    def _current(self) -> Served:
        """Return the policy in force, making the next version if it is stale."""
        while True:
            group, served = self._group(), self._served
            if (
                served is not None
                and (served.version, served.group.revision) == (group.version, group.revision)
                and not served.policy.is_stale(group.n)
            ):
                return served
            found = self._stored(group) if group.version else None
            if found is not None and not found.policy.is_stale(group.n):
                self._served = found
                return found
            made = self._made(group)
            if made is not None:
                self._served = made
                return made

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
        )

    def _made(self, group: Group) -> Served | None:
        """Make and store the next version; ``None``: another process was first."""
        everyone = self._store.arms(group.group_id)
        arms = tuple(arm for arm in everyone if not arm.is_retired)
        if not arms:
            raise NoArmsError(f"all arms of `{self.system}` / `{self.agent_type}` are retired")
        contest = None
        if self.settings.mode == "verdict":
            contest = self._folder.contest(group.group_id, everyone)
        explore = self.settings.floor
        if group.n < group.explore_until:
            explore = max(explore, self.settings.explore_after_alarm)
        policy = Policy.of(self._shares(group, everyone, contest), n=group.n, explore=explore)
        out = [] if contest is None else np.flatnonzero(contest.out).tolist()
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
        )

    def _shares(
        self, group: Group, everyone: Sequence[StoredArm], contest: Contest | None
    ) -> np.ndarray:
        """Return the shares of the arms on offer, before exploration."""
        on_offer = np.array([not arm.is_retired for arm in everyone])
        if contest is not None:
            with self._mutex:
                plan: Plan = verdict_plan(contest, self._rng, floor=0.0)
            wanted = np.array(plan.shares)[on_offer]
            if wanted.sum() > 0.0:
                return np.asarray(wanted / wanted.sum())
        return best_shares([arm for arm in everyone if not arm.is_retired], group.trust)


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

    def prepare(self) -> None:
        """Choose by the policy in force."""
        self._served, self._new = self._bandit.ask(*self._request)

    def write(self, connection: Connection) -> None:
        """Log the decision."""
        assert self._served is not None  # noqa: S101 - prepared
        assert self._new is not None  # noqa: S101 - prepared
        self._logged = log_decision(connection, self._served.group.group_id, self._new)

    def result(self) -> Selection:
        """Return the arm."""
        assert self._served is not None  # noqa: S101 - prepared
        assert self._logged is not None  # noqa: S101 - written
        return self._bandit.answer(self._served, self._logged)


class Updating(Operation[Learned]):
    """A reward; without terms by the settings that the store keeps."""

    def __init__(
        self, new: NewReward, now_us: Callable[[], int], terms: RewardTerms | None = None
    ) -> None:
        self._new, self._terms, self._now_us = new, terms, now_us
        self._learned: Learned | None = None

    def prepare(self) -> None:
        """Refuse what is no reward before a transaction begins."""
        checked_reward(self._new.reward)

    def write(self, connection: Connection) -> None:
        """Take the reward in."""
        receipt, alarm = take_reward(connection, self._new, self._now_us(), self._terms)
        told = None
        if alarm is not None:
            told = f"mean reward went from {alarm.before:.3g} to {alarm.after:.3g}"
        self._learned = Learned(status=receipt.status, learned=receipt.learns, alarm=told)

    def result(self) -> Learned:
        """Return what became of it."""
        assert self._learned is not None  # noqa: S101 - written
        return self._learned


def decision_id(now_us: int) -> str:
    """Return a UUID of version 7 (RFC 9562): it sorts by milliseconds."""
    value = (now_us // 1_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
