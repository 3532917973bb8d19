"""Systems served from one store, by their stored settings.

A request is an ``Operation``. Python's functions perform each one separately, the HTTP service
many per commit.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from convergence_core.bandit.priors import TRUST, nightly_prior
from convergence_core.errors import NoArmsError
from convergence_core.records import Json, Params
from convergence_core.space import same_params
from tasks.serving.answers import Arm, as_dict
from tasks.serving.bandit import ArmRequest, ArmSelection, Bandit
from tasks.serving.offers import arm_id_of, offer_of
from tasks.serving.operations import RewardUpdate
from tasks.serving.settings import RuntimeArm, RuntimeConfig, read_settings
from tasks.store.runtime.promotions import champion_of, looks
from tasks.store.runtime.rows import ArmOffer, Decision, Group, Reward
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import active_guard, alarms, guards_of

_Known: TypeAlias = tuple[str | None, RuntimeConfig, dict[str, Bandit]]
"""A system's settings as JSON and as parsed, and their bandits by agent type."""


class Systems:
    """All systems of one store. Thread-safe."""

    def __init__(self, store: RuntimeStore) -> None:
        self.store = store
        self._mutex = threading.Lock()
        self._known: dict[str, _Known] = {}

    def configure(self, config: RuntimeConfig, *, replaces: bool = False) -> None:
        """Store a system's settings and activate its default arms.

        Args:
            config: the settings.
            replaces: whether to retire the arms of an optimization's earlier candidates, if the
                stored settings hold nothing else.

        Raises:
            ArmChangedError: an arm of that name has other parameters.
            StoreWriteError: the settings were not stored.
        """
        before = self.config(config.system)
        if config.default_arms:
            self.offer(config.system, config.default_arms, config=config)
        bare = tuple(RuntimeArm(params=arm.params) for arm in before.default_arms)
        if replaces and before == RuntimeConfig(system=config.system, default_arms=bare):
            self._withdraw(config, {arm_id_of(arm.params) for arm in bare})
        self.store.save_settings(config.system, config.model_dump(mode="json"))

    def _withdraw(self, config: RuntimeConfig, names: set[str]) -> None:
        """Retire arms that are neither defaults nor champion nor on a ramp."""
        group = self.known_group(config.system, config.agent_type)
        guard = active_guard(self.store, group.group_id)
        champion = champion_of(self.store, config.system)
        names -= {arm_id_of(arm.params) for arm in config.default_arms}
        names -= set() if guard is None else {guard.promoted, guard.champion}
        for arm in self.store.arms(group.group_id):
            reigns = champion is not None and same_params(
                cast("Params", arm.params), champion.params
            )
            if arm.arm_id in names and not arm.is_retired and not reigns:
                self.store.retire(config.system, config.agent_type, arm.arm_id)

    def offer(
        self,
        system: str,
        arms: Sequence[RuntimeArm],
        agent_type: str | None = None,
        *,
        config: RuntimeConfig | None = None,
    ) -> list[str]:
        """Activate arms in all processes; return their names.

        Raises:
            ArmChangedError: an arm of that name has other parameters; nothing is activated.
        """
        config = config or self.config(system)
        offers = [_offer(arm) for arm in arms]
        kind = agent_type or config.agent_type
        self.store.offer(system, kind, offers, trust=TRUST, kind=config.kind)
        return [offer.arm_id for offer in offers]

    def config(self, system: str) -> RuntimeConfig:
        """Return a system's settings; the defaults if it was never configured."""
        return self._latest(system)[1]

    def bandit(self, system: str, agent_type: str | None = None) -> Bandit:
        """Return the bandit of an agent type with the latest settings."""
        _, config, bandits = self._latest(system)
        name = agent_type or config.agent_type
        with self._mutex:
            if name not in bandits:
                bandits[name] = Bandit(self.store, system, name, settings=config, seed=config.seed)
            return bandits[name]

    def selection(
        self,
        system: str,
        *,
        user_id: str,
        agent_type: str | None = None,
        context: Mapping[str, Json] | None = None,
        text: str | None = None,
        request_key: str | None = None,
    ) -> ArmSelection:
        """Return the choice of an arm; without an active arm the first default serves.

        Raises, when performed:
            NoArmsError: there is neither an arm nor a default.
            RequestReusedError: the key belongs to another request.
        """
        request = ArmRequest(user_id=user_id, context=context, text=text, key=request_key)
        return ArmSelection(lambda: self.bandit(system, agent_type), request)

    def update(self, system: str, reward: Reward) -> RewardUpdate:
        """Return the operation that stores a reward.

        Raises, when performed:
            ValueError: the reward or a signal is not in [0, 1].
            WrongUserError: the decision served another user.
        """
        return RewardUpdate(self.store, system, reward, lambda: self.config(system).reward_metrics)

    def arms(self, system: str, agent_type: str | None = None) -> list[Arm]:
        """Return all arms with their posteriors, including retired ones.

        Raises:
            NoArmsError: no arm was ever active there.
        """
        kinds = self._agent_types(system)
        if not kinds or agent_type not in {None, *kinds}:
            raise NoArmsError(f"no arm was ever active for `{system}`")
        return [
            Arm(
                **arm.state, params=dict(arm.params), run_id=arm.run_id, retired=arm.is_retired,
                agent_type=kind,
            )
            for kind in (kinds if agent_type is None else [agent_type])
            for arm in self.store.arms(self.known_group(system, kind).group_id)
        ]  # fmt: skip

    def retire(self, system: str, arm_id: str, agent_type: str | None = None) -> bool:
        """Retire an arm in all processes; return whether it was active.

        Raises:
            NoArmsError: no arm of that name was ever active there.
        """
        group = self.known_group(system, agent_type)
        if arm_id not in {arm.arm_id for arm in self.store.arms(group.group_id)}:
            raise NoArmsError(f"no arm `{arm_id}` was ever active for `{system}`")
        return self.store.retire(system, agent_type or self.config(system).agent_type, arm_id)

    def known_group(self, system: str, agent_type: str | None) -> Group:
        """Return a group.

        Raises:
            NoArmsError: no arm was ever active there.
        """
        kind = agent_type or self.config(system).agent_type
        group = self.store.group(system, kind)
        if group is None:
            raise NoArmsError(f"no arm was ever active for `{system}` / `{kind}`")
        return group

    def decision(self, system: str, user_id: str, decision_id: str) -> Decision | None:
        """Return a user's decision with its reward; ``None`` if there is none of that id."""
        decision = self.store.decision(decision_id)
        is_theirs = decision is not None and (decision.system, decision.user_id) == (
            system,
            user_id,
        )
        return decision if is_theirs else None

    def gates(self, system: str) -> dict[str, Any] | None:
        """Return the evidence of the traffic, every look of a gate, and the champion.

        ``None`` if the system is unknown.
        """
        kinds = self._agent_types(system)
        gate_looks, champion = looks(self.store, system), champion_of(self.store, system)
        if not kinds and not gate_looks and champion is None:
            return None
        evidence = {}
        for kind in kinds:
            bandit = self.bandit(system, kind)
            try:
                evidence[kind] = as_dict(bandit.evidence())
            except NoArmsError:
                continue  # a single arm has no comparison
        return {
            "evidence": evidence,
            "guards": guards_of(self.store, system),
            "alarms": alarms(self.store, system),
            "looks": gate_looks,
            "champion": champion,
        }

    def _agent_types(self, system: str) -> list[str]:
        return [kind for name, kind in self.store.systems() if name == system]

    def _latest(self, system: str) -> _Known:
        text = self.store.settings_text(system)
        with self._mutex:
            known = self._known.get(system)
            if known is None or known[0] != text:
                known = self._known[system] = text, read_settings(system, text), {}
            return known


def _offer(arm: RuntimeArm) -> ArmOffer:
    prior = None
    if arm.prior_mean is not None and arm.prior_sd is not None:
        prior = nightly_prior(arm.prior_mean, arm.prior_sd)
    return offer_of(arm.params, arm.arm_id, prior, arm.cost)
