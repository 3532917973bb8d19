"""Requests as operations: prepared, written in a transaction, answered.

Many may share one commit (``Committer``). Each is prepared outside the transaction, where reading
and computing delay nothing. Its writes are decided in memory, so that they can be repeated if the
transaction is rolled back.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from convergence_core.bandit.arms import Receipt, checked_reward
from convergence_core.bandit.drift import Alarm
from convergence_core.errors import RewardError, WrongUserError
from tasks.serving.answers import RewardOutcome, Status
from tasks.serving.settings import RewardMetric
from tasks.store.database import Connection
from tasks.store.runtime.rows import Reward
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.writes import take_reward

Result = TypeVar("Result")


class Operation(ABC, Generic[Result]):
    """One request."""

    system: str = ""
    """System whose rows change. Operations of one transaction are sorted by it, to avoid deadlocks
    between transactions.
    """
    writes: bool = True
    """Whether there is anything to write after preparation."""
    is_outdated: bool = False
    """Whether the state had changed before the write, so that nothing is written and the operation
    must be prepared again.
    """

    @abstractmethod
    def prepare(self) -> None:
        """Read and compute the values to write, outside a transaction."""

    @abstractmethod
    def write(self, connection: Connection) -> None:
        """Write the prepared values; may be called again after a rollback."""

    @abstractmethod
    def result(self) -> Result:
        """Return the answer after the write is durable."""


class _OutdatedError(Exception):
    """Ends a transaction in which nothing was written."""


def performed(store: RuntimeStore, operation: Operation[Result]) -> Result:
    """Perform one operation in its own transaction."""
    while True:
        operation.prepare()
        if not operation.writes:
            return operation.result()
        # Rolled back, since an empty commit would wait for the disk.
        with contextlib.suppress(_OutdatedError), store.database.transaction() as connection:
            operation.write(connection)
            if operation.is_outdated:
                raise _OutdatedError
        if not operation.is_outdated:
            return operation.result()


class RewardUpdate(Operation[RewardOutcome]):
    """Storage of a reward, by the settings in the store."""

    def __init__(
        self,
        store: RuntimeStore,
        system: str,
        new: Reward,
        metrics: Callable[[], tuple[RewardMetric, ...]] = tuple,
    ) -> None:
        self.system = system
        self._store, self._new, self._metrics = store, new, metrics
        self._reward: float | None = None
        self._written: tuple[Receipt, Alarm | None] | None = None
        self._refusal: WrongUserError | None = None

    def prepare(self) -> None:
        """Compute the reward's value; without one nothing is written."""
        self._reward = _value(self._new, self._metrics)
        self.writes = self._reward is not None and self._new.decision_id is not None
        if self._reward is not None:
            checked_reward(self._reward)

    def write(self, connection: Connection) -> None:
        """Store the reward."""
        assert self._reward is not None  # noqa: S101 - prepared
        now = self._store.now_us()
        try:
            self._written = take_reward(connection, self.system, self._new, self._reward, now)
        except WrongUserError as error:  # other requests share the transaction
            self._refusal = error

    def result(self) -> RewardOutcome:
        """Return the effect of the reward.

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
            engagement_score=self._new.engagement_score,
            grading_score=self._new.grading_score,
            computed_update=update,
            alarm=None if alarm is None else _sentence(alarm),
        )


def _value(new: Reward, metrics: Callable[[], tuple[RewardMetric, ...]]) -> float | None:
    """Return the value of a reward; ``None`` if it has none.

    Args:
        new: the reward.
        metrics: returns the weights of signals; called if there are signals.

    Raises:
        ValueError: a signal is not in [0, 1].
    """
    signals = new.signals
    if signals is not None:
        known = [metric for metric in metrics() if metric.name in signals]
        for metric in known:
            if not 0.0 <= signals[metric.name] <= 1.0:
                raise RewardError(
                    f"signals.{metric.name} must lie in [0, 1], but got {signals[metric.name]}"
                )
        total = sum(metric.weight for metric in known)
        if total:
            return sum(metric.weight * signals[metric.name] for metric in known) / total
    return new.reward if new.reward is not None else new.engagement_score


def _sentence(alarm: Alarm) -> str:
    return f"mean reward went from {alarm.before:.3g} to {alarm.after:.3g}"
