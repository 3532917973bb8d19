"""Sequential test of a promotion against its control, by guardrail.

A guardrail is the reward, or a number that comes with it (latency, cost, errors, one's own), and its
margin. Each has two nulls, with evidence of its own:

* *It is not worse than the control by more than the margin.* Rejected: **worse**, which ends in a
  rollback. A decline may begin late, when a bet made at the promotion has lost its money, so the money
  is spent over all looks: ``1 / (k (k + 1))`` of it enters at look k (1), ``1 / (k + 1)`` is left (2).
  The sum is a mixture of bets that begin at each look, again a supermartingale, so a rollback without
  cause happens, ever, with probability at most ``alpha`` (S. Shekhar, A. Ramdas, "Reducing sequential
  change detection to sequential estimation", 2024, and J. Shin, A. Ramdas, A. Rinaldo, "E-detectors",
  2023, sum such bets unweighted and bound the run length instead). K guardrails share it: alpha / K each.
* *It is worse than the control by at least ``allowed``.* Rejected: **safe**. All guardrails must be safe
  for a step, so none has to share (R. Berger, "Multiparameter hypothesis testing and acceptance
  sampling", 1982, the intersection-union test).

*Ramp.* A step to the share s brings the mean over all requests down by s times the decline, which may
be at most the margin: ``allowed = margin / s`` (3) (the risk that bounds a ramp's pace in Y. Xu, W. Duan,
S. Huang, "SQR: Balancing speed, quality and risk in online experiments", KDD 2018). A step that breaks
this must reject a true null, whose evidence is one process from the promotion on, so it comes with
probability at most ``alpha`` over the whole ramp, as long as declines stay as they are.
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
"""Least decline of the mean reward over all requests that a step may bring, whatever the margin."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Gains:
    """Growth of the evidence at one look, nats by bet, each (n_bets,)."""

    worse: Floats
    better: Floats
    n: int
    """Values in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Evidence of one guardrail since the promotion."""

    alpha: float = 0.05
    """Largest probability, over all time, of either wrong verdict."""
    n_guardrails: int = 1
    """Guardrails that share ``alpha`` of a rollback."""
    n: int = 0
    """Values seen."""
    n_looks: int = 0
    log_worse: tuple[float, ...] = (-np.inf,) * FRACTIONS.size
    """Wealth of each bet on "worse", the money not yet spent left out, nats."""
    log_better: tuple[float, ...] = (LOG_START,) * FRACTIONS.size
    """Wealth of each bet on "not worse", nats."""
    is_worse: bool = False
    """Verdict that it is worse by more than the margin; it stays."""
    is_safe: bool = False
    """Verdict that it is not worse by what is allowed; it stays."""

    @property
    def log_e_worse(self) -> float:
        """Evidence that it is worse by more than the margin, nats."""
        unspent = 1.0 / (self.n_looks + 1.0)  # (eq. 2)
        return float(np.logaddexp(log_mean_wealth(np.array(self.log_worse)), np.log(unspent)))

    @property
    def log_e_better(self) -> float:
        """Evidence that it is not worse by what is allowed, nats."""
        return float(log_mean_wealth(np.array(self.log_better)))

    @property
    def log_threshold(self) -> float:
        """Evidence that is needed for ``is_safe``, nats."""
        return -float(np.log(self.alpha))

    @property
    def log_threshold_worse(self) -> float:
        """Evidence that is needed for ``is_worse``, nats."""
        return float(np.log(self.n_guardrails) - np.log(self.alpha))

    @property
    def verdict(self) -> str:
        """``worse``, ``safe`` or ``open``."""
        return "worse" if self.is_worse else "safe" if self.is_safe else "open"

    def tell(self, gains: Gains) -> "Guard":
        """Return the guard after a look, with its verdicts."""
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
        is_promoted: which requests went to the promoted one, the others to the champion, (n,).
        rewards: (n,), in [0, 1], higher is better; NaN: it can still come, and counts at its worst.
        shares: probability of the promoted one at each request, (n,).
        means: what was expected of promoted and champion before these requests.
        tolerance: how much worse it may be before it is ``worse``, in [0, 1).
        allowed: how much worse it may be to be ``safe``, in [0, 1); ``None``: as ``tolerance``.
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
    """Return by how much a guardrail may be worse at a share of the requests, at most 0.9.

    Args:
        margin: of the mean over all requests, scaled to [0, 1].
        share: of the promoted one, in (0, 1].
    """
    return min(margin / share, 0.9)  # (eq. 3)
