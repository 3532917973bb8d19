"""Bandits that tests call and reward directly, with one commit per call."""

from collections.abc import Mapping

from convergence_core.records import Json
from tasks.serving import bandit
from tasks.serving.answers import RewardOutcome, RuntimeSelection
from tasks.serving.bandit import ArmRequest, ArmSelection
from tasks.serving.operations import RewardUpdate, performed
from tasks.store.runtime.rows import Reward


class Bandit(bandit.Bandit):
    """Bandit of one system, with the product's arguments."""

    def select(
        self,
        user_id: str,
        *,
        context: Mapping[str, Json] | None = None,
        request_key: str | None = None,
    ) -> RuntimeSelection:
        """Choose an arm and log the decision."""
        request = ArmRequest(user_id=user_id, context=context, key=request_key)
        return performed(self.store, ArmSelection(lambda: self, request))

    def update(self, decision_id: str | None, reward: float) -> RewardOutcome:
        """Learn a decision's reward under the stored settings."""
        given = Reward(decision_id=decision_id, reward=reward)
        return performed(self.store, RewardUpdate(self.store, self.system, given))
