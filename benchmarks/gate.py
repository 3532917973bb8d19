"""Promotion gate in live traffic: false winners, wrong verdicts, saved requests.

    python -m benchmarks.gate --runs 600

Simulated rewards are 0 or 1, and the gate is checked every 100 requests. *Even* and *verdict* are two ways
to split requests under the same gate. *Plug-in* is a peer's rule on the same even split:
gap^2 / (2 (v_1 / n_1 + v_a / n_a)) > ln((1 + ln N) / alpha) with sample variances.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from scipy.stats import beta

from benchmarks.machine import options
from benchmarks.tables import header, row
from convergence_core.gate.best_arm_test import (
    EVEN_SHARE,
    MARGIN,
    MIN_NEED,
    MIN_REWARDS,
    N_DRAWS,
    SHARPNESS,
    fewest_requests,
)
from convergence_core.gate.betting import CENTRE_MARGIN, FRACTIONS, LOG_START, log_mean_wealth

Mode: TypeAlias = Literal["even", "verdict"]
ENVIRONMENTS = (
    (0.70, 0.75),
    (0.60, 0.65, 0.70),
    (0.50, 0.55, 0.60, 0.65, 0.70),
    (0.02, 0.04),
    (0.02, 0.02, 0.03, 0.04),
    (0.94, 0.96, 0.98),
)
BATCH, CAP, ALPHA = 100, 40_000, 0.05
LOG_THRESHOLD = float(np.log(2.0 / ALPHA))
FLOOR = 0.02
LEAST_PULLS = 10


@dataclass(frozen=True, slots=True)
class Ended:
    """Requests and winner of each run, both (n_runs,); winner -1 means none."""

    n: np.ndarray
    winners: np.ndarray


class Contests:
    """Many contests in parallel: ``gate.BestArmTest`` as array operations. A test checks that they agree.

    The first axis of every array indexes runs.
    """

    def __init__(self, n_runs: int, n_arms: int) -> None:
        self.sums, self.numbers = np.zeros((n_runs, n_arms)), np.zeros((n_runs, n_arms))
        self.log_wealth = np.full((n_runs, n_arms, FRACTIONS.size), LOG_START)
        self.out = np.zeros((n_runs, n_arms), dtype=bool)

    def leaders(self) -> np.ndarray:
        """Return leader and rival by observed means, (n_runs, 2)."""
        means = (self.sums + 0.5) / (self.numbers + 1.0)
        return np.argsort(-means, axis=1, kind="stable")[:, :2]

    def needs(self) -> np.ndarray:
        """Return the result of ``allocation.missing_evidence`` per run, (n_runs, n_arms)."""
        lacking = LOG_THRESHOLD - log_mean_wealth(self.log_wealth) + MARGIN
        return np.where(self.out, 0.0, np.maximum(lacking, MIN_NEED))

    def tell(
        self, leaders: np.ndarray, shares: np.ndarray, good: np.ndarray, sent: np.ndarray
    ) -> None:
        """Update with a batch.

        Args:
            leaders: Result of ``leaders``, (n_runs, 2).
            shares: Traffic share of each arm, (n_runs, n_arms).
            good: Number of rewards of 1, (n_runs, n_arms).
            sent: Number of requests, (n_runs, n_arms).
        """
        rows = np.arange(len(shares))
        means = (self.sums + 0.5) / (self.numbers + 1.0)
        stakes = (self.numbers.min(axis=1) > 0)[:, None]
        for arm in range(shares.shape[1]):
            first = np.where(leaders[:, 0] == arm, leaders[:, 1], leaders[:, 0])
            p = shares[rows, first] / (shares[rows, first] + shares[:, arm])
            centre = np.clip(
                p * means[rows, first] + (1.0 - p) * means[:, arm],
                CENTRE_MARGIN,
                1.0 - CENTRE_MARGIN,
            )
            stake = np.minimum(p / centre, (1.0 - p) / (1.0 - centre))
            won, lost = good[rows, first], sent[rows, first] - good[rows, first]
            grown = np.zeros((len(rows), FRACTIONS.size))
            for count, gain in (
                (won, stake * (1.0 - centre) / p),
                (lost, -stake * centre / p),
                (good[:, arm], -stake * (1.0 - centre) / (1.0 - p)),
                (sent[:, arm] - good[:, arm], stake * centre / (1.0 - p)),
            ):
                grown += count[:, None] * np.log1p(FRACTIONS * gain[:, None])
            self.log_wealth[:, arm] += np.where(stakes, grown, 0.0)
        self.sums += good
        self.numbers += sent
        self.out |= log_mean_wealth(self.log_wealth) >= LOG_THRESHOLD

    def kept(self, going: np.ndarray) -> None:
        """Drop finished runs."""
        self.sums, self.numbers, self.out = self.sums[going], self.numbers[going], self.out[going]
        self.log_wealth = self.log_wealth[going]


def contested(
    means: Sequence[float], n_runs: int, *, mode: Mode, cap: int, batch: int = BATCH
) -> Ended:
    """Run our gate until it reaches a verdict or the cap."""
    true, rng = np.array(means), np.random.default_rng(7)
    (draws,) = rng.spawn(1)  # of the plans
    contests, going = Contests(n_runs, true.size), np.arange(n_runs)
    ended = Ended(np.full(n_runs, cap), np.full(n_runs, -1))
    for n in range(batch, cap + 1, batch):
        leaders = contests.leaders()
        shares = shares_of(contests, draws, mode)
        sent = rng.multinomial(batch, shares)
        contests.tell(leaders, shares, rng.binomial(sent, true), sent)
        is_over = contests.out.sum(axis=1) >= true.size - 1
        over = going[is_over]
        left = ~contests.out[is_over]
        ended.n[over] = n
        ended.winners[over] = np.where(left.any(axis=1), left.argmax(axis=1), -1)
        contests.kept(~is_over)
        going = going[~is_over]
        if not going.size:
            break
    return ended


def shares_of(contests: Contests, draws: np.random.Generator, mode: Mode) -> np.ndarray:
    """Return the next batch's shares by the rule of ``allocation``, (n_runs, n_arms)."""
    n_runs, k = contests.sums.shape
    even = np.full((n_runs, k), 1.0 / k)
    if mode == "even":
        return even
    needs, is_in = contests.needs(), ~contests.out
    evenly = is_in / is_in.sum(axis=1, keepdims=True)
    failures = contests.numbers - contests.sums
    drawn = draws.beta(
        SHARPNESS * contests.sums + 0.5, SHARPNESS * failures + 0.5, size=(N_DRAWS, n_runs, k)
    )
    many = np.broadcast_to(needs, drawn.shape).reshape(-1, k)
    numbers = fewest_requests(drawn.reshape(-1, k), many, 0.0).reshape(drawn.shape)
    soonest = (numbers / numbers.sum(axis=2, keepdims=True)).mean(axis=0)
    wanted = (1.0 - EVEN_SHARE) * soonest + EVEN_SHARE * evenly
    shares = (1.0 - FLOOR) * wanted + FLOOR / k
    shares /= shares.sum(axis=1, keepdims=True)
    return np.where((contests.numbers.min(axis=1) < MIN_REWARDS)[:, None], even, shares)


