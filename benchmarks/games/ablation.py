"""Tables of what the critic's game finds and costs, paired by seed."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from scipy.stats import beta, t as student

from benchmarks.games.hard_cases import Nights, Reviewer, first_incumbent, look, run_nights
from benchmarks.games.planted_sums import Critic, Sums

SHARE_WEAK: Final = 0.4
"""Of real questions that show the weakness, where there is one to be found."""
N_FRESH: Final = 200
"""Questions of the set that weighs the last incumbent, which nobody has looked at before."""
ARMS: Final[Mapping[str, tuple[Critic, Reviewer, float]]] = {
    "useless, everything approved": ("useless", Reviewer(), 1.0),
    "adversarial, what nobody asks rejected": ("adversarial", Reviewer(approves="what is asked"), 1.0),
    "adversarial, everything approved": ("adversarial", Reviewer(), 1.0),
    "the same, `games_share: 1`": ("adversarial", Reviewer(most_weight=1.0), 0.4),
    "the same, `games_share: 1`, the two newest": ("adversarial", Reviewer(most_weight=1.0, most_cases=2), 0.4),
}  # fmt: skip
"""Critic and reviewer, and the share of the seeds: what is far from its bar needs fewer."""


def weak_seeds(n: int) -> Iterator[int]:
    """Yield the first seeds whose incumbent has the planted weakness before any game."""
    seed, n_left = 0, n
    while n_left:
        world = Sums(seed, SHARE_WEAK)
        if world.weakness in world.weaknesses(first_incumbent(seed).params):
            yield seed
            n_left -= 1
        seed += 1


def fresh_score(nights: Nights, seed: int) -> float:
    """Return the last incumbent's mean reward on questions that bear the weakness."""
    world = Sums(seed, SHARE_WEAK)
    questions = world.questions(N_FRESH, 2, share=SHARE_WEAK)
    mean = look(world, nights.incumbents[-1], questions).mean
    assert mean is not None
    return mean


def report_finds(n_seeds: int = 30, n_nights: int = 5) -> None:
    """Print how often the weakness is found, and what is gained on fresh questions that bear it."""
    began, found, scores = time.process_time(), 0, []
    for seed in weak_seeds(n_seeds):
        plain = run_nights(seed, None, n_nights, share=SHARE_WEAK)
        games = run_nights(seed, "good", n_nights, share=SHARE_WEAK, executes=True)
        found += games.found
        scores.append((fresh_score(plain, seed), fresh_score(games, seed)))
    low, high = share_interval(found, n_seeds)
    without, with_games = np.array(scores).T
    mean, half = mean_and_half(with_games - without)
    error = (with_games - without).std(ddof=1) / np.sqrt(n_seeds)
    print(f"\nGood critic, {n_seeds} seeds, {n_nights} nights, programs in the limited process:")
    print(
        f"weakness found: {found} of {n_seeds} [{low:.2f}, {high:.2f}] (95 %); by the given cases: 0"
    )
    print(
        "| fresh questions | without games | with games | difference, paired | standard errors |"
    )
    print("|---|---|---|---|---|")
    print(f"| {N_FRESH} | {without.mean():.3f} | {with_games.mean():.3f} "
          f"| {mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}] | {mean / error:.1f} |")  # fmt: skip
    print(f"{time.process_time() - began:.0f} s of CPU without those of programs", flush=True)


def report_costs(n_seeds: int = 50, n_nights: int = 4) -> None:
    """Print what critics cost that do not help, where no question shows a weakness."""
    began = time.process_time()
    plain = [regrets_of(seed, run_nights(seed, None, n_nights, share=0.0)) for seed in range(n_seeds)]  # fmt: skip
    print(f"\nNo weakness to be found, {n_seeds} seeds, {n_nights} nights, 95 % t intervals:")
    print(
        "| critic, hard cases | seeds | regret per cell | change, paired | error | of the incumbent | change |"
    )
    print("|---|---|---|---|---|---|---|")
    print_row("no games", plain, plain)
    for title, (critic, reviewer, part) in ARMS.items():
        rows = [
            regrets_of(seed, run_nights(seed, critic, n_nights, share=0.0, reviewer=reviewer))
            for seed in range(int(n_seeds * part))
        ]
        print_row(title, rows, plain[: len(rows)])
    print(f"{time.process_time() - began:.0f} s of CPU")


def regrets_of(seed: int, nights: Nights) -> tuple[float, float]:
    """Return the mean regrets of the cells, and of the incumbents after each night."""
    world = Sums(seed, 0.0)
    of_incumbents = [world.optimum - world.value(params) for params in nights.incumbents[1:]]
    return float(np.mean(nights.regrets)), float(np.mean(of_incumbents))


def print_row(
    title: str, rows: Sequence[tuple[float, float]], plain: Sequence[tuple[float, float]]
) -> None:
    """Print a row of the table of costs."""
    own, other = np.array(rows), np.array(plain)
    gaps = 100.0 * (own[:, 0] - other[:, 0]) / other[:, 0].mean()
    mean, half = mean_and_half(gaps)
    served, served_half = mean_and_half(own[:, 1] - other[:, 1])
    error = gaps.std(ddof=1) / np.sqrt(len(gaps))
    print(f"| {title} | {len(own)} | {own[:, 0].mean():.4f} | {mean:+.1f} % [{mean - half:+.1f}, {mean + half:+.1f}] "
          f"| {error:.1f} % | {own[:, 1].mean():.4f} "
          f"| {served:+.4f} [{served - served_half:+.4f}, {served + served_half:+.4f}] |", flush=True)  # fmt: skip


def mean_and_half(values: np.ndarray) -> tuple[float, float]:
    """Return the mean, and half of its 95 % t interval."""
    quantile = float(student.ppf(0.975, len(values) - 1))
    return float(values.mean()), quantile * float(values.std(ddof=1)) / len(values) ** 0.5


def share_interval(k: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share by Clopper and Pearson."""
    low = float(beta.ppf(0.025, k, n - k + 1)) if k else 0.0
    high = float(beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0
    return low, high
