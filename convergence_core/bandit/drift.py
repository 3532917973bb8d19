"""Drift detection for the arms of a system, by betting on standardised residuals.

While the rewards of an arm are exchangeable, the rank of each among the earlier ones, with ties
broken at random, is uniform and independent of the past (V. Vovk, A. Gammerman, G. Shafer,
"Algorithmic Learning in a Random World", 2005, theorem 8.1). So its normal score z is a residual
with a standard normal distribution, for any distribution of rewards. Two bets, d = ±``STAKE``, are
e-CUSUM detectors (J. Shin, A. Ramdas, A. Rinaldo, "E-detectors", NEJSDS 2023, section 2.3):

    p = (#{earlier < x} + U (#{earlier = x} + 1)) / n,    z = Phi^-1(p)                            (1)
    M <- exp(d z - d^2 / 2) max(M, 1)                                                              (2)

*False alarms.* Each M is at most the e-SR detector of its bet, whose sum over all arms minus the
number of rewards is a martingale. So the mean number of rewards, over all arms, until an alarm at
``M >= 2 rewards_per_false_alarm`` is at least ``rewards_per_false_alarm``, for any number of arms.

*A cycle that all arms share* breaks exchangeability but gives no reason to prefer another arm. So
an alarm must also hold against the other arms over the window since M was last 1. For deviations
of rewards from their arm's mean, own (a) minus others' (b), with variances s^2, it requires

    |a - b| >= CONTRAST sqrt(s_a^2 (1 / n_a + 1 / n) + s_b^2 / n_b)                                (3)

If the others have few rewards in the window, b is 0 with the variance of the common level,
estimated from means of ``BLOCK`` rewards over all time. This check only removes alarms. A change
that all arms share raises none. A single arm has no (3).
"""

import math
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from pydantic import TypeAdapter
from scipy.special import ndtri

from convergence_core.bandit.arms import checked_reward
from convergence_core.records import sha256_hex

REWARDS_PER_FALSE_ALARM = 20_000.0
"""Default minimum of the mean number of rewards between false alarms."""
STAKE: Final = 0.75
"""d, in standard deviations."""
CONTRAST: Final = 4.5
"""Minimum contrast, in standard errors."""
MIN_REWARDS: Final = 20
"""Minimum rewards of an arm before its bets start."""
BLOCK: Final = 50
N_CELLS: Final = 128
"""Resolution of ranks: rewards are ranked in steps of 1 / ``N_CELLS``."""
PRIOR_BLOCKS: Final = 10.0
PRIOR_SHARE: Final = 0.25
"""Prior variance of the common level relative to a reward's, weighted as ``PRIOR_BLOCKS``
blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Detected change."""

    arm: int
    n: int
    """Number of the arm's rewards since the start of the watch."""
    before: float
    """Approximate mean reward before the change."""
    after: float
    """Mean reward after the change."""
    n_after: int
    """Approximate number of rewards after the change."""


class Moments(NamedTuple):
    """Number, sum and sum of squares of deviations."""

    n: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def plus(self, value: float) -> "Moments":
        """Return the moments with another deviation."""
        return Moments(self.n + 1.0, self.total + value, self.squares + value * value)

    @property
    def mean(self) -> float:
        """Mean deviation; 0 if there is none."""
        return self.total / self.n if self.n else 0.0

    def variance(self, prior: float) -> float:
        """Return the variance, including one deviation from the prior."""
        return (self.squares - self.total * self.mean + prior) / self.n


_NOTHING: Final = Moments()


class Bet(NamedTuple):
    """e-CUSUM detector, with the window since it was last 1."""

    log_m: float = 0.0
    own: Moments = _NOTHING
    others: Moments = _NOTHING

    def tell(self, deviation: float, d: float, z: float) -> "Bet":
        """Return the bet after a reward of its arm."""
        since = self if self.log_m > 0.0 else Bet()
        return Bet(
            since.log_m + d * z - d * d / 2.0, since.own.plus(deviation), since.others
        )  # (eq. 2)


