"""Posteriors of arms, and receipts of their rewards.

``BetaArms`` hold two counts per arm. A reward r in [0, 1] adds r to one and 1 - r to the other,
which for fractional rewards is the update of E. Kaufmann, N. Korda, R. Munos, 2012, without the
coin toss. A posterior is the prior plus a sum over rewards, in any order.

==========================================  ===========  ===========  =====================
case                                        returned     stored       posterior
==========================================  ===========  ===========  =====================
first reward in time                        ``ok``       ``ok``       learns
first reward after the decision expired     ``late``     ``late``     untouched
again, same value                           ``duplicate``  nothing    untouched
again, other value                          ``conflict`` ``conflict`` untouched: first wins
unknown decision                            ``unknown``  ``orphan``   untouched
==========================================  ===========  ===========  =====================

So a posterior is always its prior plus the fold of the ``ok`` rewards.
"""

from dataclasses import dataclass
from typing import Literal

from convergence_core.bandit.propensities import Floats, of_beta
from convergence_core.errors import RewardError


def checked_reward(reward: float) -> float:
    """Return a reward as a float.

    Raises:
        ValueError: It is not finite or not in [0, 1].
    """
    value = float(reward)
    if not 0.0 <= value <= 1.0:  # NaN fails as well
        raise RewardError(f"a reward must be a finite number in [0, 1], but got {reward}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BetaArms:
    """Beta posteriors of mean rewards; every array is (n_arms,)."""

    prior_alpha: Floats
    prior_beta: Floats
    alpha: Floats
    beta: Floats

    def propensities(self) -> Floats:
        """Return each arm's probability of the highest draw, (n_arms,)."""
        return of_beta(self.alpha, self.beta)


ReceiptStatus = Literal["ok", "late", "duplicate", "conflict", "unknown"]
StoredStatus = Literal["ok", "late", "conflict", "orphan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Receipt of one reward."""

    status: ReceiptStatus
    stored: StoredStatus | None
    """Status of the stored row; ``None`` if the reward is already stored."""
    learns: bool
    """Whether the posterior learns from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDecision:
    """Decision at the arrival of a reward."""

    expires_us: int | None
    """Time from which a reward is late, in microseconds since the epoch; ``None`` means never."""
    reward: float | None = None
    """First reward, in time or late; ``None`` if there is none yet."""


def receive(reward: float, decision: OpenDecision | None, now_us: int) -> Receipt:
    """Return the receipt of a reward.

    Args:
        reward: Reward in [0, 1].
        decision: Decision of the reward; ``None`` if unknown.
        now_us: Arrival time, in microseconds since the epoch.

    Raises:
        ValueError: The reward is not in [0, 1].
    """
    value = checked_reward(reward)
    if decision is None:
        return Receipt(status="unknown", stored="orphan", learns=False)
    if decision.reward is not None:
        if decision.reward == value:
            return Receipt(status="duplicate", stored=None, learns=False)
        return Receipt(status="conflict", stored="conflict", learns=False)
    if decision.expires_us is not None and now_us >= decision.expires_us:
        return Receipt(status="late", stored="late", learns=False)
    return Receipt(status="ok", stored="ok", learns=True)
