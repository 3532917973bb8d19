"""Has an arm's mean reward changed? An alarm with a stated rate of false ones.

A confidence sequence is begun at every block of rewards and all of them are kept up. While the mean
stays what it is, all cover it; when two of them have nothing in common, it has changed (S. Shekhar,
A. Ramdas, "Reducing sequential change detection to sequential estimation", 2024, the repeated
scheme). Neither the mean before nor after the change needs to be known.

*False alarms.* Without a change an alarm needs a sequence that misses. One that begins at a given
block ever misses with probability at most ``a``, whatever was before; so the expected number of
misses by the alarm is at most ``a`` times the expected number of blocks by then, and it is at least
1: the mean time to a false alarm is ``1 / a`` blocks or more. That holds for the blocks of all arms
together, so the rate stated is that of the whole system, whatever traffic each arm gets.

Forgetting sequences makes an alarm later, never more frequent, so only ``N_STARTS`` are kept, the
older the sparser.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from convergence_core.bandit.arms import checked_reward
from convergence_core.gate import bernoulli
from convergence_core.records import Json

BLOCK = 10
"""Rewards from one beginning to the next."""
N_STARTS = 48


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A change that was found."""

    arm: int
    n: int
    """Rewards of this arm since its watch began."""
    before: float
    """Mean reward of the part before the change, roughly."""
    after: float
    """Mean reward since."""
    n_after: int
    """Rewards since, roughly."""


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

    rewards_per_false_alarm: float = 20_000.0
    """Least mean number of rewards, over all arms, from one false alarm to the next."""
    arms: tuple[ArmWatch, ...] = field(default=())

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
    def begin(cls, n_arms: int, *, rewards_per_false_alarm: float = 20_000.0) -> "DriftWatch":
        """Return the watch before any reward."""
        return cls(
            rewards_per_false_alarm=rewards_per_false_alarm,
            arms=(ArmWatch(),) * n_arms,
        )

    def widened(self, n_arms: int) -> "DriftWatch":
        """Return the watch with arms added until there are so many."""
        missing = n_arms - len(self.arms)
        return self if missing <= 0 else replace(self, arms=(*self.arms, *(ArmWatch(),) * missing))

    def tell(self, arm: int, reward: float) -> tuple["DriftWatch", Alarm | None]:
        """Return the watch after one reward, and the alarm if it raised one.

        After an alarm the arm's watch begins anew.

        Raises:
            ValueError: the reward is not in [0, 1].
        """
        value, old = checked_reward(reward), self.arms[arm]
        new = replace(
            old,
            pending_total=old.pending_total + value,
            pending_n=old.pending_n + 1,
            n=old.n + 1,
        )
        alarm = None
        if new.pending_n >= BLOCK:
            error = BLOCK / self.rewards_per_false_alarm
            sequences = _looked(new, error)
            alarm = _alarm(arm, new.n, sequences)
            new = ArmWatch(sequences=_thinned(sequences), n=new.n) if alarm is None else ArmWatch()
        arms = (*self.arms[:arm], new, *self.arms[arm + 1 :])
        return replace(self, arms=arms), alarm

    def to_json(self) -> dict[str, Json]:
        """Return a JSON value from which ``from_json`` makes an equal watch."""
        return {
            "rewards_per_false_alarm": self.rewards_per_false_alarm,
            "arms": [
                {
                    "sequences": [[s.total, s.n, s.low, s.high] for s in arm.sequences],
                    "pending": [arm.pending_total, arm.pending_n],
                    "n": arm.n,
                }
                for arm in self.arms
            ],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> "DriftWatch":
        """Rebuild from ``to_json``.

        Raises:
            ValueError: the value was not made by ``to_json``.
        """
        try:
            return cls(
                rewards_per_false_alarm=float(str(value["rewards_per_false_alarm"])),
                arms=tuple(_arm_of(arm) for arm in _listed(value["arms"])),
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
            Sequence(total=numbers[0], n=int(numbers[1]), low=numbers[2], high=numbers[3])
        )
    return ArmWatch(
        sequences=tuple(sequences),
        pending_total=total,
        pending_n=int(n),
        n=int(str(value["n"])),
    )


def _looked(watch: ArmWatch, error: float) -> tuple[Sequence, ...]:
    """Return all sequences after a full block, the one that begins with it included."""
    old = (*watch.sequences, Sequence(total=0.0, n=0, low=0.0, high=1.0))
    totals = np.array([s.total for s in old]) + watch.pending_total
    numbers = np.array([s.n for s in old]) + watch.pending_n
    lows, highs = bernoulli.confidence_interval(totals, numbers - totals, error)
    return tuple(
        Sequence(
            total=float(total), n=int(n), low=max(s.low, float(low)), high=min(s.high, float(high))
        )
        for s, total, n, low, high in zip(old, totals, numbers, lows, highs, strict=True)
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


def _thinned(sequences: tuple[Sequence, ...]) -> tuple[Sequence, ...]:
    """Drop every second of the older half, but the oldest, when there are too many."""
    if len(sequences) <= N_STARTS:
        return sequences
    half = len(sequences) // 2
    return (*sequences[:half:2], *sequences[half:])
