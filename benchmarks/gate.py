"""The promotion gate in live traffic: false winners, wrong verdicts, requests saved.

    python -m benchmarks.gate [--runs 600] [--only aa environments arms bounds]

Every number is of simulated rewards of 0 and 1, looked at every 100 requests. *Even* and *verdict* are
two ways to share the requests under the same gate, *arms* compares them by the number of arms; *bounds* says what the best way could save. *Plug-in* is the rule of a peer beside them, on
the same even split: gap^2 / (2 (v_1 / n_1 + v_a / n_a)) > ln((1 + ln N) / alpha) with sample variances.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from scipy.optimize import brentq
from scipy.special import rel_entr
from scipy.stats import beta

from convergence_core.gate.allocation import (
    EVEN_SHARE,
    MARGIN,
    MIN_NEED,
    MIN_REWARDS,
    N_DRAWS,
    SHARPNESS,
    fewest_requests,
)
from convergence_core.gate.betting import FRACTIONS, LOG_START, log_mean_wealth
from convergence_core.gate.two_sample import CENTRE_MARGIN

Mode: TypeAlias = Literal["even", "verdict", "omniscient"]
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
FLOOR, TINY = 0.02, 1e-6
LEAST_PULLS = 10
OMNISCIENT_SPREAD = 0.15
"""Shared evenly by the arms that are in; best of 0, .15, .3 and .5 in the six environments."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Many runs: requests of each and its winner, -1 without one, both (n_runs,)."""

    n: np.ndarray
    winners: np.ndarray


class Contests:
    """Many contests at once: what ``gate.BestArmTest`` does to each, as arrays; a test holds them equal.

    The first axis of all arrays is that of the runs.
    """

    def __init__(self, n_runs: int, n_arms: int) -> None:
        self.sums, self.numbers = np.zeros((n_runs, n_arms)), np.zeros((n_runs, n_arms))
        self.log_wealth = np.full((n_runs, n_arms, FRACTIONS.size), LOG_START)
        self.out = np.zeros((n_runs, n_arms), dtype=bool)

    def leaders(self) -> np.ndarray:
        """Return leader and rival by what was seen, (n_runs, 2)."""
        means = (self.sums + 0.5) / (self.numbers + 1.0)
        return np.argsort(-means, axis=1, kind="stable")[:, :2]

    def needs(self) -> np.ndarray:
        """Return what ``allocation.missing_evidence`` does, (n_runs, n_arms)."""
        lacking = LOG_THRESHOLD - log_mean_wealth(self.log_wealth) + MARGIN
        return np.where(self.out, 0.0, np.maximum(lacking, MIN_NEED))

    def tell(
        self, leaders: np.ndarray, shares: np.ndarray, good: np.ndarray, sent: np.ndarray
    ) -> None:
        """Take in a batch.

        Args:
            leaders: as ``leaders`` returned them, (n_runs, 2).
            shares: of each arm in the batch, (n_runs, n_arms).
            good: rewards of 1, (n_runs, n_arms).
            sent: requests, (n_runs, n_arms).
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
        """Forget the runs that are over."""
        self.sums, self.numbers, self.out = self.sums[going], self.numbers[going], self.out[going]
        self.log_wealth = self.log_wealth[going]


def contested(
    means: Sequence[float], n_runs: int, *, mode: Mode, cap: int, batch: int = BATCH
) -> Ended:
    """Run our gate until its verdict or the cap.

    ``omniscient`` traffic and bets know all means: what no rule can know.
    """
    true, rng = np.array(means), np.random.default_rng(7)
    (draws,) = rng.spawn(1)  # of the plans
    contests, going = Contests(n_runs, true.size), np.arange(n_runs)
    ended = Ended(np.full(n_runs, cap), np.full(n_runs, -1))
    for n in range(batch, cap + 1, batch):
        leaders = contests.leaders()
        if mode == "omniscient":
            leaders = np.tile(np.argsort(-true, kind="stable")[:2], (len(leaders), 1))
        shares = shares_of(contests, true, draws, mode)
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


def shares_of(
    contests: Contests, true: np.ndarray, draws: np.random.Generator, mode: Mode
) -> np.ndarray:
    """Return the shares of the next batch as ``allocation`` makes them, (n_runs, n_arms)."""
    n_runs, k = contests.sums.shape
    even = np.full((n_runs, k), 1.0 / k)
    if mode == "even":
        return even
    needs, is_in = contests.needs(), ~contests.out
    evenly = is_in / is_in.sum(axis=1, keepdims=True)
    if mode == "omniscient":
        needed = fewest_requests(np.tile(true, (n_runs, 1)), needs, 0.0)
        soonest = needed / needed.sum(axis=1, keepdims=True)
        wanted = (1 - OMNISCIENT_SPREAD) * soonest + OMNISCIENT_SPREAD * evenly
        return np.asarray((1 - TINY) * wanted + TINY / k)
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
    """Run the peer's rule on an even split until it stops or the cap."""
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


def evidence_rates(means: Sequence[float]) -> tuple[float, float]:
    """Return the nats per request that the slowest arm gains: best shares, and even ones.

    The first is 1 / T* of A. Garivier, E. Kaufmann, "Optimal best arm identification with fixed
    confidence", 2016 (theorem 5): with x_a the requests of arm a for each one of the best,

        g_a(x) = d(mu_1, m) + x d(mu_a, m),    m = (mu_1 + x mu_a) / (1 + x),    g_a(x_a) = y,

    and y such that the d(mu_1, m_a) / d(mu_a, m_a) sum to 1.
    """
    best, *others = sorted(means, reverse=True)

    def evidence(x: float, mean: float) -> float:
        middle = (best + x * mean) / (1 + x)
        return divergence(best, middle) + x * divergence(mean, middle)

    def requests(y: float, mean: float) -> float:
        return float(brentq(lambda x: evidence(x, mean) - y, 0.0, 1e9, xtol=1e-12))

    def excess(y: float) -> float:
        total = 0.0
        for mean in others:
            x = requests(y, mean)
            middle = (best + x * mean) / (1 + x)
            total += divergence(best, middle) / divergence(mean, middle)
        return total - 1.0

    most = divergence(best, max(others))
    y = float(brentq(excess, most * 1e-3, most * (1 - 1e-3)))
    optimal = y / (1.0 + sum(requests(y, mean) for mean in others))
    return optimal, min(evidence(1.0, mean) for mean in others) / len(means)


