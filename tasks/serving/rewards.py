"""Rewards as callers give them, taken in as operations."""

from collections.abc import Callable

from convergence_core.bandit import Alarm, Receipt
from convergence_core.bandit.arms import checked_reward
from convergence_core.errors import WrongUserError
from tasks.serving.answers import RewardOutcome, Status
from tasks.serving.operations import Operation
from tasks.serving.settings import RewardMetric
from tasks.store.database import Connection
from tasks.store.runtime.rows import Reward
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.writes import take_reward


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
        self._reward: float | None = None
        self._written: tuple[Receipt, Alarm | None] | None = None
        self._refusal: WrongUserError | None = None

    def prepare(self) -> None:
        """Compute what the reward is worth; without that nothing is written."""
        self._reward = _value(self._given, self._metrics)
        self.writes = self._reward is not None and self._given.decision_id is not None
        if self._reward is not None:
            checked_reward(self._reward)

    def write(self, connection: Connection) -> None:
        """Take the reward in."""
        assert self._reward is not None  # noqa: S101 - prepared
        now = self._store.now_us()
        try:
            self._written = take_reward(connection, self.system, self._given, self._reward, now)
        except WrongUserError as error:  # the transaction is shared with other requests
            self._refusal = error

    def result(self) -> RewardOutcome:
        """Return its effect.

        Raises:
            WrongUserError: the decision served another user.
        """
        if self._refusal is not None:
            raise self._refusal
        receipt, alarm = self._written or (None, None)
        status: Status = "none" if receipt is None else receipt.status
        update = None
        if receipt is not None and receipt.learns and self._reward is not None:
            update = {"alpha": self._reward, "beta": 1.0 - self._reward}
        return RewardOutcome(
            success=status in {"ok", "late", "duplicate"},
            status=status,
            reward=self._reward,
            engagement_score=self._given.engagement_score,
            grading_score=self._given.grading_score,
            computed_update=update,
            alarm=None if alarm is None else _sentence(alarm),
        )


def _value(given: Reward, metrics: Callable[[], tuple[RewardMetric, ...]]) -> float | None:
    """Return what a reward is worth, ``None`` if it says nothing.

    Args:
        given: the reward.
        metrics: how signals become a reward; called if there are signals.

    Raises:
        ValueError: a signal is not in [0, 1].
    """
    signals = given.signals
    if signals is not None:
        known = [metric for metric in metrics() if metric.name in signals]
        for metric in known:
            if not 0.0 <= signals[metric.name] <= 1.0:
                raise ValueError(
                    f"signals.{metric.name} must lie in [0, 1], but got {signals[metric.name]}"
                )
        total = sum(metric.weight for metric in known)
        if total:
            return sum(metric.weight * signals[metric.name] for metric in known) / total
    return given.reward if given.reward is not None else given.engagement_score


def _sentence(alarm: Alarm) -> str:
    return f"mean reward went from {alarm.before:.3g} to {alarm.after:.3g}"
