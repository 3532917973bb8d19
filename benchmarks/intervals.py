"""Coverage and width of intervals of a mean, and false promotions on cases that come in groups.

    python -m benchmarks.intervals --runs 400

The alternatives are Student's t; for rewards of 0 and 1 Jeffreys' interval (L. Brown, T. Cai, A. DasGupta,
2001); the empirical Bernstein bound (A. Maurer, M. Pontil, 2009); and the hedged capital process with the
bets for a fixed number of values (I. Waudby-Smith, A. Ramdas, 2024, ``lambda = sqrt(2 log(2 / alpha) / (n
variance))`` from the past of each value).
"""

import argparse
from collections.abc import Callable

import numpy as np
from scipy import stats

from convergence_core.gate import PairedGate
from convergence_core.gate.intervals import grouped, mean_ends

Draw = Callable[[np.random.Generator, int], np.ndarray]
Ends = tuple[float, float]
ALPHA = 0.05
NUMBERS = (1, 2, 3, 4, 5, 8, 20)
LARGE = 200
KINDS: dict[str, tuple[float, Draw]] = {
    "0.9 always": (0.9, lambda _, n: np.full(n, 0.9)),
    "0.3, or 1 in a fifth": (0.44, lambda rng, n: np.where(rng.random(n) < 0.8, 0.3, 1.0)),
    "Beta(2, 5)": (2 / 7, lambda rng, n: rng.beta(2, 5, n)),
    "uniform": (0.5, lambda rng, n: rng.random(n)),
    "0 or 1, half": (0.5, lambda rng, n: (rng.random(n) < 0.5) * 1.0),
    "0.9, or 0 in 1 %": (0.891, lambda rng, n: np.where(rng.random(n) < 0.01, 0.0, 0.9)),
    "1 in 1 %": (0.01, lambda rng, n: (rng.random(n) < 0.01) * 1.0),
    "Beta(0.1, 2)": (1 / 21, lambda rng, n: rng.beta(0.1, 2.0, n)),
    "Beta(20, 5)": (0.8, lambda rng, n: rng.beta(20, 5, n)),
    "Beta(50, 2)": (50 / 52, lambda rng, n: rng.beta(50, 2, n)),
}
"""Mean and draw of values in [0, 1]."""


def ours(x: np.ndarray) -> Ends:
    """Return the interval of this project."""
    return mean_ends(x, tail=ALPHA / 2)


def student(x: np.ndarray) -> Ends:
    """Return Student's interval; everything for a single value."""
    if x.size < 2:
        return 0.0, 1.0
    half = float(stats.t.ppf(1 - ALPHA / 2, x.size - 1) * x.std(ddof=1) / x.size**0.5)
    return x.mean() - half, x.mean() + half


def jeffreys(x: np.ndarray) -> Ends:
    """Return Jeffreys' interval for values 0 and 1, else Student's."""
    if not np.isin(x, (0.0, 1.0)).all():
        return student(x)
    hits = x.sum()
    low, high = stats.beta(hits + 0.5, x.size - hits + 0.5).interval(1 - ALPHA)
    return (0.0 if not hits else low), (1.0 if hits == x.size else high)


def bernstein(x: np.ndarray) -> Ends:
    """Return the empirical Bernstein interval."""
    if x.size < 2:
        return 0.0, 1.0
    logarithm = np.log(4 / ALPHA)
    half = np.sqrt(2 * x.var(ddof=1) * logarithm / x.size) + 7 * logarithm / (3 * (x.size - 1))
    return max(0.0, x.mean() - half), min(1.0, x.mean() + half)


