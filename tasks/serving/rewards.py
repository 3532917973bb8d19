"""Rewards as callers give them, taken in as operations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from convergence_core.bandit import Alarm, Receipt
from convergence_core.bandit.arms import finite_reward
from convergence_core.errors import WrongUserError
from tasks.secrets.process_redaction import stored_json
from tasks.serving.answers import RewardOutcome, Status
from tasks.serving.operations import Operation
from tasks.serving.settings import RewardMetric
from tasks.store.database import Connection
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.writes import NewReward, check_cost, take_reward


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The reward of a decision, as a caller gives it."""

    user_id: str | None = None
    """The user that the decision served; ``None``: the decision's own."""
    decision_id: str | None = None
    """``None``: a default served."""
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

    def meant(self, metrics: Callable[[], tuple[RewardMetric, ...]]) -> float | None:
        """Return the reward that is meant, ``None`` if there is none.

        Args:
            metrics: how signals become a reward; asked where there are signals.

        Raises:
            ValueError: a signal is not in [0, 1].
        """
        signals = self.signals
        if signals is not None:
            given = [metric for metric in metrics() if metric.name in signals]
            for metric in given:
                if not 0.0 <= signals[metric.name] <= 1.0:
                    raise ValueError(
                        f"signals.{metric.name} must lie in [0, 1], but got {signals[metric.name]}"
                    )
            total = sum(metric.weight for metric in given)
            if total:
                return sum(metric.weight * signals[metric.name] for metric in given) / total
        return self.reward if self.reward is not None else self.engagement_score

    def outcome(
        self,
        status: Status,
        reward: float | None,
        *,
        learns: bool = False,
        alarm: Alarm | None = None,
    ) -> RewardOutcome:
        """Return the effect of this reward."""
        return RewardOutcome(
            success=status in {"ok", "late", "duplicate"},
            status=status,
            reward=reward,
            engagement_score=self.engagement_score,
            grading_score=self.grading_score,
            computed_update={"alpha": reward, "beta": 1.0 - reward}
            if learns and reward is not None
            else None,
            alarm=None if alarm is None else _sentence(alarm),
        )

    @property
    def details_json(self) -> str | None:
        """All that is given beside the reward; ``None``: nothing."""
        details: dict[str, Any] = {
            "signals": None if self.signals is None else dict(self.signals),
            "engagement_score": self.engagement_score,
            "grading_score": self.grading_score,
            "cost": self.cost,
            "metadata": None if self.metadata is None else dict(self.metadata),
        }
        given = {name: value for name, value in details.items() if value is not None}
        return stored_json(given) if given else None


class RewardUpdate(Operation[RewardOutcome]):
    """The taking in of a reward, by the settings that the store keeps."""

    def __init__(
        self,
        store: RuntimeStore,
        system: str,
        given: Reward,
        metrics: Callable[[], tuple[RewardMetric, ...]] = tuple,
    ) -> None:
        self.system = system
        self._store, self._given, self._metrics = store, given, metrics
        self._new: NewReward | None = None
        self._reward: float | None = None
        self._written: tuple[Receipt, Alarm | None] | None = None
        self._refusal: WrongUserError | None = None

    def prepare(self) -> None:
        """Find out which number is the reward; without one nothing is written."""
        given = self._given
        self._reward = given.meant(self._metrics)
        self.writes = self._reward is not None and given.decision_id is not None
        if self._reward is None or given.decision_id is None:
            return
        self._new = NewReward(
            system=self.system,
            decision_id=given.decision_id,
            reward=finite_reward(self._reward),
            user_id=given.user_id,
            details_json=given.details_json,
            cost=given.cost,
        )

    def write(self, connection: Connection) -> None:
        """Take the reward in."""
        assert self._new is not None  # noqa: S101 - prepared
        try:
            self._written = take_reward(connection, self._new, self._store.now_us())
        except WrongUserError as error:  # the transaction is shared with other requests
            self._refusal = error

    def result(self) -> RewardOutcome:
        """Return its effect.

        Raises:
            WrongUserError: the decision served another user.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._written is None:
            return self._given.outcome("none", self._reward)
        receipt, alarm = self._written
        return self._given.outcome(
            receipt.status, self._reward, learns=receipt.learns, alarm=alarm
        )


def _sentence(alarm: Alarm) -> str:
    name = "mean reward of all arms" if alarm.arm is None else "mean reward"
    return f"{name} went from {alarm.before:.3g} to {alarm.after:.3g}"
