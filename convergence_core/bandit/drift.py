"""Has an arm's mean reward changed, or that of all? An alarm with a stated rate of false ones.

A confidence sequence is begun at every block of rewards and all of them are kept up. While the mean
stays what it is, all cover it; when two of them have nothing in common, it has changed (S. Shekhar,
A. Ramdas, "Reducing sequential change detection to sequential estimation", 2024, the repeated
scheme). Neither the mean before nor after the change needs to be known.

*False alarms.* Without a change an alarm needs a sequence that misses. One that begins at a given
block ever misses with probability at most ``a``, whatever was before; so the expected number of
misses by the alarm is at most ``a`` times the expected number of blocks by then, and it is at least
1: the mean time to a false alarm is ``1 / a`` blocks or more. That holds for the blocks of all arms
together, so the rate stated is that of the whole system, whatever traffic each arm gets.

*The whole.* Where there are two arms or more, the stream of all of them is watched too (``whole``), by
sequences that begin at every block of all rewards. They have ``SHARE_OF_WHOLE`` of the error of a
block and the arms' own the rest, so the rate is that of both together.

Forgetting sequences makes an alarm later, never more frequent, so only ``N_STARTS`` are kept, the
older the sparser.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from convergence_core.bandit.arms import checked_reward
from convergence_core.bandit.global_drift import (
    Change,
    GlobalDriftDetector,
    from_json as whole_from_json,
    to_json as whole_to_json,
)
from convergence_core.gate import bernoulli
from convergence_core.records import Json

BLOCK = 10
"""Rewards from one beginning to the next."""
REWARDS_PER_FALSE_ALARM = 20_000.0
"""Default of the least mean number of rewards from one false alarm to the next."""
N_STARTS = 48
SHARE_OF_WHOLE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """One confidence sequence, from its block on."""

    total: float
    """Sum of rewards since."""
    n: int
    """Rewards since."""
    low: float
    high: float
    """What no look has excluded."""
    begun: int = 0
    """Rewards of all arms before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A change that was found."""

    arm: int | None
    """``None``: of the system as a whole."""
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
    """What is remembered of one arm since its last alarm."""

    sequences: tuple[Sequence, ...] = ()
    """By age, oldest first."""
    pending_total: float = 0.0
    pending_n: int = 0
    """The block that is not full yet."""
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftWatch:
    """All arms of a system."""

    rewards_per_false_alarm: float = REWARDS_PER_FALSE_ALARM
    """Least mean number of rewards, over all arms, from one false alarm to the next."""
    arms: tuple[ArmWatch, ...] = field(default=())
    whole: GlobalDriftDetector = field(default_factory=GlobalDriftDetector)
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
        return cls(
            rewards_per_false_alarm=rewards_per_false_alarm,
            arms=(ArmWatch(),) * n_arms,
            whole=GlobalDriftDetector().widened(n_arms),
        )

    def widened(self, n_arms: int) -> "DriftWatch":
        """Return the watch with arms added until there are so many."""
        missing = n_arms - len(self.arms)
        if missing <= 0:
            return self
        arms = (*self.arms, *(ArmWatch(),) * missing)
        return replace(self, arms=arms, whole=self.whole.widened(n_arms))

    def tell(
        self, arm: int, reward: float, propensity: float | None = None
    ) -> tuple["DriftWatch", Alarm | None]:
        """Return the watch after one reward, and the alarm if it raised one.

        After an alarm of an arm its watch begins anew, and that of the whole; after one of the whole
        all do.

        Args:
            arm: place of the arm that was chosen.
            reward: in [0, 1].
            propensity: with which it was chosen; ``None``: it was not drawn, so the whole learns
                nothing.

        Raises:
            ValueError: the reward is not in [0, 1], or the propensity not in (0, 1].
        """
        value, old = checked_reward(reward), self.arms[arm]
        if propensity is not None and not 0.0 < propensity <= 1.0:
            raise ValueError(f"a propensity must lie in (0, 1], but got {propensity}")
        has_whole = len(self.arms) > 1
        error = BLOCK / self.rewards_per_false_alarm
        of_arms = error * (1.0 - SHARE_OF_WHOLE) if has_whole else error
        new = replace(
            old,
            pending_total=old.pending_total + value,
            pending_n=old.pending_n + 1,
            n=old.n + 1,
        )
        alarm = None
        if new.pending_n >= BLOCK:
            sequences = _looked(new, of_arms, self.n + 1)
            alarm = _alarm(arm, new.n, sequences)
            new = ArmWatch(sequences=_thinned(sequences), n=new.n) if alarm is None else ArmWatch()
        told = replace(self, arms=(*self.arms[:arm], new, *self.arms[arm + 1 :]), n=self.n + 1)
        if alarm is not None:
            return replace(told, whole=self.whole.anew()), alarm
        if not has_whole or propensity is None:
            return told, None
        whole, change = self.whole.tell(arm, value, propensity, error * SHARE_OF_WHOLE)
        told = replace(told, whole=whole)
        return (told, None) if change is None else told._changed(change)

    def _changed(self, change: Change) -> tuple["DriftWatch", Alarm]:
        """Return the watch begun anew, and the alarm of the whole."""
        begun = self.n - change.n_after
        alarm = Alarm(
            arm=None,
            n=change.n,
            before=change.before,
            after=change.after,
            n_after=change.n_after,
            since=tuple(_since(one, begun) for one in self.arms),
        )
        arms = (ArmWatch(),) * len(self.arms)
        return replace(self, arms=arms, whole=self.whole.anew()), alarm

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
            "whole": whole_to_json(self.whole),
            "n": self.n,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> "DriftWatch":
        """Rebuild from ``to_json``.

        Raises:
            ValueError: the value was not made by ``to_json``.
        """
        try:
            arms = tuple(_arm_of(arm) for arm in _listed(value["arms"]))
            return cls(
                rewards_per_false_alarm=float(str(value["rewards_per_false_alarm"])),
                arms=arms,
                whole=(
                    whole_from_json(value["whole"])
                    if "whole" in value  # a watch of arms alone goes on
                    else GlobalDriftDetector().widened(len(arms))
                ),
                n=int(str(value.get("n", 0))),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a drift watch: {str(value)[:80]}") from error


def _listed(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise TypeError(f"not a list: {str(value)[:80]}")
    return value


def _arm_of(value: Json) -> ArmWatch:
    if not isinstance(value, dict):
        raise TypeError(f"not an object: {str(value)[:80]}")
    total, n = (float(str(number)) for number in _listed(value["pending"]))
    sequences = []
    for row in _listed(value["sequences"]):
        numbers = [float(str(number)) for number in _listed(row)]
        sequences.append(
            Sequence(
                total=numbers[0],
                n=int(numbers[1]),
                low=numbers[2],
                high=numbers[3],
                begun=int(numbers[4]) if len(numbers) > 4 else 0,
            )
        )
    return ArmWatch(
        sequences=tuple(sequences),
        pending_total=total,
        pending_n=int(n),
        n=int(str(value["n"])),
    )


def _looked(watch: ArmWatch, error: float, n: int) -> tuple[Sequence, ...]:
    """Return all sequences after a full block, the one that begins with it included."""
    begun = n - watch.pending_n  # at least: others' rewards lie between
    old = (*watch.sequences, Sequence(total=0.0, n=0, low=0.0, high=1.0, begun=begun))
    totals = np.array([s.total for s in old]) + watch.pending_total
    numbers = np.array([s.n for s in old]) + watch.pending_n
    lows, highs = bernoulli.confidence_interval(totals, numbers - totals, error)
    return tuple(
        Sequence(
            total=float(total),
            n=int(number),
            low=max(s.low, float(low)),
            high=min(s.high, float(high)),
            begun=s.begun,
        )
        for s, total, number, low, high in zip(old, totals, numbers, lows, highs, strict=True)
    )


def _alarm(arm: int, n: int, sequences: tuple[Sequence, ...]) -> Alarm | None:
    highest = max(sequences, key=lambda s: s.low)
    lowest = min(sequences, key=lambda s: s.high)
    if highest.low <= lowest.high:
        return None
    # The younger of the two began after most of the change; the oldest saw all that was before.
    younger = min(highest, lowest, key=lambda s: s.n)
    oldest = sequences[0]
    n_before = oldest.n - younger.n
    before = (oldest.total - younger.total) / n_before if n_before else oldest.total / oldest.n
    return Alarm(arm=arm, n=n, before=before, after=younger.total / younger.n, n_after=younger.n)


def _since(watch: ArmWatch, begun: int) -> tuple[float, int]:
    """Return sum and number of an arm's rewards since about so many rewards of all."""
    for one in watch.sequences:
        if one.begun >= begun:
            return one.total + watch.pending_total, one.n + watch.pending_n
    return watch.pending_total, watch.pending_n


def _thinned(sequences: tuple[Sequence, ...]) -> tuple[Sequence, ...]:
    """Drop every second of the older half, but the oldest, when there are too many."""
    if len(sequences) <= N_STARTS:
        return sequences
    half = len(sequences) // 2
    return (*sequences[:half:2], *sequences[half:])