@dataclass(frozen=True, slots=True)
class ArmWatch:
    """Watch of one arm since the last alarm."""

    n: int = 0
    total: float = 0.0
    cells: tuple[int, ...] = (0,) * (N_CELLS + 1)
    """Number of rewards by value."""
    bets: tuple[Bet, ...] = (Bet(), Bet())
    """Bets on a fall and on a rise."""

    def score(self, reward: float, uniform: float) -> float:
        """Return the normal score of a reward among the earlier rewards."""
        cell = round(reward * N_CELLS)
        p = (sum(self.cells[:cell]) + uniform * (self.cells[cell] + 1)) / (self.n + 1)  # (eq. 1)
        return float(ndtri(min(max(p, 1e-12), 1.0 - 1e-12)))

    def plus(self, reward: float) -> "ArmWatch":
        """Return the watch with another reward in its ranks and mean."""
        cell = round(reward * N_CELLS)
        cells = (*self.cells[:cell], self.cells[cell] + 1, *self.cells[cell + 1 :])
        return replace(self, n=self.n + 1, total=self.total + reward, cells=cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftWatch:
    """Drift detection for all arms of a system."""

    rewards_per_false_alarm: float = REWARDS_PER_FALSE_ALARM
    """Minimum of the mean number of rewards, over all arms, between false alarms."""
    arms: tuple[ArmWatch, ...] = ()
    deviations: Moments = _NOTHING
    """Deviations of all arms since the last alarm."""
    block: Moments = _NOTHING
    """Deviations of the incomplete block."""
    n_blocks: float = PRIOR_BLOCKS
    excess: float = PRIOR_BLOCKS * PRIOR_SHARE
    """Sum over blocks of the squared mean beyond chance, in variances of a reward."""

    def widened(self, n_arms: int) -> "DriftWatch":
        """Return the watch with arms added up to ``n_arms``."""
        return replace(self, arms=self.arms + (ArmWatch(),) * (n_arms - len(self.arms)))

    def tell(self, arm: int, reward: float) -> tuple["DriftWatch", Alarm | None]:
        """Return the watch after one reward, and its alarm if there is one.

        After an alarm all arms restart; the estimate of the common level remains.

        Args:
            arm: Index of the chosen arm.
            reward: Reward in [0, 1] of a request whose outcome does not depend on an earlier
                one's.

        Raises:
            ValueError: The reward is not in [0, 1].
        """
        value, own = checked_reward(reward), self.arms[arm]
        if own.n < MIN_REWARDS:
            return self._with_arm(arm, own.plus(value)), None
        deviation = value - own.total / own.n
        z = own.score(value, _uniform(arm, own.n))
        fall, rise = own.bets
        bets = (fall.tell(deviation, -STAKE, z), rise.tell(deviation, STAKE, z))
        watch = self._with_deviation(arm, deviation)._with_arm(arm, replace(own, bets=bets))
        for bet, sign in zip(bets, (-1.0, 1.0), strict=True):
            is_sure = bet.log_m >= math.log(2.0 * self.rewards_per_false_alarm)
            if is_sure and watch._contrast(arm, bet) * sign >= CONTRAST:
                return replace(
                    self,
                    arms=(ArmWatch(),) * len(self.arms),
                    deviations=Moments(),
                    block=Moments(),
                ), _alarm(arm, own.plus(value), bet)
        return watch._with_arm(arm, replace(own.plus(value), bets=bets)), None

    def _with_arm(self, arm: int, watch: ArmWatch) -> "DriftWatch":
        return replace(self, arms=(*self.arms[:arm], watch, *self.arms[arm + 1 :]))

    def _with_deviation(self, arm: int, deviation: float) -> "DriftWatch":
        """Return the watch with a deviation added to the others' windows and the common level."""
        arms = tuple(
            watch
            if index == arm
            else replace(
                watch,
                bets=tuple(bet._replace(others=bet.others.plus(deviation)) for bet in watch.bets),
            )
            for index, watch in enumerate(self.arms)
        )
        updated = replace(
            self,
            arms=arms,
            deviations=self.deviations.plus(deviation),
            block=self.block.plus(deviation),
        )
        if updated.block.n < BLOCK:
            return updated
        share = updated.block.mean**2 / max(updated._variance, 1e-12) - 1.0 / BLOCK
        return replace(
            updated, block=Moments(), n_blocks=self.n_blocks + 1.0, excess=self.excess + share
        )

    @property
    def _variance(self) -> float:
        """Variance of an arm's reward."""
        return self.deviations.squares / self.deviations.n

    def _contrast(self, arm: int, bet: Bet) -> float:
        """Return the difference between the arm's and the others' windows, in standard errors."""
        own, others, variance = bet.own, bet.others, self._variance
        of_own = own.variance(variance) / own.n + variance / self.arms[arm].n
        level, of_level = 0.0, 0.0
        if len(self.arms) > 1:
            of_level = max(0.0, variance * self.excess / self.n_blocks)
            if others.n and others.variance(variance) / others.n < of_level:
                level, of_level = others.mean, others.variance(variance) / others.n
        return (own.mean - level) / math.sqrt(max(of_own + of_level, 1e-300))  # (eq. 3)

    def to_json(self) -> str:
        """Return JSON for ``from_json``."""
        return _WATCHES.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "DriftWatch":
        """Rebuild from ``to_json``.

        Raises:
            ValueError: The text does not come from ``to_json``.
        """
        return _WATCHES.validate_json(text)


_WATCHES: Final = TypeAdapter(DriftWatch)


def _uniform(arm: int, n: int) -> float:
    """Return U, the tie-breaker of an arm's n-th reward: a hash in [0, 1)."""
    return int(sha256_hex(f"{arm} {n}")[:12], 16) / 16**12


def _alarm(arm: int, watch: ArmWatch, bet: Bet) -> Alarm:
    """Return the alarm; the window of the bet follows the change."""
    mean, n_after = watch.total / watch.n, int(bet.own.n)
    # Deviations are from the mean before each reward, which the window hardly changes.
    after = min(max(mean + bet.own.mean * (1.0 - n_after / watch.n), 0.0), 1.0)
    n_before = watch.n - n_after
    before = (watch.total - after * n_after) / n_before if n_before else mean
    return Alarm(arm=arm, n=watch.n, before=before, after=after, n_after=n_after)
