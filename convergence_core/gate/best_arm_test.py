"""Sequential test for the best of several arms, on live traffic.

For each arm b there is one null: *no arm is better than b by more than the minimum effect*. Its
evidence is the wealth of betting, on every request that goes to b or to the arm that led at the
last look, that the leader is better than b (``betting``). Choosing the opponent by the past is
allowed, so there is no price for many arms. An arm is **eliminated** when its evidence reaches
``2 / alpha`` (1); the last one left is the winner.

*Error.* Let b1 be the best arm and b2 the next. A winner that is not better than all others by more
than the effect needs b1 or b2 to be eliminated although its null is true. Each happens, ever, with
probability at most ``alpha / 2`` (Ville), so together ``alpha``: for any number of arms, ties
included, at any look, whatever rule allocates the requests.

While leader i has ``n_i`` further requests and arm b ``n_b``, the evidence against b grows by about
``d_b^2 / (2 v_b (1 / n_i + 1 / n_b))`` nats: d the difference of means beyond the minimum effect, v
the variance at the middle of both. So the fewest requests that give each arm the evidence ``R_b``
that it still lacks have

    a_b = d_b^2 / (2 v_b R_b)                                                                      (1)
    n_b = 1 / (a_b - 1 / n_i)                                                                      (2)
    sum_b (a_b n_i - 1)^-2 = 1                                                                     (3)

the last from setting the derivative of the total to 0. It is the allocation of A. Garivier,
E. Kaufmann, "Optimal best arm identification with fixed confidence", 2016, for Gaussian rewards,
with each arm's own remaining need in place of one common threshold; two arms share evenly.

The means are not known, so shares are averaged over draws from a posterior of them. Its counts are
doubled (``SHARPNESS``): plain draws spread more traffic than the doubt is worth. And the plan brings
every arm its evidence at the same expected time, so the last of several is late by chance:
``EVEN_SHARE`` of the requests is shared evenly by the arms not eliminated, which costs a little on
average and saves more of the wait for the last one. When the verdict is there, waiting has no use:
the winner serves, and the floor alone goes to the others.
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
    """Requests with their rewards; equal ones may be given once with their number."""

    arms: np.ndarray
    """Which arm, (n,) of int."""
    rewards: Floats
    """(n,), in [0, 1]; NaN: it can still come, and counts at its worst."""
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
    n_open: float = 0.0
    """Requests whose reward can still come."""

    @classmethod
    def begin(cls, n_arms: int, *, alpha: float = 0.05, min_effect: float = 0.0) -> "BestArmTest":
        """Return the test of two arms or more, before any reward."""
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
        """The arm that is better than all others; ``None`` if undecided."""
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


MIN_REWARDS = 40
"""Of each arm, before shares may differ."""
N_DRAWS = 8
SHARPNESS = 2.0
EVEN_SHARE = 0.2
MARGIN = 1.0
"""Nats added to what is lacking: bets have to be found, and rewards come in batches."""
MIN_NEED = 0.25
"""Nats."""
N_BISECTIONS = 40
_MIN_GAP = 1e-3
"""Differences are taken as at least this: equal arms would need for ever."""


def verdict_shares(test: BestArmTest, rng: np.random.Generator) -> Floats:
    """Return the shares of the next requests that reach a verdict soonest, (n_arms,), summing to 1.

    Once there is a winner it gets all. Where an arm has few rewards, as one that came later, those not
    eliminated share evenly.

    Args:
        test: evidence so far.
        rng: draws the means.
    """
    left = (~test.eliminated).astype(np.float64)
    if test.is_over or test.numbers.min() < MIN_REWARDS:
        # None is left where the means have changed: then all take part again.
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
    """Return R, the nats that each arm lacks to be eliminated; 0 for those that are, (n_arms,)."""
    lacking = np.maximum(test.log_threshold - test.log_e + MARGIN, MIN_NEED)
    return np.where(test.eliminated, 0.0, lacking)


def n_to_verdict(test: BestArmTest) -> int | None:
    """Return the requests until a verdict if the means are as observed.

    0: there is one; ``None``: the leading arms look equal so far.
    """
    if test.is_over:
        return 0
    left = np.sort(test.means[~test.eliminated])
    if test.numbers.min() < 1 or left[-1] - left[-2] - test.min_effect <= _MIN_GAP:
        return None
    numbers = fewest_requests(test.means[None], missing_evidence(test), test.min_effect)
    return int(np.ceil(numbers.sum()))


def fewest_requests(means: Floats, needs: Floats, effect: float) -> Floats:
    """Return the fewest further requests of each arm for each row of means, (n_rows, n_arms).

    Args:
        means: (n_rows, n_arms).
        needs: R, 0 for eliminated arms, (n_arms,) or as means.
        effect: minimum effect of the test.
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