def hedged(x: np.ndarray) -> Ends:
    """Return the means that the hedged capital never rejects, on a grid of a thousand."""
    m, t = np.linspace(0.0005, 0.9995, 1_000), np.arange(1, x.size + 1)
    mean = np.concatenate(([0.5], (0.5 + np.cumsum(x)) / (t + 1)))
    square = np.cumsum((x - mean[1:]) ** 2)
    variance = np.concatenate(([0.25], (0.25 + square) / (t + 1)))[:-1]
    bet = np.sqrt(2 * np.log(2 / ALPHA) / (x.size * variance))[:, None]
    above = np.log1p(np.minimum(bet, 0.9 / m) * (x[:, None] - m)).cumsum(axis=0).max(axis=0)
    below = np.log1p(-np.minimum(bet, 0.9 / (1 - m)) * (x[:, None] - m)).cumsum(axis=0).max(axis=0)
    kept = m[np.maximum(above, below) + np.log(0.5) < np.log(1 / ALPHA)]
    return (float(kept.min()), float(kept.max())) if kept.size else (x.mean(), x.mean())


METHODS: dict[str, Callable[[np.ndarray], Ends]] = {
    "ours": ours,
    "Student": student,
    "Jeffreys, else Student": jeffreys,
    "empirical Bernstein": bernstein,
    "hedged capital": hedged,
}


def print_coverage(n_runs: int) -> None:
    """Print the least coverage over small numbers of values, and where it is."""
    print(f"Least coverage over n = {', '.join(map(str, NUMBERS))}, and its n:\n")
    print(f"| values | {' | '.join(METHODS)} |\n|---|{'---|' * len(METHODS)}")
    for name, (truth, draw) in KINDS.items():
        cells = []
        for method in METHODS.values():
            found = []
            for n in NUMBERS:
                rng = np.random.default_rng([n, 1])
                ends = [method(draw(rng, n)) for _ in range(n_runs)]
                covered = np.mean([low - 1e-9 <= truth <= high + 1e-9 for low, high in ends])
                found.append((float(covered), n))
            cells.append("{:.3f} ({})".format(*min(found)))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def print_widths(n_runs: int) -> None:
    """Print coverage and mean width at many values, the width in units of Student's."""
    print(f"\nCoverage at n = {LARGE}, and mean width by Student's:\n")
    print(f"| values | {' | '.join(METHODS)} |\n|---|{'---|' * len(METHODS)}")
    for name, (truth, draw) in KINDS.items():
        widths, hits = dict.fromkeys(METHODS, 0.0), dict.fromkeys(METHODS, 0)
        rng = np.random.default_rng(2)
        for _ in range(n_runs):
            x = draw(rng, LARGE)
            for key, method in METHODS.items():
                low, high = method(x)
                widths[key] += high - low
                hits[key] += low - 1e-9 <= truth <= high + 1e-9
        unit = widths["Student"]
        cells = [
            f"{hits[key] / n_runs:.3f}" + (f", {widths[key] / unit:.2f}" if unit else "")
            for key in METHODS
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def print_groups(n_runs: int) -> None:
    """Print false promotions of equals on ten paraphrases of each of forty questions."""
    gate, wrong = PairedGate(alpha=ALPHA), {"cases": 0, "groups": 0}
    groups = [f"q{i // 10}" for i in range(400)]
    for seed in range(n_runs):
        rng = np.random.default_rng([3, seed])
        knows = np.repeat(rng.random((2, 40)) < 0.5, 10, axis=1)
        own, other = np.where(rng.random((2, 400)) < 0.9, knows, rng.random((2, 400)) < 0.5) * 1.0
        for name, given in (("cases", [None] * 400), ("groups", groups)):
            units = grouped((own - other).tolist(), [1.0] * 400, given)
            wrong[name] += gate.judge(units.values, units.weights).decision == "promote"
    print(f"\nFalse promotions of equals in {n_runs} comparisons, ten paraphrases a question:\n")
    print("| bets on | wrong |\n|---|---|")
    for name, n in wrong.items():
        print(f"| {name} | {n / n_runs:.1%} |")


def main() -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description="Coverage and width of intervals of a mean.")
    parser.add_argument("--runs", type=int, default=400, help="samples of each kind and number")
    options = parser.parse_args()
    print_coverage(options.runs)
    print_widths(max(20, options.runs // 4))
    print_groups(options.runs)


if __name__ == "__main__":
    main()
