"""Sequential test of a promotion against its control, by guardrail.

A guardrail is the reward or another number (latency, cost, errors, a custom signal), with a
margin. Each has two nulls, with separate evidence:

* *It is not worse than the control by more than the margin.* Rejected: **worse**, which ends in a
  rollback. A decline may start late, when a bet made at the promotion has lost its money. So the
  money
  is spread over all looks: ``1 / (k (k + 1))`` of it enters at look k (1), ``1 / (k + 1)`` is left
  (2).
  The sum is a mixture of bets that start at each look, again a supermartingale. So an unjustified
  rollback ever happens with probability at most ``alpha`` (S. Shekhar, A. Ramdas, "Reducing
  sequential
  change detection to sequential estimation", 2024, and J. Shin, A. Ramdas, A. Rinaldo,
  "E-detectors",
  2023, sum such bets unweighted and bound the run length instead). K guardrails get alpha / K
  each.
* *It is worse than the control by at least ``allowed``.* Rejected: **safe**. A step requires that
  all
  guardrails are safe, so each gets all of alpha (R. Berger, "Multiparameter hypothesis testing and
  acceptance sampling", 1982, the intersection-union test).

*Ramp.* A step to the share s lowers the mean over all requests by s times the decline, which may
be at most the margin: ``allowed = margin / s`` (3) (the risk that bounds a ramp's pace in Y. Xu,
W. Duan, S. Huang, "SQR: Balancing speed, quality and risk in online experiments", KDD 2018). A
step that violates this must reject a true null, whose evidence is one process since the promotion.
So it happens with probability at most ``alpha`` over the whole ramp, as long as declines do not
change.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from convergence_core.gate.betting import (
    FRACTIONS,
    LOG_START,
    Floats,
    log_mean_wealth,
    log_pair_factors,
)

RISK: Final = 0.1
"""Minimum allowed decline of the mean reward over all requests per step, even if the margin is
less."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Gains:
    """Growth of each bet's log wealth at one look, in nats, each (n_bets,)."""

    worse: Floats
    better: Floats
    n: int
    """Number of values at the look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Evidence of one guardrail since the promotion."""

    alpha: float = 0.05
    """Maximum probability, over all time, of either wrong verdict."""
    n_guardrails: int = 1
    """Number of guardrails that share ``alpha`` of a rollback."""
    n: int = 0
    """Number of values so far."""
    n_looks: int = 0
    log_worse: tuple[float, ...] = (-np.inf,) * FRACTIONS.size
    """Log wealth of each bet on "worse", without the unspent money, in nats."""
    log_better: tuple[float, ...] = (LOG_START,) * FRACTIONS.size
    """Log wealth of each bet on "not worse", in nats."""
    is_worse: bool = False
    """Whether it is worse by more than the margin; final."""
    is_safe: bool = False
    """Whether it is not worse by ``allowed``; final."""

    @property
    def log_e_worse(self) -> float:
        """Evidence that it is worse by more than the margin, in nats."""
        unspent = 1.0 / (self.n_looks + 1.0)  # (eq. 2)
        return float(np.logaddexp(log_mean_wealth(np.array(self.log_worse)), np.log(unspent)))

    @property
    def log_e_better(self) -> float:
        """Evidence that it is not worse by ``allowed``, in nats."""
        return float(log_mean_wealth(np.array(self.log_better)))

    @property
    def log_threshold(self) -> float:
        """Evidence required for ``is_safe``, in nats."""
        return -float(np.log(self.alpha))

    @property
    def log_threshold_worse(self) -> float:
        """Evidence required for ``is_worse``, in nats."""
        return float(np.log(self.n_guardrails) - np.log(self.alpha))

    @property
    def verdict(self) -> str:
        """``worse``, ``safe`` or ``open``."""
        return "worse" if self.is_worse else "safe" if self.is_safe else "open"

    def tell(self, gains: Gains) -> "Guard":
        """Return the guard and its verdicts after a look."""
        if not (gains.n or gains.worse.any() or gains.better.any()):
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
        return replace(
            updated,
            is_worse=self.is_worse or updated.log_e_worse >= self.log_threshold_worse,
            is_safe=self.is_safe or updated.log_e_better >= self.log_threshold,
        )


def gains_against_champion(
    *,
    is_promoted: ArrayLike,
    rewards: ArrayLike,
    shares: ArrayLike,
    means: tuple[float, float],
    tolerance: float = 0.0,
    allowed: float | None = None,
) -> Gains:
    """Return the gains of a look at live traffic.

    Args:
        is_promoted: Whether each request went to the promoted arm rather than the champion, (n,).
        rewards: Rewards in [0, 1], (n,), higher is better; NaN is pending, counted at its worst.
        shares: Probability of the promoted arm at each request, (n,).
        means: Expected rewards of promoted arm and champion before these requests.
        tolerance: Decline above which it is ``worse``, in [0, 1).
        allowed: Decline below which it is ``safe``, in [0, 1); ``None`` means ``tolerance``.
    """
    values = np.asarray(rewards, dtype=np.float64)
    promoted = np.asarray(is_promoted, dtype=bool)
    p = np.asarray(shares, dtype=np.float64)
    worse = log_pair_factors(
        is_first=~promoted, rewards=values, shares=1.0 - p, means=means[::-1], effect=tolerance
    )
    effect = -(tolerance if allowed is None else allowed)
    better = log_pair_factors(
        is_first=promoted, rewards=values, shares=p, means=means, effect=effect
    )
    return Gains(
        worse=worse.sum(axis=0), better=better.sum(axis=0), n=int((~np.isnan(values)).sum())
    )


def allowed(margin: float, share: float) -> float:
    """Return the allowed decline of a guardrail at a share of the requests, at most 0.9.

    Args:
        margin: Margin of the mean over all requests, scaled to [0, 1].
        share: Share of the promoted arm, in (0, 1].
    """
    return min(margin / share, 0.9)  # (eq. 3)
