"""Sequential test for the best of several arms, on live traffic.

For each arm b there is one null: *no arm is better than b by more than the minimum effect*. Its
evidence is the wealth of betting, on every request that goes to b or to the arm that led at the
last look, that the leader is better than b (``two_sample``). Choosing the opponent by the past is
allowed, so there is no price for many arms. An arm is **eliminated** when its evidence reaches
``2 / alpha`` (1); the last one left is the winner.

*Error.* Let b1 be the best arm and b2 the next. A winner that is not better than all others by more
than the effect needs b1 or b2 to be eliminated although its null is true. Each happens, ever, with
probability at most ``alpha / 2`` (Ville), so together ``alpha``: for any number of arms, ties
included, at any look, whatever rule allocates the requests.
"""

from dataclasses import dataclass, replace

import numpy as np

from convergence_core.gate.betting import FRACTIONS, LOG_START, Floats, log_mean_wealth
from convergence_core.gate.two_sample import log_pair_factors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RewardedRequests:
    """Requests with their rewards; equal ones may be given once with their number."""

    arms: np.ndarray
    """Which arm, (n,) of int."""
    rewards: Floats
    """(n,), in [0, 1]."""
    propensities: Floats
    """Probability of every arm when this one was chosen, (n, n_arms)."""
    counts: Floats
    """How many such requests, (n,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Parameters of the bets on requests chosen from now on; fixed before any of them."""

    leader: int
    rival: int
    """The best of the others: the leader's own opponent."""
    means: tuple[float, ...]
    """Expected reward of each arm."""
    stakes: bool
    """Whether anything is staked: not before each arm has a reward."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BestArmTest:
    """Evidence on every arm, and the counts behind it."""

    alpha: float
    min_effect: float
    sums: Floats
    """Sum of rewards by arm, (n_arms,)."""
    numbers: Floats
    """Rewards by arm, (n_arms,)."""
    log_wealth: Floats
    """Of each bet against each arm's null, nats, (n_arms, n_bets)."""
    eliminated: np.ndarray
    """Arms whose null was rejected, (n_arms,) of bool; for good."""

    @classmethod
    def begin(cls, n_arms: int, *, alpha: float = 0.05, min_effect: float = 0.0) -> "BestArmTest":
        """Return the test before any reward.

        Raises:
            ValueError: fewer than two arms, or a setting out of range.
        """
        if n_arms < 2:
            raise ValueError(f"a test for the best arm needs two arms or more, but got {n_arms}")
        if not 0.0 < alpha < 1.0 or not 0.0 <= min_effect < 0.99:
            raise ValueError(
                f"alpha must lie in (0, 1) and min_effect in [0, 0.99), but got {alpha} and "
                f"{min_effect}"
            )
        return cls(
            alpha=alpha,
            min_effect=min_effect,
            sums=np.zeros(n_arms),
            numbers=np.zeros(n_arms),
            log_wealth=np.full((n_arms, FRACTIONS.size), LOG_START),
            eliminated=np.zeros(n_arms, dtype=bool),
        )

    @property
    def n_arms(self) -> int:
        """Arms under test, eliminated ones included."""
        return int(self.sums.size)

    @property
    def log_threshold(self) -> float:
        """Evidence that eliminates an arm, nats (eq. 1)."""
        return float(np.log(2.0 / self.alpha))

    @property
    def log_e(self) -> Floats:
        """Evidence against each arm's null now, nats, (n_arms,)."""
        return log_mean_wealth(self.log_wealth)

    @property
    def means(self) -> Floats:
        """Mean reward by arm, with half a success and half a failure added, (n_arms,)."""
        return np.asarray((self.sums + 0.5) / (self.numbers + 1.0))

    @property
    def winner(self) -> int | None:
        """The arm that is better than all others; ``None``: undecided."""
        left = np.flatnonzero(~self.eliminated)
        return int(left[0]) if left.size == 1 else None

    @property
    def is_over(self) -> bool:
        """Whether there is a winner, or none is left: the arms' means must have changed then."""
        return int(self.eliminated.sum()) >= self.n_arms - 1

    def design(self) -> Design:
        """Return the parameters of bets on requests from now on."""
        by_mean = np.argsort(-self.means, kind="stable")
        return Design(
            leader=int(by_mean[0]),
            rival=int(by_mean[1]),
            means=tuple(self.means.tolist()),
            stakes=bool(self.numbers.min() > 0),
        )

    def tell(self, design: Design, requests: RewardedRequests) -> "BestArmTest":
        """Return the test after rewards of requests that were chosen under a design.

        Args:
            design: as ``design`` returned it before the first of these requests was chosen.
            requests: in any order; those of one design may come in several parts.
        """
        return self.with_gains(self.gains(design, requests), requests).with_eliminations()

    def gains(self, design: Design, requests: RewardedRequests) -> Floats:
        """Return the growth of every bet's logarithm, (n_arms, n_bets); it adds up over designs."""
        gains = np.zeros_like(self.log_wealth)
        for arm in range(self.n_arms if design.stakes else 0):
            first = design.rival if arm == design.leader else design.leader
            chosen = (requests.arms == first) | (requests.arms == arm)
            if not chosen.any():
                continue
            pair = requests.propensities[chosen][:, (first, arm)]
            gains[arm] = requests.counts[chosen] @ log_pair_factors(
                is_first=requests.arms[chosen] == first,
                rewards=requests.rewards[chosen],
                shares=pair[:, 0] / pair.sum(axis=1),
                means=(design.means[first], design.means[arm]),
                effect=self.min_effect,
            )
        return gains

    def with_gains(self, gains: Floats, requests: RewardedRequests) -> "BestArmTest":
        """Return the test with gains and their requests added, before anything is eliminated."""
        arms, rewards, counts = requests.arms, requests.rewards, requests.counts
        return replace(
            self,
            sums=self.sums + np.bincount(arms, counts * rewards, self.n_arms),
            numbers=self.numbers + np.bincount(arms, counts, self.n_arms),
            log_wealth=self.log_wealth + gains,
        )

    def with_eliminations(self) -> "BestArmTest":
        """Return the test with those arms eliminated whose evidence suffices now."""
        return replace(self, eliminated=self.eliminated | (self.log_e >= self.log_threshold))

    def regret(self) -> float:
        """Return the reward lost so far against the leader: sum of n (highest mean - mean).

        An estimate, in units of reward; it is high by the luck of the leader.
        """
        means = np.divide(
            self.sums, self.numbers, out=np.zeros(self.n_arms), where=self.numbers > 0
        )
        return float(self.numbers @ (means.max() - means))
