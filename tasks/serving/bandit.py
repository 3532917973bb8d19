"""Bandit of one system at run time.

``Bandit`` connects the store with the deciding core. All processes share the versions of a policy,
which hold the propensities: the first process to find a version stale makes the next one, and all
read it. The bandit blocks, so async code calls it from a thread. It holds no lock during disk or
network access.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from convergence_core.bandit.features import Feature
from convergence_core.bandit.propensities import Policy
from convergence_core.errors import NoArmsError
from convergence_core.gate.best_arm_test import BestArmTest, verdict_shares
from convergence_core.records import Json
from tasks.models.text_embedder import text_embedder
from tasks.secrets.process_redaction import stored_json
from tasks.serving.answers import RuntimeSelection
from tasks.serving.contextual_fold import NOT_FEATURES, ContextualFold, features_of
from tasks.serving.evidence import EvidenceFold, TrafficEvidence, design_of, evidence_of
from tasks.serving.offers import arm_id_of, decision_id, prob_best
from tasks.serving.operations import Operation
from tasks.serving.sample_ratio import caveat_of
from tasks.serving.settings import EXPLORE_AFTER_ALARM, RuntimeConfig, read_settings
from tasks.store.database import Connection
from tasks.store.runtime.rows import Group, LoggedDecision, NewDecision, StoredArm, StoredPolicy
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import active_guard
from tasks.store.runtime.writes import is_outdated, log_decision

OTHERS_PATIENCE = 2.0
"""Factor of staleness up to which a process uses a version that another process usually replaces.
"""

MISSING_LOOKS = 0.1
"""Share of the reward window between two searches for missing rewards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRequest:
    """A request that needs an arm."""

    user_id: str
    context: Mapping[str, Json] | None = None
    """Features of the request."""
    text: str | None = None
    """Prompt from which linear arms derive features; it is not logged."""
    features: Mapping[str, Feature] | None = None
    """Features of context and prompt; ``None`` before their extraction."""
    key: str | None = None
    """Idempotency key; a repeated key gives the same answer."""


@dataclass(frozen=True, kw_only=True)  # without slots, for the cached property
class PolicyVersion:
    """Version of a policy, ready for choices."""

    group: Group
    policy: Policy
    number: int
    """Version number; 0 for contextual arms, which have a policy for each request."""
    arms: tuple[StoredArm, ...]
    mean_sd: tuple[np.ndarray, np.ndarray] | None = None
    """Means and standard deviations of linear arms for this request; ``None`` for Beta arms."""
    context: Mapping[str, Json] | None = None
    """Context of this request as linear arms log it, with features instead of the prompt."""

    @cached_property
    def arms_state(self) -> tuple[dict[str, Any], ...]:
        """State of the arms for callers."""
        return tuple(arm.state for arm in self.arms)


