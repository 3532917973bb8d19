"""Blinded test of an activated adapter on live traffic, valid at any look.

A coin decides for each conversation whether the new adapter or its predecessor answers it. The
unit of evidence is the conversation, with the mean reward of its ratings: all its answers share
one coin. Raters need no adjustment: each rater's conversations have independent coins, so generous
raters affect both sides alike.

With p the probability of the adapter and x in [0, 1] the mean reward of a conversation, both sides
bet against each other (``convergence_core.gate.betting``), centred on the mean of the earlier
conversations. A claim, *better* or *worse*, is made when its wealth reaches ``2 / alpha`` (1). So
the probability that either is ever wrong is at most ``alpha``, at any number of looks (Ville). A
rating changed later changes its conversation's x and the evidence from then on. The proof does not
cover that; docs/adapters.md reports a measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from convergence_core.feedback.live_test_records import LiveTest
from convergence_core.gate.betting import LOG_START, log_mean_wealth, log_pair_factors

ALPHA: Final = 0.05
"""Maximum probability of a wrong claim, for both claims together."""
_N_BISECTIONS: Final = 30
_PRIOR: Final = 2.0
"""Number of prior conversations, with mean .5, in the first centres."""
_WIDEST: Final = 0.99
"""Largest tested difference, of rewards in [0, 1]."""
_THRESHOLD: Final = float(np.log(2.0 / ALPHA))
"""Evidence required for a claim, nats (eq. 1)."""
Claim = Literal["better", "worse"]
_CLAIMS: Final[tuple[Claim, ...]] = ("better", "worse")


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedConversation:
    """A conversation of the test with at least one rating."""

    is_candidate: bool
    """Whether the adapter under test answered it."""
    reward: float
    """Mean of its ratings' rewards, in [-1, 1]."""
    n_ratings: int


def claim_of(conversations: Sequence[RatedConversation], share: float) -> Claim | None:
    """Return the claim that rated conversations prove; ``None`` if neither is proven yet.

    Args:
        conversations: All rated conversations, in order of their first answers.
        share: Probability of the adapter, in (0, 1).

    Raises:
        ValueError: a reward or the share is out of range.
    """
    bets = _Bets(conversations, share)
    return next((claim for claim in _CLAIMS if bets.log_wealth(claim, 0.0) >= _THRESHOLD), None)


def weigh(test: LiveTest, conversations: Sequence[RatedConversation]) -> LiveTest:
    """Return a test with the difference and interval of conversations, as in ``claim_of``."""
    rewards = np.array([conversation.reward for conversation in conversations])
    is_candidate = np.array(
        [conversation.is_candidate for conversation in conversations], dtype=bool
    )
    difference = None
    if 0 < is_candidate.sum() < rewards.size:
        difference = float(rewards[is_candidate].mean() - rewards[~is_candidate].mean())
    low, high = _Bets(conversations, test.share).interval()
    return replace(
        test,
        n_conversations=rewards.size,
        n_ratings=sum(conversation.n_ratings for conversation in conversations),
        difference=difference,
        low=2.0 * low,
        high=2.0 * high,
    )


class _Bets:
    """Bets on a difference of mean rewards in [0, 1]; see the module."""

    def __init__(self, conversations: Sequence[RatedConversation], share: float) -> None:
        given = np.array([conversation.reward for conversation in conversations], dtype=np.float64)
        if not np.all(np.abs(given) <= 1.0):  # also refuses NaN
            raise ValueError("each reward must be a number in [-1, 1]")
        if not 0.0 < share < 1.0:
            raise ValueError(f"share must lie in (0, 1), but got {share}")
        self._rewards, self._share = (given + 1.0) / 2.0, share
        self._is_candidate = np.array(
            [conversation.is_candidate for conversation in conversations], dtype=bool
        )
        before = np.cumsum(self._rewards) - self._rewards
        self._centres = (0.5 * _PRIOR + before) / (_PRIOR + np.arange(given.size))

    def log_wealth(self, claim: Claim, effect: float) -> float:
        """Return the log wealth of a claim about the difference less ``effect``, nats."""
        is_first, share = self._is_candidate, self._share
        if claim == "worse":
            is_first, share, effect = ~is_first, 1.0 - share, -effect
        gains = log_pair_factors(
            is_first=is_first,
            rewards=self._rewards,
            shares=np.full(self._rewards.size, share),
            means=(self._centres, self._centres),
            effect=effect,
        )
        return float(log_mean_wealth(LOG_START + gains.sum(axis=0)))

    def interval(self) -> tuple[float, float]:
        """Return the differences that neither claim's wealth rejects, by bisection from their ends."""

        def end(claim: Claim, outside: float) -> float:
            rejected, kept = outside, -outside
            if self.log_wealth(claim, outside) < _THRESHOLD:
                return float(np.sign(outside))
            for _ in range(_N_BISECTIONS):
                middle = (rejected + kept) / 2.0
                if self.log_wealth(claim, middle) >= _THRESHOLD:
                    rejected = middle
                else:
                    kept = middle
            return rejected

        return end("better", -_WIDEST), end("worse", _WIDEST)
