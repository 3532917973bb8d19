"""Sequential test of a promoted candidate: rollback, confirmed or still watching.

Two nulls, each with evidence of its own:

* *It is not worse than the champion by more than the tolerance.* Rejected: **rollback**. A decline
  may begin late, when a bet made at the promotion has lost its money, so the money is spent over
  all looks: ``1 / (k (k + 1))`` of it enters at look k (1), ``1 / (k + 1)`` is left (2). The sum is
  a mixture of bets that begin at each look, again a supermartingale, so a rollback without cause
  happens, ever, with probability at most ``alpha`` (S. Shekhar, A. Ramdas, "Reducing sequential
  change detection to sequential estimation", 2024, and J. Shin, A. Ramdas, A. Rinaldo,
  "E-detectors", 2023, sum such bets unweighted and bound the run length instead).
* *It is worse than the champion by at least the tolerance.* Rejected: **confirmed**, again with
  error ``alpha``.

The champion is known by the requests that it still gets, a holdback of known share (``betting``).
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from convergence_core.gate.betting import (
    FRACTIONS,
    LOG_START,
    Floats,
    checked_rewards,
    log_mean_wealth,
    log_pair_factors,
)

GuardDecision = Literal["rollback", "confirmed", "watching"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Gains:
    """Growth of the evidence at one look, nats by bet, each (n_bets,)."""

    worse: Floats
    better: Floats
    n: int
    """Rewards in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Evidence since the promotion."""

    alpha: float = 0.05
    """Largest probability, over all time, of a rollback without cause."""
    n: int = 0
    """Rewards seen."""
    n_looks: int = 0
    log_worse: tuple[float, ...] = (-np.inf,) * FRACTIONS.size
    """Wealth of each bet on "worse", the money not yet spent left out, nats."""
    log_better: tuple[float, ...] = (LOG_START,) * FRACTIONS.size
    """Wealth of each bet on "not worse", nats."""
    decision: GuardDecision = "watching"
    """The first verdict; it stays."""

    @property
    def log_e_worse(self) -> float:
        """Evidence that it is worse by more than the tolerance, nats."""
        unspent = 1.0 / (self.n_looks + 1.0)  # (eq. 2)
        return float(np.logaddexp(log_mean_wealth(np.array(self.log_worse)), np.log(unspent)))

    @property
    def log_e_better(self) -> float:
        """Evidence that it is not, nats."""
        return float(log_mean_wealth(np.array(self.log_better)))

    def tell(self, gains: Gains) -> "Guard":
        """Return the guard after a look, its decision made if there is one."""
        if not gains.n:
            return self
        k = self.n_looks + 1
        entering = LOG_START - np.log(k * (k + 1.0))  # (eq. 1)
        worse = np.logaddexp(np.array(self.log_worse), entering) + gains.worse
        updated = replace(
            self,
            n=self.n + gains.n,
            n_looks=k,
            log_worse=tuple(worse.tolist()),
            log_better=tuple((np.array(self.log_better) + gains.better).tolist()),
        )
        threshold = -np.log(self.alpha)
        if self.decision == "watching" and updated.log_e_worse >= threshold:
            return replace(updated, decision="rollback")
        if self.decision == "watching" and updated.log_e_better >= threshold:
            return replace(updated, decision="confirmed")
        return updated


def gains_against_champion(
    *,
    is_promoted: ArrayLike,
    rewards: ArrayLike,
    shares: ArrayLike,
    means: tuple[float, float],
    tolerance: float = 0.0,
) -> Gains:
    """Return the gains of a look at live traffic.

    Args:
        is_promoted: which requests went to the promoted one, the others to the champion, (n,).
        rewards: (n,), in [0, 1]; NaN: it can still come, and counts at its worst.
        shares: probability of the promoted one at each request, (n,).
        means: what was expected of promoted and champion before these requests.
        tolerance: how much worse it may be, in [0, 1).

    Raises:
        ValueError: a reward is not in [0, 1].
    """
    values = np.asarray(rewards, dtype=np.float64)
    checked_rewards(values[~np.isnan(values)])
    promoted = np.asarray(is_promoted, dtype=bool)
    p = np.asarray(shares, dtype=np.float64)
    worse = log_pair_factors(
        is_first=~promoted, rewards=values, shares=1.0 - p, means=means[::-1], effect=tolerance
    )
    better = log_pair_factors(
        is_first=promoted, rewards=values, shares=p, means=means, effect=-tolerance
    )
    return Gains(
        worse=worse.sum(axis=0), better=better.sum(axis=0), n=int((~np.isnan(values)).sum())
    )