class Bandit:
    """Arms of one system and agent type, served from a store. Thread-safe."""

    def __init__(
        self,
        store: RuntimeStore,
        system: str,
        agent_type: str = "default",
        *,
        settings: RuntimeConfig | None = None,
        seed: int | None = None,
    ) -> None:
        """Serve the active arms of the store.

        Args:
            store: store shared by all processes of this machine.
            system: name of the optimized system.
            agent_type: its kind of agent.
            settings: runtime settings; by default those in the store.
            seed: makes choices reproducible, given the same rewards; ``None`` means system
                entropy.
        """
        self.system, self.agent_type = system, agent_type
        self.settings = settings or read_settings(system, store.settings_text(system))
        self.store = store
        self._evidence = EvidenceFold(store, self.settings)
        self._rng = np.random.default_rng(seed)
        self._mutex = threading.Lock()
        self._version: PolicyVersion | None = None
        self._is_current = False
        """Whether the version was current at the last check."""
        self._patience = 1.0
        self._contextual: ContextualFold | None = None
        self._missing_due_us = 0
        """Time of the next search for missing rewards, in microseconds."""

    def evidence(self) -> TrafficEvidence:
        """Return the evidence of the traffic so far, valid at any time.

        Raises:
            NoArmsError: fewer than two arms were ever active, or the arms are linear.
        """
        group = self._group()
        if group.kind == "linear":
            raise NoArmsError(
                f"`{self.system}` has linear arms, whose best depends on the request, so none can win. "
                "Estimate what another split would earn with `convergence ope`."
            )
        arms = self.store.arms(group.group_id)
        test = self._evidence.test(group.group_id, arms)
        if test is None:
            raise NoArmsError(f"`{self.system}` has no two arms to compare")
        return evidence_of(test, arms, caveat_of(self.store, self.system, self.agent_type))

    def uniform(self) -> float:
        """Return the next number in [0, 1) for a choice."""
        with self._mutex:
            return float(self._rng.random())

    def default(self) -> RuntimeSelection | None:
        """Return the first default arm that is not retired; ``None`` if there is none."""
        group = self.store.group(self.system, self.agent_type)
        arms = () if group is None else self.store.arms(group.group_id)
        retired = {arm.arm_id for arm in arms if arm.is_retired}
        for arm in self.settings.default_arms:
            arm_id = arm.arm_id or arm_id_of(arm.params)
            if arm_id not in retired:
                return RuntimeSelection(decision_id=None, arm_id=arm_id, params=arm.params)
        return None

    def propose(self, request: ArmRequest, uniform: float) -> tuple[PolicyVersion, NewDecision]:
        """Return a policy and an unlogged decision by it.

        The policy was current at the last check; ``log`` verifies that in its transaction.

        Raises:
            NoArmsError: no arm is active.
        """
        now, expires = self.store.now_us(), self.settings.expires_after_s
        if self.settings.missing_reward is not None and expires and now >= self._missing_due_us:
            self._missing_due_us = now + int(expires * MISSING_LOOKS * 1e6)
            self.store.reward_missing(self.system, self._group().group_id)
        version = self._version if self._is_current else None
        if version is None:
            version = self._current(request)
        arm = version.policy.choose(uniform)
        context = request.context if version.context is None else version.context
        return version, NewDecision(
            decision_id=decision_id(now),
            user_id=request.user_id,
            arm_id=version.arms[arm].arm_id,
            version=version.number,
            propensity=version.policy.propensities[arm],
            context_json=None if context is None else stored_json(dict(context)),
            created_us=now,
            expires_us=None if expires is None else now + int(expires * 1e6),
            unit=self._unit(request),
            request_key=request.key,
        )

    def log(
        self, connection: Connection, version: PolicyVersion, new: NewDecision
    ) -> LoggedDecision | None:
        """Log a decision; return ``None`` without logging if its policy is no longer current."""
        group = version.group
        if version.number and is_outdated(
            connection,
            group.group_id,
            revision=group.revision,
            stale_at=version.policy.stale_at(self._patience),
        ):
            self._is_current = False
            return None
        return log_decision(connection, group.group_id, new)

    def answer(self, version: PolicyVersion, logged: LoggedDecision) -> RuntimeSelection:
        """Return the arm of a logged decision for its request."""
        known = {arm.arm_id: index for index, arm in enumerate(version.arms)}
        index = known.get(logged.arm_id)
        if index is None:  # kept by its unit since before this process knew the arm
            stored = self.store.arms(version.group.group_id)
            arm = next(arm for arm in stored if arm.arm_id == logged.arm_id)
        else:
            arm = version.arms[index]
        with self._mutex:
            if version.mean_sd is None or index is None:
                sampled = float(self._rng.beta(max(arm.alpha, 0.5), max(arm.beta, 0.5)))
            else:
                means, sds = version.mean_sd
                sampled = float(self._rng.normal(means[index], sds[index]))
        return RuntimeSelection(
            decision_id=logged.decision_id,
            arm_id=logged.arm_id,
            params=arm.params,
            propensity=logged.propensity,
            sampled_value=sampled,
            policy_version=logged.version,
            fresh=logged.is_fresh,
            arms_state=version.arms_state,
        )

    def _unit(self, request: ArmRequest) -> str | None:
        if self.settings.sticky == "user":
            return f"user:{request.user_id}"
        session = (request.context or {}).get("session_id")
        if self.settings.sticky == "session" and session is not None:
            return f"session:{session}"
        return None

    def _group(self) -> Group:
        group = self.store.group(self.system, self.agent_type)
        if group is None:
            raise NoArmsError(f"no arm is active for `{self.system}` / `{self.agent_type}`")
        return group

    def _current(self, request: ArmRequest) -> PolicyVersion:
        """Return the current policy, making the next version if it is stale."""
        while True:
            group, version = self._group(), self._version
            if group.kind == "linear":
                return self._contextual_version(group, request)
            if (
                version is not None
                and version.group.revision == group.revision
                and not version.policy.is_stale(group.n, patience=self._patience)
            ):
                self._is_current = True
                return version
            policy = self._stored_version(group) if group.version else None
            if policy is None or policy.policy.is_stale(group.n, patience=self._patience):
                policy = self._next_version(group)
                # The maker of the latest version makes the next one; if all did, all but one would
                # work in vain.
                self._patience = OTHERS_PATIENCE if policy is None else 1.0
            if policy is not None:
                self._version, self._is_current = policy, True
                return policy

    def _contextual_version(self, group: Group, request: ArmRequest) -> PolicyVersion:
        """Return the policy of contextual arms for one request."""
        if self._contextual is None:
            self._contextual = ContextualFold(self.store, group)
        arms = self._on_offer(self.store.arms(group.group_id))
        context = request.context or {}
        features = request.features
        if features is None:
            features = features_of(context, request.text)
        posterior = self._contextual.posterior(group, arms, request.user_id, features)
        names = {name: v for name, v in context.items() if name in NOT_FEATURES}
        return PolicyVersion(
            group=group,
            policy=Policy.of(posterior.propensities, n=group.n, explore=self.settings.even_share),
            number=0,
            arms=arms,
            mean_sd=posterior.mean_sd,
            context={**names, **features} or request.context,
        )

    def _on_offer(self, all_arms: Sequence[StoredArm]) -> tuple[StoredArm, ...]:
        arms = tuple(arm for arm in all_arms if not arm.is_retired)
        if not arms:
            name = f"`{self.system}` / `{self.agent_type}`"
            raise NoArmsError(f"all arms of {name} are retired: `convergence arms add` offers one")
        return arms

    def _stored_version(self, group: Group) -> PolicyVersion | None:
        """Return the latest stored version; ``None`` if arms have changed since."""
        policy = self.store.policy(group.group_id, group.version)
        arms = tuple(a for a in self.store.arms(group.group_id) if not a.is_retired)
        if policy.design.get("revision") != group.revision:
            return None
        return PolicyVersion(
            group=group,
            policy=Policy.of(policy.shares, n=policy.n),
            number=policy.version,
            arms=arms,
        )

    def _next_version(self, group: Group) -> PolicyVersion | None:
        """Make and store the next version; return ``None`` if another process was first."""
        all_arms = self.store.arms(group.group_id)
        arms = self._on_offer(all_arms)
        test = None
        if self.settings.mode == "verdict":
            test = self._evidence.test(group.group_id, all_arms)
        explore = self.settings.even_share
        if group.n < group.explore_until:
            explore = max(explore, EXPLORE_AFTER_ALARM)
        shares = self._shares(group, all_arms, test)
        watched = self._watched(group, arms, shares, explore)
        policy = (
            Policy.of(shares, n=group.n, explore=explore)
            if watched is None
            else Policy.of(watched, n=group.n, explore=0.0)
        )
        out = [] if test is None else np.flatnonzero(test.eliminated).tolist()
        design = design_of(all_arms, [all_arms[index].arm_id for index in out])
        design["revision"] = group.revision
        stored = StoredPolicy(
            version=group.version + 1,
            mode=self.settings.mode,
            n=group.n,
            arms=tuple(arm.arm_id for arm in arms),
            shares=policy.propensities,
            design=design,
        )
        if not self.store.save_policy(group.group_id, stored):
            return None
        return PolicyVersion(
            group=replace(group, version=stored.version),
            policy=policy,
            number=stored.version,
            arms=arms,
        )

    def _watched(
        self, group: Group, arms: Sequence[StoredArm], shares: np.ndarray, explore: float
    ) -> np.ndarray | None:
        """Return the shares under an active guard; ``None`` if there is none.

        On the ramp, promoted arm and control share all requests. At its last step the control gets
        the hold-back, and the other arms share the rest by the bandit's shares.
        """
        guard = active_guard(self.store, group.group_id)
        names = [arm.arm_id for arm in arms]
        if guard is None or not {guard.promoted, guard.champion} <= set(names):
            return None
        control, promoted = names.index(guard.champion), names.index(guard.promoted)
        is_other = np.arange(len(arms)) != control
        others = np.where(is_other, shares, 0.0)
        if guard.steps or not others.any():
            others = np.eye(len(arms))[promoted]
        else:
            others = (1.0 - explore) * others / others.sum() + explore * is_other / is_other.sum()
        return np.where(is_other, guard.shares[0] * others, 1.0 - guard.shares[0])

    def _shares(
        self, group: Group, all_arms: Sequence[StoredArm], test: BestArmTest | None
    ) -> np.ndarray:
        """Return the shares of the active arms before exploration."""
        on_offer = np.array([not arm.is_retired for arm in all_arms])
        if test is not None:
            with self._mutex:
                wanted = verdict_shares(test, self._rng)[on_offer]
            if wanted.sum() > 0.0:
                return np.asarray(wanted / wanted.sum())
        arms = [arm for arm in all_arms if not arm.is_retired]
        return prob_best(arms, group.trust)


