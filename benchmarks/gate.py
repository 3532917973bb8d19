"""The promotion gate in live traffic: false winners, wrong verdicts, requests saved.

    python -m benchmarks.gate [--runs 600] [--only aa,environments]

Every number is of simulated rewards of 0 and 1, looked at every 100 requests. *Even* and *verdict* are
two ways to share the requests under the same gate. *Plug-in* is the rule of a peer beside them, on
the same even split: gap^2 / (2 (v_1 / n_1 + v_a / n_a)) > ln((1 + ln N) / alpha) with sample variances.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from convergence_core.gate import Contest, Outcomes, even_plan, verdict_plan

ENVIRONMENTS = (
    (0.70, 0.75),
    (0.60, 0.65, 0.70),
    (0.50, 0.55, 0.60, 0.65, 0.70),
    (0.02, 0.04),
    (0.02, 0.02, 0.03, 0.04),
    (0.94, 0.96, 0.98),
)
BATCH, CAP, ALPHA = 100, 40_000, 0.05
LEAST_PULLS = 10


@dataclass(frozen=True, slots=True)
class Ended:
    """One run."""

    n: int
    winner: int | None


def contested(means: Sequence[float], rng: np.random.Generator, *, mode: str, cap: int) -> Ended:
    """Run our gate until its verdict or the cap."""
    contest, n = Contest.begin(len(means), alpha=ALPHA), 0
    while n < cap and not contest.is_over:
        plan = verdict_plan(contest, rng) if mode == "verdict" else even_plan(contest)
        design = contest.design()
        numbers = rng.multinomial(BATCH, plan.shares)
        outcomes = Outcomes.of_counts(rng.binomial(numbers, means), numbers, plan.shares)
        contest = contest.tell(design, outcomes)
        n += BATCH
    return Ended(n, contest.winner)


def plugged_in(means: Sequence[float], rng: np.random.Generator, *, cap: int) -> Ended:
    """Run the peer's rule on an even split until it stops or the cap."""
    k = len(means)
    sums, numbers, n = np.zeros(k), np.zeros(k), 0
    while n < cap:
        drawn = rng.multinomial(BATCH, np.full(k, 1.0 / k))
        sums += rng.binomial(drawn, means)
        numbers += drawn
        n += BATCH
        if numbers.min() < LEAST_PULLS:
            continue
        mean = sums / numbers
        variance = np.maximum(mean * (1 - mean) * numbers / (numbers - 1), 1e-12)
        best = int(mean.argmax())
        others = np.arange(k) != best
        spread = variance[best] / numbers[best] + (variance / numbers)[others]
        statistic = ((mean[best] - mean[others]) ** 2 / (2 * spread)).min()
        if statistic > np.log((1 + np.log(n)) / ALPHA):
            return Ended(n, best)
    return Ended(n, None)


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
            rng = np.random.default_rng(7)
            won = sum(play((mean, mean), rng, 10_000).winner is not None for _ in range(n_runs))
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
            rng = np.random.default_rng(7)
            runs = [play(means, rng, CAP) for _ in range(n_runs)]
            needed.append(float(np.mean([run.n for run in runs])))
            wrong = sum(run.winner not in {None, best} for run in runs)
            undecided = sum(run.winner is None for run in runs)
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


def _plays() -> tuple[Callable[[Sequence[float], np.random.Generator, int], Ended], ...]:
    return (
        lambda means, rng, cap: contested(means, rng, mode="even", cap=cap),
        lambda means, rng, cap: contested(means, rng, mode="verdict", cap=cap),
        lambda means, rng, cap: plugged_in(means, rng, cap=cap),
    )


def main() -> None:
    """Parse the command line and print what was asked for."""
    parser = argparse.ArgumentParser(description="The promotion gate in live traffic.")
    parser.add_argument("--runs", type=int, default=600)
    parser.add_argument("--only", default="aa,environments")
    options = parser.parse_args()
    parts = {"aa": equal_arms, "environments": environments}
    begun = time.process_time()
    for name in options.only.split(","):
        parts[name](options.runs)
    print(f"\n{options.runs} runs each, {time.process_time() - begun:.0f} CPU-seconds.")


if __name__ == "__main__":
    main()
