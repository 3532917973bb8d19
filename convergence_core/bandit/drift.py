"""Drift detection for the arms of a system, with a stated rate of false alarms.

Each arm's rewards have confidence sequences of their own (``global_drift``).

*False alarms.* Without a change an alarm needs a sequence that misses. One that begins at a given
block ever misses with probability at most ``a``, whatever was before; so the expected number of
misses by the alarm is at most ``a`` times the expected number of blocks by then, and it is at least
1: the mean time to a false alarm is ``1 / a`` blocks or more (1). That holds for the blocks of all
arms together, so the rate stated is that of the whole system, whatever traffic each arm gets.

*All arms together.* Where there are two arms or more, the stream of all of them is watched too
(``global_drift``). Its sequences have ``GLOBAL_ERROR_SHARE`` of the error of a block and the arms'
own the rest, so the rate is that of both together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from convergence_core.bandit.arms import checked_reward
from convergence_core.bandit.global_drift import (
    BLOCK,
    Change,
    ConfidenceSequence,
    GlobalDriftDetector,
    Sequences,
    narrowed,
    sums_of,
    thinned,
    younger_of_disagreeing,
)
from convergence_core.gate import betting
from convergence_core.records import Json

REWARDS_PER_FALSE_ALARM = 20_000.0
"""Default of the least mean number of rewards from one false alarm to the next."""
GLOBAL_ERROR_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A detected change."""

    arm: int | None
    """``None`` for the system as a whole."""
    n: int
    """Rewards of this arm, or of all, since the watch began."""
    before: float
    """Mean reward of the part before the change, roughly."""
    after: float
    """Mean reward since."""
    n_after: int
    """Rewards since, roughly."""
    since: tuple[tuple[float, int], ...] = ()
    """Of the whole: sum and number of each arm's rewards since, roughly, (n_arms,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmWatch:
    """Sequences of one arm since its last alarm."""

    sequences: Sequences = ()
    pending_total: float = 0.0
    pending_n: int = 0
    """Rewards of the block that is not full yet."""
    n: int = 0

    def tell(self, reward: float, error: float, n_all: int) -> "ArmWatch":
        """Return the watch after a reward, with all sequences looked at after a full block.

        Args:
            reward: in [0, 1].
            error: probability that a sequence ever misses.
            n_all: rewards of all arms, this one included.
        """
        total, n = self.pending_total + reward, self.pending_n + 1
        if n < BLOCK:
            return replace(self, pending_total=total, pending_n=n, n=self.n + 1)
        # It began at least so late: others' rewards lie between.
        new = ConfidenceSequence(low=0.0, high=1.0, begun=n_all - n)
        old = (*self.sequences, new)
        totals, squares, numbers = sums_of(old)
        totals, numbers = totals + total, numbers + n
        ends = betting.confidence_interval(totals, numbers - totals, error)
        return ArmWatch(sequences=narrowed(old, totals, squares, numbers, ends), n=self.n + 1)

    def since(self, begun: int) -> tuple[float, int]:
        """Return sum and number of the rewards since about so many rewards of all arms."""
        for sequence in self.sequences:
            if sequence.begun >= begun:
                return sequence.total + self.pending_total, sequence.n + self.pending_n
        return self.pending_total, self.pending_n


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftWatch:
    """Drift detection for all arms of a system."""

    rewards_per_false_alarm: float = REWARDS_PER_FALSE_ALARM
    """Least mean number of rewards, over all arms, from one false alarm to the next."""
    arms: tuple[ArmWatch, ...] = ()
    all_arms: GlobalDriftDetector = field(default_factory=GlobalDriftDetector)
    n: int = 0
    """Rewards of all arms."""

    def __post_init__(self) -> None:
        """Refuse a rate that no detector has.

        Raises:
            ValueError: less than two blocks of rewards from one false alarm to the next.
        """
        if not self.rewards_per_false_alarm >= 2 * BLOCK:
            raise ValueError(
                f"rewards_per_false_alarm must be {2 * BLOCK} or more, but got "
                f"{self.rewards_per_false_alarm}"
            )

    @classmethod
    def begin(
        cls, n_arms: int, *, rewards_per_false_alarm: float = REWARDS_PER_FALSE_ALARM
    ) -> "DriftWatch":
        """Return the watch before any reward."""
        return cls(rewards_per_false_alarm=rewards_per_false_alarm).widened(n_arms)

    def widened(self, n_arms: int) -> "DriftWatch":
        """Return the watch with arms added until there are so many."""
        missing = (ArmWatch(),) * (n_arms - len(self.arms))
        return replace(self, arms=self.arms + missing, all_arms=self.all_arms.widened(n_arms))

    def tell(
        self, arm: int, reward: float, propensity: float | None = None
    ) -> tuple["DriftWatch", Alarm | None]:
        """Return the watch after one reward, and the alarm if it raised one.

        After an alarm of an arm its watch begins anew, and that of all arms together; after one of
        all arms everything does.

        Args:
            arm: index of the arm that was chosen.
            reward: in [0, 1].
            propensity: with which it was chosen; ``None`` if it was not drawn, so the detector for
                all arms learns nothing.

        Raises:
            ValueError: the reward is not in [0, 1], or the propensity not in (0, 1].
        """
        value = checked_reward(reward)
        if propensity is not None and not 0.0 < propensity <= 1.0:
            raise ValueError(f"a propensity must lie in (0, 1], but got {propensity}")
        has_several = len(self.arms) > 1
        error = BLOCK / self.rewards_per_false_alarm  # (eq. 1)
        of_arms = error * (1.0 - GLOBAL_ERROR_SHARE) if has_several else error
        new = self.arms[arm].tell(value, of_arms, self.n + 1)
        alarm = None if new.pending_n else _alarm(arm, new)
        if alarm is not None:
            new = ArmWatch()
        elif not new.pending_n:
            new = replace(new, sequences=thinned(new.sequences))
        arms = (*self.arms[:arm], new, *self.arms[arm + 1 :])
        updated = replace(self, arms=arms, n=self.n + 1)
        if alarm is not None:
            return replace(updated, all_arms=self.all_arms.reset()), alarm
        if not has_several or propensity is None:
            return updated, None
        detector, change = self.all_arms.tell(arm, value, propensity, error * GLOBAL_ERROR_SHARE)
        updated = replace(updated, all_arms=detector)
        return (updated, None) if change is None else updated._after(change)

    def _after(self, change: Change) -> tuple["DriftWatch", Alarm]:
        """Return the watch begun again, and the alarm of all arms together."""
        begun = self.n - change.n_after
        alarm = Alarm(
            arm=None,
            n=change.n,
            before=change.before,
            after=change.after,
            n_after=change.n_after,
            since=tuple(arm.since(begun) for arm in self.arms),
        )
        arms = (ArmWatch(),) * len(self.arms)
        return replace(self, arms=arms, all_arms=self.all_arms.reset()), alarm

    def to_json(self) -> dict[str, Json]:
        """Return a JSON value from which ``from_json`` makes an equal watch."""
        return {
            "rewards_per_false_alarm": self.rewards_per_false_alarm,
            "arms": [
                {
                    "sequences": [[s.total, s.n, s.low, s.high, s.begun] for s in arm.sequences],
                    "pending": [arm.pending_total, arm.pending_n],
                    "n": arm.n,
                }
                for arm in self.arms
            ],
            "whole": self.all_arms.to_json(),
            "n": self.n,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "DriftWatch":
        """Rebuild from ``to_json``.

        Raises:
            ValueError: the value was not made by ``to_json``.
        """
        try:
            arms = tuple(_arm_watch(arm) for arm in value["arms"])
            detector = GlobalDriftDetector().widened(len(arms))
            if "whole" in value:  # a watch of arms alone goes on
                detector = GlobalDriftDetector.from_json(value["whole"])
            rate = float(value["rewards_per_false_alarm"])
            n = int(value.get("n", 0))
            return cls(rewards_per_false_alarm=rate, arms=arms, all_arms=detector, n=n)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a drift watch: {str(value)[:80]}") from error


def _arm_watch(value: Mapping[str, Any]) -> ArmWatch:
    pending_total, pending_n = value["pending"]
    return ArmWatch(
        sequences=tuple(
            ConfidenceSequence(
                total=float(total), n=int(n), low=float(low), high=float(high), begun=sum(begun)
            )
            for total, n, low, high, *begun in value["sequences"]
        ),
        pending_total=float(pending_total),
        pending_n=int(pending_n),
        n=int(value["n"]),
    )


def _alarm(arm: int, watch: ArmWatch) -> Alarm | None:
    younger, oldest = younger_of_disagreeing(watch.sequences), watch.sequences[0]
    if younger is None:
        return None
    n_before = oldest.n - younger.n
    before = (oldest.total - younger.total) / n_before if n_before else oldest.total / oldest.n
    return Alarm(
        arm=arm, n=watch.n, before=before, after=younger.total / younger.n, n_after=younger.n
    )
