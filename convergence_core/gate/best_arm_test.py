"""Sequential test for the best of several arms, on live traffic.

Each arm b has one null: *no arm is better than b by more than the minimum effect*. Its evidence is
the wealth from betting that the leader at the last look is better than b. The bets are on every
request that goes to either of the two (``betting``). The past may choose the opponent, so there is
no correction for many arms. An arm is **eliminated** when its evidence reaches ``2 / alpha`` (1);
the last remaining arm is the winner.

*Error.* Let b1 be the best arm and b2 the next. A winner that does not beat all others by more
than the effect requires that b1 or b2 is eliminated although its null is true. Each of these ever
happens with probability at most ``alpha / 2`` (Ville), so together ``alpha``. This holds for any
number of arms, including ties, at any look, under any rule that allocates the requests.

While leader i gets ``n_i`` more requests and arm b ``n_b``, the evidence against b grows by about
``d_b^2 / (2 v_b (1 / n_i + 1 / n_b))`` nats. d is the difference of means beyond the minimum
effect, v the variance at the midpoint of both. So the minimum numbers of requests that give each
arm the missing evidence ``R_b`` are

    a_b = d_b^2 / (2 v_b R_b)                                                                      (1)
    n_b = 1 / (a_b - 1 / n_i)                                                                      (2)
    sum_b (a_b n_i - 1)^-2 = 1                                                                     (3)

The last equation sets the derivative of the total to 0. This is the allocation of A. Garivier, E.
Kaufmann, "Optimal best arm identification with fixed confidence", 2016, for Gaussian rewards, with
each arm's missing evidence in place of a common threshold. Two arms share evenly.

The means are unknown, so shares are averaged over draws from their posterior. Its counts are
doubled (``SHARPNESS``), because plain draws spread more traffic than the uncertainty justifies.
The allocation gives every arm its evidence at the same expected time, so chance delays the last of
several. So the remaining arms share ``EVEN_SHARE`` of the requests evenly. That costs a little on
average and saves more of the wait for the last arm. After the verdict, the winner serves, and only
the floor goes to the others.
"""

from dataclasses import dataclass, replace

import numpy as np

