"""A reward as an operation, and what became of it."""

from collections.abc import Callable
from dataclasses import dataclass

from convergence_core.bandit.arms import finite_reward
from convergence_core.bandit.receipts import ReceiptStatus
from tasks.serving.operations import Operation
from tasks.store.database import Connection
from tasks.store.runtime.writes import NewReward, RewardTerms, take_reward


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardOutcome:
    """What became of a reward."""

    status: ReceiptStatus
    learned: bool
    alarm: str | None
    """The alarm it raised, in words; ``None``: none."""


class RewardWrite(Operation[RewardOutcome]):
    """A reward; without terms by the settings that the store keeps."""

    def __init__(
        self, new: NewReward, now_us: Callable[[], int], terms: RewardTerms | None = None
    ) -> None:
        self._new, self._terms, self._now_us = new, terms, now_us
        self._learned: RewardOutcome | None = None

    def prepare(self) -> None:
        """Refuse what is no number before a transaction begins."""
        finite_reward(self._new.reward)

    def write(self, connection: Connection) -> None:
        """Take the reward in."""
        receipt, alarm = take_reward(connection, self._new, self._now_us(), self._terms)
        told = None
        if alarm is not None:
            whose = "mean reward of all arms" if alarm.arm is None else "mean reward"
            told = f"{whose} went from {alarm.before:.3g} to {alarm.after:.3g}"
        self._learned = RewardOutcome(status=receipt.status, learned=receipt.learns, alarm=told)

    def result(self) -> RewardOutcome:
        """Return what became of it."""
        assert self._learned is not None  # noqa: S101 - written
        return self._learned
