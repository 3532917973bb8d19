"""Which of several arms is best? Evidence from live traffic, valid at any look.

For each arm b there is one null: *no arm is better than b by more than the minimum effect*. Its
evidence is the wealth of betting, on every request that goes to b or to the arm that led at the
last look, that the leader is better than b (``bets``). Choosing the opponent by the past is allowed,
so there is no price for many arms. An arm is **out** when its evidence reaches ``2 / alpha``; the
last one left is the winner.

*Error.* Let b1 be the best arm and b2 the next. A winner that is not better than all others by more
than the effect needs b1 or b2 to be out although its null is true. Each happens, ever, with
probability at most ``alpha / 2`` (Ville), so together ``alpha``: for any number of arms, ties
included, at any look, whatever rule allocates the requests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from convergence_core.gate.bets import log_factors
from convergence_core.gate.betting import EVEN, FRACTIONS, Floats, log_mean_wealth
from convergence_core.records import Json

Indices = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RewardedRequests:
    """Rewarded requests; equal ones may be given once with their number."""

    arms: Indices
    """Which arm, (n,) of int."""
    rewards: Floats
    """(n,), in [0, 1]."""
    propensities: Floats
    """Probability of every arm when this one was chosen, (n, n_arms)."""
    counts: Floats
    """How many such requests, (n,)."""

    @classmethod
    def of_counts(
        cls, successes: ArrayLike, numbers: ArrayLike, shares: ArrayLike
    ) -> "RewardedRequests":
        """Return the outcomes of a batch with fixed shares and rewards of 0 and 1.

        Args:
            successes: rewards of 1 by arm, (n_arms,).
            numbers: requests by arm, (n_arms,).
            shares: propensity of each arm during the batch, (n_arms,).
        """
        good = np.asarray(successes, dtype=np.float64)
        p = np.asarray(shares, dtype=np.float64)
        n_arms = p.size
        return cls(
            arms=np.tile(np.arange(n_arms), 2),
            rewards=np.repeat((1.0, 0.0), n_arms),
            propensities=np.tile(p, (2 * n_arms, 1)),
            counts=np.concatenate((good, np.asarray(numbers, dtype=np.float64) - good)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What the bets on requests chosen from now on rest on; fixed before any of them."""

    leader: int
    rival: int
    """The best of the others: the leader's own opponent."""
    means: tuple[float, ...]
    """Expected reward of each arm."""
    stakes: bool
    """Whether anything is staked: not before each arm has a reward."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BestArmTest:
    """Evidence on every arm, and what it was made from."""

    alpha: float
    min_effect: float
    sums: Floats
    """Sum of rewards by arm, (n_arms,)."""
    numbers: Floats
    """Rewards by arm, (n_arms,)."""
    log_wealth: Floats
    """Of each bet against each arm's null, nats, (n_arms, n_bets)."""
    out: np.ndarray
    """Arms whose null was rejected, (n_arms,) of bool; for good."""

    @classmethod
    def begin(cls, n_arms: int, *, alpha: float = 0.05, min_effect: float = 0.0) -> "BestArmTest":
        """Return the contest before any reward.

        Raises:
            ValueError: fewer than two arms, or a setting out of range.
        """
        if n_arms < 2:
            raise ValueError(f"a contest needs two arms or more, but got {n_arms}")
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
            log_wealth=np.full((n_arms, FRACTIONS.size), EVEN),
            out=np.zeros(n_arms, dtype=bool),
        )

    @property
    def n_arms(self) -> int:
        """Arms in the contest, those that are out included."""
        return int(self.sums.size)

    @property
    def log_threshold(self) -> float:
        """Evidence at which an arm is out, nats."""
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
        left = np.flatnonzero(~self.out)
        return int(left[0]) if left.size == 1 else None

    @property
    def is_over(self) -> bool:
        """Whether there is a winner, or none is left: the arms' means must have changed then."""
        return int(self.out.sum()) >= self.n_arms - 1

    def design(self) -> Design:
        """Return what to stake on the requests from now on."""
        by_mean = np.argsort(-self.means, kind="stable")
        return Design(
            leader=int(by_mean[0]),
            rival=int(by_mean[1]),
            means=tuple(self.means.tolist()),
            stakes=bool(self.numbers.min() > 0),
        )

    def tell(self, design: Design, outcomes: RewardedRequests) -> "BestArmTest":
        """Return the contest after rewards of requests that were chosen under a design.

        Args:
            design: as ``design`` returned it before the first of these requests was chosen.
            outcomes: in any order; those of one design may come in several parts.
        """
        told = self.taught(self.gains(design, outcomes), outcomes)
        return told.looked()

    def gains(self, design: Design, outcomes: RewardedRequests) -> Floats:
        """Return the growth of every bet's logarithm, (n_arms, n_bets); it adds up over designs."""
        grown = np.zeros_like(self.log_wealth)
        for arm in range(self.n_arms if design.stakes else 0):
            first = design.rival if arm == design.leader else design.leader
            chosen = (outcomes.arms == first) | (outcomes.arms == arm)
            if chosen.any():
                grown[arm] = self._gains(design, outcomes, chosen, first, arm)
        return grown

    def taught(self, gains: Floats, outcomes: RewardedRequests) -> "BestArmTest":
        """Return the contest with gains and outcomes added, without looking who is out."""
        numbers = np.bincount(outcomes.arms, outcomes.counts, self.n_arms)
        sums = np.bincount(outcomes.arms, outcomes.counts * outcomes.rewards, self.n_arms)
        return replace(
            self,
            sums=self.sums + sums,
            numbers=self.numbers + numbers,
            log_wealth=self.log_wealth + gains,
        )

    def looked(self) -> "BestArmTest":
        """Return the contest with those out whose evidence suffices now."""
        return replace(self, out=self.out | (self.log_e >= self.log_threshold))

    def _gains(
        self, design: Design, outcomes: RewardedRequests, chosen: np.ndarray, first: int, arm: int
    ) -> Floats:
        """Return the growth of the log-wealth against an arm's null, (n_bets,)."""
        pair = outcomes.propensities[chosen][:, (first, arm)]
        logs = log_factors(
            is_first=outcomes.arms[chosen] == first,
            rewards=outcomes.rewards[chosen],
            shares=pair[:, 0] / pair.sum(axis=1),
            means=(design.means[first], design.means[arm]),
            effect=self.min_effect,
        )
        return np.asarray(outcomes.counts[chosen] @ logs)

    def regret(self) -> float:
        """Return the reward lost so far against the leader: sum of n (highest mean - mean).

        An estimate, in units of reward; it is high by the luck of the leader.
        """
        means = np.divide(
            self.sums, self.numbers, out=np.zeros(self.n_arms), where=self.numbers > 0
        )
        return float(self.numbers @ (means.max() - means))

    def to_json(self) -> dict[str, Json]:
        """Return a JSON value from which ``from_json`` makes an equal contest."""
        return {
            "alpha": self.alpha,
            "min_effect": self.min_effect,
            "sums": self.sums.tolist(),
            "numbers": self.numbers.tolist(),
            "log_wealth": self.log_wealth.tolist(),
            "out": self.out.tolist(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Json]) -> "BestArmTest":
        """Rebuild from ``to_json``.

        Raises:
            ValueError: the value was not made by ``to_json``.
        """
        try:
            arrays = {
                name: np.array(value[name], dtype=bool if name == "out" else np.float64)
                for name in ("sums", "numbers", "log_wealth", "out")
            }
            alpha, effect = float(str(value["alpha"])), float(str(value["min_effect"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a contest: {str(value)[:80]}") from error
        found = cls(alpha=alpha, min_effect=effect, **arrays)
        if found.log_wealth.shape != (found.n_arms, FRACTIONS.size) or found.n_arms < 2:
            raise ValueError(f"not a contest: {str(value)[:80]}")
        return found