from convergence_core.gate.betting import (
    FRACTIONS,
    LOG_START,
    Floats,
    log_mean_wealth,
    log_pair_factors,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RewardedRequests:
    """Requests with their rewards; equal requests may be grouped with a count."""

    arms: np.ndarray
    """Arm of each request, (n,) of int."""
    rewards: Floats
    """Rewards in [0, 1], (n,); NaN is a pending reward, counted at its worst."""
    propensities: Floats
    """Probability of every arm when the request was routed, (n, n_arms)."""
    counts: Floats
    """Number of such requests, (n,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Parameters of the bets on future requests, fixed in advance."""

    leader: int
    rival: int
    """Best of the other arms, the leader's opponent."""
    means: tuple[float, ...]
    """Expected reward of each arm."""
    stakes: bool
    """Whether bets stake anything; false until each arm has a reward."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BestArmTest:
    """Evidence on every arm, with the counts of its rewards."""

    alpha: float
    min_effect: float
    sums: Floats
    """Sum of rewards by arm, (n_arms,)."""
    numbers: Floats
    """Number of rewards by arm, (n_arms,)."""
    log_wealth: Floats
    """Log wealth of each bet against each arm's null, in nats, (n_arms, n_bets)."""
    eliminated: np.ndarray
    """Arms with a rejected null, (n_arms,) of bool; final."""
    n_open: float = 0.0
    """Number of requests with a pending reward."""

    @classmethod
    def begin(cls, n_arms: int, *, alpha: float = 0.05, min_effect: float = 0.0) -> "BestArmTest":
        """Return the test of at least two arms, before any reward."""
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
        """Number of arms under test, including eliminated ones."""
        return int(self.sums.size)

    @property
    def log_threshold(self) -> float:
        """Evidence that eliminates an arm, in nats (eq. 1)."""
        return float(np.log(2.0 / self.alpha))

    @property
    def log_e(self) -> Floats:
        """Current evidence against each arm's null, in nats, (n_arms,)."""
        return log_mean_wealth(self.log_wealth)

    @property
    def means(self) -> Floats:
        """Mean reward by arm, with half a success and half a failure added, (n_arms,)."""
        return np.asarray((self.sums + 0.5) / (self.numbers + 1.0))

    @property
    def winner(self) -> int | None:
        """Arm that is better than all others; ``None`` if undecided."""
        left = np.flatnonzero(~self.eliminated)
        return int(left[0]) if left.size == 1 else None

    @property
    def is_over(self) -> bool:
        """Whether there is a winner, or no arm remains because their means must have changed."""
        return int(self.eliminated.sum()) >= self.n_arms - 1

    def gains(self, design: Design, requests: RewardedRequests) -> Floats:
        """Return the growth of each bet's log wealth, (n_arms, n_bets), additive over designs.

        Args:
            design: Fixed before the first of these requests was chosen.
            requests: Requests in any order; those of one design may come in several parts.
        """
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
        """Return the test with these gains and requests, before eliminations."""
        known = ~np.isnan(requests.rewards)
        arms, rewards, counts = (
            values[known] for values in (requests.arms, requests.rewards, requests.counts)
        )
        return replace(
            self,
            sums=self.sums + np.bincount(arms, counts * rewards, self.n_arms),
            numbers=self.numbers + np.bincount(arms, counts, self.n_arms),
            log_wealth=self.log_wealth + gains,
            n_open=self.n_open + float(requests.counts[~known].sum()),
        )

    def with_eliminations(self) -> "BestArmTest":
        """Return the test after eliminating the arms with sufficient evidence."""
        return replace(self, eliminated=self.eliminated | (self.log_e >= self.log_threshold))

    def regret(self) -> float:
        """Return the estimated regret against the leader so far: sum of n (highest mean - mean).

        In units of reward; selection of the leader biases it upward.
        """
        means = np.divide(
            self.sums, self.numbers, out=np.zeros(self.n_arms), where=self.numbers > 0
        )
        return float(self.numbers @ (means.max() - means))


MIN_REWARDS = 40
"""Minimum rewards of each arm before shares may differ."""
N_DRAWS = 8
SHARPNESS = 2.0
EVEN_SHARE = 0.2
MARGIN = 1.0
"""Nats added to the missing evidence: good bets take time, and rewards come in batches."""
MIN_NEED = 0.25
"""Minimum missing evidence, in nats."""
N_BISECTIONS = 40
_MIN_GAP = 1e-3
"""Minimum difference of means, since equal arms would never be separated."""


def verdict_shares(test: BestArmTest, rng: np.random.Generator) -> Floats:
    """Return the shares of the next requests with the fastest verdict, (n_arms,), which sum to 1.

    A winner gets all. While any arm has few rewards, for example a new one, the remaining arms
    share evenly.

    Args:
        test: Evidence so far.
        rng: Generator for draws of the means.
    """
    left = (~test.eliminated).astype(np.float64)
    if test.is_over or test.numbers.min() < MIN_REWARDS:
        # No arm remains if the means have changed; then all take part again.
        left = left if left.any() else np.ones(test.n_arms)
        return np.asarray(left / left.sum())
    draws = rng.beta(
        SHARPNESS * test.sums + 0.5,
        SHARPNESS * (test.numbers - test.sums) + 0.5,
        size=(N_DRAWS, test.n_arms),
    )
    numbers = fewest_requests(draws, missing_evidence(test), test.min_effect)
    soonest = (numbers / numbers.sum(axis=1, keepdims=True)).mean(axis=0)
    wanted = (1.0 - EVEN_SHARE) * soonest + EVEN_SHARE * left / left.sum()
    return np.asarray(wanted / wanted.sum())


def missing_evidence(test: BestArmTest) -> Floats:
    """Return R, the nats that each arm lacks for elimination, 0 if eliminated, (n_arms,)."""
    lacking = np.maximum(test.log_threshold - test.log_e + MARGIN, MIN_NEED)
    return np.where(test.eliminated, 0.0, lacking)


def n_to_verdict(test: BestArmTest) -> int | None:
    """Return the requests until a verdict if the means are as observed.

    0 after a verdict; ``None`` if the leading arms look equal so far.
    """
    if test.is_over:
        return 0
    left = np.sort(test.means[~test.eliminated])
    if test.numbers.min() < 1 or left[-1] - left[-2] - test.min_effect <= _MIN_GAP:
        return None
    numbers = fewest_requests(test.means[None], missing_evidence(test), test.min_effect)
    return int(np.ceil(numbers.sum()))


def fewest_requests(means: Floats, needs: Floats, effect: float) -> Floats:
    """Return the minimum additional requests of each arm for each row of means, (n_rows, n_arms).

    Args:
        means: Mean rewards, (n_rows, n_arms).
        needs: R, 0 for eliminated arms, (n_arms,) or (n_rows, n_arms).
        effect: Minimum effect of the test.
    """
    rows = np.arange(len(means))
    leaders = np.where(needs > 0.0, means, -1.0).argmax(axis=1)
    lead = means[rows, leaders][:, None]
    middle = (lead + means) / 2.0
    variance = np.maximum(middle * (1.0 - middle), 1e-4)
    lacks = np.broadcast_to(needs > 0.0, means.shape).copy()
    lacks[rows, leaders] = False
    gap = np.maximum(lead - means - effect, _MIN_GAP)
    a = np.where(lacks, gap**2 / (2.0 * variance * np.maximum(needs, MIN_NEED)), np.inf)  # (eq. 1)
    low = 1.0 / a.min(axis=1)
    # At (1 + sqrt(k)) / a_min each of the k terms of the sum is at most 1 / k.
    high = low * (1.0 + np.sqrt(lacks.sum(axis=1)))
    for _ in range(N_BISECTIONS):
        n_i = (low + high) / 2.0
        too_few = (1.0 / (a * n_i[:, None] - 1.0) ** 2).sum(axis=1) > 1.0  # (eq. 3)
        low, high = np.where(too_few, n_i, low), np.where(too_few, high, n_i)
    numbers = np.where(lacks, 1.0 / (a - 1.0 / high[:, None]), 0.0)  # (eq. 2)
    numbers[rows, leaders] = high
    return np.asarray(numbers, dtype=np.float64)