def plugged_in(means: Sequence[float], n_runs: int, *, cap: int) -> Ended:
    """Run the peer's rule on an even split until it stops or reaches the cap."""
    k, rng = len(means), np.random.default_rng(7)
    sums, numbers, going = np.zeros((n_runs, k)), np.zeros((n_runs, k)), np.arange(n_runs)
    ended = Ended(np.full(n_runs, cap), np.full(n_runs, -1))
    for n in range(BATCH, cap + 1, BATCH):
        drawn = rng.multinomial(BATCH, np.full((going.size, k), 1.0 / k))
        sums[going] += rng.binomial(drawn, means)
        numbers[going] += drawn
        s, m = sums[going], numbers[going]
        mean = s / np.maximum(m, 1)
        variance = np.maximum(mean * (1 - mean) * m / np.maximum(m - 1, 1), 1e-12)
        best = mean.argmax(axis=1)
        rows = np.arange(going.size)
        parts = variance / np.maximum(m, 1)
        gaps = mean[rows, best][:, None] - mean
        statistic = gaps**2 / (2 * (parts[rows, best][:, None] + parts))
        statistic[rows, best] = np.inf
        stops = (statistic.min(axis=1) > np.log((1 + np.log(n)) / ALPHA)) & (
            m.min(axis=1) >= LEAST_PULLS
        )
        ended.n[going[stops]] = n
        ended.winners[going[stops]] = best[stops]
        going = going[~stops]
        if not going.size:
            break
    return ended


def at_most(wrong: int, n: int) -> float:
    """Return the one-sided 95 % upper bound of a share (Clopper and Pearson)."""
    return 1.0 if wrong == n else float(beta.ppf(0.95, wrong + 1, n - wrong))


def equal_arms(n_runs: int) -> None:
    """Print the share of runs that declare a winner between two equal arms."""
    print("\n## Two equal arms, a look every 100 of 10,000 requests: share with a winner\n")
    print(header("mean", "even", "verdict", "plug-in"))
    for mean in (0.7, 0.02, 0.98):
        cells = []
        for play in _plays():
            won = int((play((mean, mean), n_runs, cap=10_000).winners >= 0).sum())
            cells.append(f"{won}/{n_runs} (at most {at_most(won, n_runs):.1%})")
        print(row(mean, *cells), flush=True)


def environments(n_runs: int) -> None:
    """Print requests, wrong verdicts and undecided runs of the six environments."""
    print(f"\n## Mean requests to a verdict (at most {CAP:,}), wrong verdicts, undecided runs\n")
    print(header("arms", "even", "verdict", "saved", "plug-in"))
    totals, saved = np.zeros(2), []
    for means in ENVIRONMENTS:
        cells, needed = [], []
        best = int(np.argmax(means))
        for play in _plays():
            runs = play(means, n_runs, cap=CAP)
            needed.append(float(runs.n.mean()))
            wrong = int(((runs.winners != best) & (runs.winners >= 0)).sum())
            undecided = int((runs.winners < 0).sum())
            bound = at_most(wrong, n_runs)
            cells.append(f"{needed[-1]:,.0f}; {wrong} (at most {bound:.1%}); {undecided}")
        totals += needed[:2]
        saved.append(1 - needed[1] / needed[0])
        shown = ", ".join(f"{mean:g}" for mean in means)
        print(row(shown, *cells[:2], f"{saved[-1]:.0%}", cells[2]), flush=True)
    print(
        f"\nSaved by `verdict`: {1 - totals[1] / totals[0]:.0%} of all requests, "
        f"{np.mean(saved):.0%} as the mean over environments."
    )


def _plays() -> tuple[Callable[..., Ended], ...]:
    return partial(contested, mode="even"), partial(contested, mode="verdict"), plugged_in


def main() -> None:
    """Print both tables."""
    n_runs = options(__doc__, runs=600).runs
    begun = time.process_time()
    equal_arms(n_runs)
    environments(n_runs)
    print(f"\n{n_runs} runs each, {time.process_time() - begun:.0f} CPU-seconds.")


if __name__ == "__main__":
    main()
