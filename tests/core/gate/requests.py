"""Rewarded requests of a batch with fixed shares."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from convergence_core.gate.best_arm_test import BestArmTest, Design, RewardedRequests


def batch(successes: ArrayLike, numbers: ArrayLike, shares: ArrayLike) -> RewardedRequests:
    """Rewards of 1 and requests by arm, and each arm's propensity, (n_arms,) each."""
    good, p = np.asarray(successes, np.float64), np.asarray(shares, np.float64)
    return RewardedRequests(
        arms=np.tile(np.arange(p.size), 2),
        rewards=np.repeat((1.0, 0.0), p.size),
        propensities=np.tile(p, (2 * p.size, 1)),
        counts=np.concatenate((good, np.asarray(numbers, np.float64) - good)),
    )


def design_of(test: BestArmTest) -> Design:
    """Bets on requests from now on, as a look stores them."""
    by_mean = np.argsort(-test.means, kind="stable")
    return Design(
        leader=int(by_mean[0]),
        rival=int(by_mean[1]),
        means=tuple(test.means.tolist()),
        stakes=bool(test.numbers.min() > 0),
    )


def after(
    test: BestArmTest, requests: RewardedRequests, design: Design | None = None
) -> BestArmTest:
    """The test after requests of a design, by default of the one from now on."""
    gains = test.gains(design or design_of(test), requests)
    return test.with_gains(gains, requests).with_eliminations()


def counted(sums: Sequence[float], numbers: Sequence[float]) -> BestArmTest:
    """A test with these counts of even traffic, nothing staked yet."""
    test = BestArmTest.begin(len(sums))
    return after(test, batch(sums, numbers, np.full(len(sums), 1 / len(sums))))