def divergence(p: float, q: float) -> float:
    """Return the Kullback-Leibler divergence of Bernoulli p from q, nats."""
    return float(rel_entr(p, q) + rel_entr(1 - p, 1 - q))


def bounds(n_runs: int) -> None:
    """Print what the best shares could save, by theory and with all means known."""
    print("\n## What could be saved: by theory, and with traffic and bets that know all means\n")
    print("| arms | even | theory | means known | saved |\n|---|---|---|---|---|")
    rows = []
    for means in ENVIRONMENTS:
        optimal, even = evidence_rates(means)
        modes: tuple[Mode, ...] = ("even", "omniscient")
        needed = [contested(means, n_runs, mode=mode, cap=CAP).n.mean() for mode in modes]
        rows.append((1 - even / optimal, 1 - needed[1] / needed[0]))
        shown = ", ".join(f"{mean:g}" for mean in means)
        print(
            f"| {shown} | {needed[0]:,.0f} | {rows[-1][0]:.1%} | {needed[1]:,.0f} "
            f"| {rows[-1][1]:.1%} |",
            flush=True,
        )
    theory, known = np.mean(rows, axis=0)
    print(f"\nMean over environments: {theory:.1%} by theory, {known:.1%} with all means known.")


def at_most(wrong: int, n: int) -> float:
    """Return the one-sided 95 % upper bound of a share (Clopper and Pearson)."""
    return 1.0 if wrong == n else float(beta.ppf(0.95, wrong + 1, n - wrong))


def equal_arms(n_runs: int) -> None:
    """Print the share of runs of two equal arms that ever have a winner."""
    print("\n## Two equal arms, a look every 100 of 10,000 requests: share with a winner\n")
    print("| mean | even | verdict | plug-in |\n|---|---|---|---|")
    for mean in (0.7, 0.02, 0.98):
        cells = []
        for play in _plays():
            won = int((play((mean, mean), n_runs, cap=10_000).winners >= 0).sum())
            cells.append(f"{won}/{n_runs} (at most {at_most(won, n_runs):.1%})")
        print(f"| {mean} | {' | '.join(cells)} |", flush=True)


def environments(n_runs: int) -> None:
    """Print requests, wrong verdicts and undecided runs of the six environments."""
    print(f"\n## Mean requests to a verdict (at most {CAP:,}), wrong verdicts, undecided runs\n")
    print("| arms | even | verdict | saved | plug-in |\n|---|---|---|---|---|")
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
        print(f"| {shown} | {cells[0]} | {cells[1]} | {saved[-1]:.0%} | {cells[2]} |", flush=True)
    print(
        f"\nSaved by `verdict`: {1 - totals[1] / totals[0]:.0%} of all requests, "
        f"{np.mean(saved):.0%} as the mean over environments."
    )


def ladder(n_arms: int) -> tuple[float, ...]:
    """Return means each .05 below the next."""
    return tuple(0.7 - 0.05 * i for i in range(n_arms))


def alike(n_arms: int) -> tuple[float, ...]:
    """Return one mean and, .05 below it, all others."""
    return (0.7, *[0.65] * (n_arms - 1))


def arms(n_runs: int) -> None:
    """Print what ``verdict`` saves by the number of arms."""
    print("\n## Requests to a verdict that `verdict` saves, and its 95 % interval\n")
    print("| arms | 0.7, 0.65, 0.6 … | 0.7, 0.65, 0.65 … |\n|---|---|---|")
    for n_arms in (2, 3, 4, 6, 8):
        cells = [saved_interval(of(n_arms), n_runs) for of in (ladder, alike)]
        print(f"| {n_arms} | {' | '.join(cells)} |", flush=True)


def saved_interval(means: Sequence[float], n_runs: int) -> str:
    """Return the share of requests that is saved, and its 95 % interval by the delta method."""
    even, soon = (
        contested(means, n_runs, mode=mode, cap=4 * CAP).n for mode in ("even", "verdict")
    )
    left = soon.mean() / even.mean()
    relative = sum(one.var(ddof=1) / one.mean() ** 2 for one in (even, soon)) / n_runs
    half = 1.96 * left * np.sqrt(relative)
    return (
        f"{100 * (1 - left):.0f} % [{100 * (1 - left - half):.0f}, {100 * (1 - left + half):.0f}]"
    )


def _plays() -> tuple[Callable[..., Ended], ...]:
    return (
        partial(contested, mode="even"),
        partial(contested, mode="verdict"),
        plugged_in,
    )


def main() -> None:
    """Parse the command line and print what was asked for."""
    parser = argparse.ArgumentParser(description="The promotion gate in live traffic.")
    parser.add_argument("--runs", type=int, default=600)
    parts = {"aa": equal_arms, "environments": environments, "arms": arms, "bounds": bounds}
    parser.add_argument("--only", nargs="+", choices=list(parts), default=list(parts))
    options = parser.parse_args()
    begun = time.process_time()
    for name in options.only:
        parts[name](options.runs)
    print(f"\n{options.runs} runs each, {time.process_time() - begun:.0f} CPU-seconds.")


if __name__ == "__main__":
    main()