class ArmSelection(Operation[RuntimeSelection]):
    """Choice of an arm; without an active arm the default serves and nothing is logged."""

    def __init__(self, bandit: Callable[[], Bandit], request: ArmRequest) -> None:
        """Choose by the bandit that ``bandit`` returns during preparation."""
        self._bandit_of, self._request = bandit, request
        self._bandit: Bandit | None = None
        self._uniform = 0.0
        self._proposed: tuple[PolicyVersion, NewDecision] | None = None
        self._logged: LoggedDecision | None = None
        self._default: RuntimeSelection | None = None

    def read(self) -> None:
        """Compute the features of linear arms before the transaction: an embedder takes time."""
        request = self._request
        if request.features is None and self._bandit_of().settings.kind == "linear":
            embedder = text_embedder(is_served=True)
            features = features_of(request.context, request.text, embedder)
            self._request = replace(request, features=features)

    def prepare(self) -> None:
        """Choose by the current policy."""
        self.read()
        bandit = self._bandit_of()
        # A repeated preparation by the same bandit uses the same random number.
        if bandit is not self._bandit:
            self.system = bandit.system
            self._bandit, self._uniform = bandit, bandit.uniform()
        self._default, self.writes, self.is_outdated = None, True, False
        try:
            self._proposed = bandit.propose(self._request, self._uniform)
        except NoArmsError:
            self._default, self.writes = bandit.default(), False
            if self._default is None:
                raise

    def write(self, connection: Connection) -> None:
        """Log the decision unless its policy is outdated."""
        assert self._bandit is not None  # noqa: S101 - prepared
        assert self._proposed is not None  # noqa: S101 - prepared
        self._logged = self._bandit.log(connection, *self._proposed)
        self.is_outdated = self._logged is None

    @property
    def is_repeat(self) -> bool:
        """Whether the request repeats an earlier one, so that nothing new was logged."""
        logged, proposed = self._logged, self._proposed
        return bool(logged and proposed and logged.decision_id != proposed[1].decision_id)

    def result(self) -> RuntimeSelection:
        """Return the arm."""
        if self._default is not None:
            return self._default
        assert self._bandit is not None  # noqa: S101 - prepared
        assert self._proposed is not None  # noqa: S101 - prepared
        assert self._logged is not None  # noqa: S101 - written
        return self._bandit.answer(self._proposed[0], self._logged)
