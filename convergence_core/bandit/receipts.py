"""Receipts of rewards: learned, stored or refused.

==========================================  ===========  ===========  =====================
case                                        returned     stored       posterior
==========================================  ===========  ===========  =====================
first reward in time                        ``ok``       ``ok``       learns
first reward after the decision expired     ``late``     ``late``     untouched by default
again, same value                           ``duplicate``  nothing    untouched
again, other value                          ``conflict`` ``conflict`` untouched: first wins
unknown decision                            ``unknown``  ``orphan``   untouched
==========================================  ===========  ===========  =====================

So at every moment a posterior is its prior plus the fold of the ``ok`` rewards (and of ``late``
ones where they are asked to count).
"""

from dataclasses import dataclass
from typing import Literal

from convergence_core.bandit.arms import checked_reward, finite_reward

ReceiptStatus = Literal["ok", "late", "duplicate", "conflict", "unknown"]
StoredStatus = Literal["ok", "late", "conflict", "orphan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The answer to one reward."""

    status: ReceiptStatus
    stored: StoredStatus | None
    """Status of the stored row; ``None``: it is not stored, since it is there already."""
    learns: bool
    """Whether the posterior learns from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDecision:
    """State of a decision when a reward for it arrives."""

    expires_us: int | None
    """First moment that is too late, microseconds since the epoch; ``None``: never."""
    reward: float | None = None
    """The first reward it got, in time or late; ``None``: none yet."""


def receive(
    reward: float,
    decision: OpenDecision | None,
    now_us: int,
    *,
    late_counts: bool = False,
    is_bounded: bool = True,
) -> Receipt:
    """Return the receipt of a reward.

    Args:
        reward: in [0, 1], or any finite number.
        decision: the one it is for; ``None``: it is unknown.
        now_us: when it arrived.
        late_counts: whether the posterior learns from late rewards as well.
        is_bounded: whether rewards lie in [0, 1]; those of Gaussian arms need not.

    Raises:
        ValueError: the reward is not finite, or not in [0, 1] where it is bounded.
    """
    value = checked_reward(reward) if is_bounded else finite_reward(reward)
    if decision is None:
        return Receipt(status="unknown", stored="orphan", learns=False)
    if decision.reward is not None:
        if decision.reward == value:
            return Receipt(status="duplicate", stored=None, learns=False)
        return Receipt(status="conflict", stored="conflict", learns=False)
    if decision.expires_us is not None and now_us >= decision.expires_us:
        return Receipt(status="late", stored="late", learns=late_counts)
    return Receipt(status="ok", stored="ok", learns=True)
