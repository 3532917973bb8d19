"""Accuracy of consensus and plain mean on simulated raters with bias and noise.

    python -m benchmarks.feedback.raters [--seeds 20]

Standard deviations in rewards: .5 for answer quality, .35 for rater bias, .15 to 1 for the noise of single
marks. Marks are whole numbers from 1 to 5. A few random raters mark each answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import spearmanr

from benchmarks.machine import options
from benchmarks.tables import header, row, with_error
from convergence_core.feedback.rater_consensus import rater_consensus
from convergence_core.feedback.records import Rating

Answer = Callable[[float, np.random.Generator], float]
"""Maps an answer's true reward to the marked one, replacing the rater's own behavior."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterWorld:
    """Simulation settings for marks."""

    n_answers: int = 120
    n_raters: int = 10
    n_each: int = 3
    """Number of raters per answer."""
    bias: float = 0.35
    """Standard deviation between raters, in rewards."""
    odd: dict[int, Answer] = field(default_factory=dict)
    """Rater → replacement behavior."""


def always_best(quality: float, rng: np.random.Generator) -> float:  # noqa: ARG001
    """Mark everything 5."""
    return 1.0


def reverse(quality: float, rng: np.random.Generator) -> float:
    """Mark the opposite."""
    return -quality + rng.normal(0.0, 0.2)


WORLDS = {
    "bias and noise": RaterWorld(),
    "noise only": RaterWorld(bias=0.0),
    "one always says 5": RaterWorld(odd={0: always_best}),
    "one rates in reverse": RaterWorld(odd={0: reverse}),
    "two raters": RaterWorld(n_raters=2, n_each=2),
}


def simulated_marks(world: RaterWorld, seed: int) -> tuple[list[Rating], np.ndarray]:
    """Return marks and the true quality of answers ``0``, ``1``, …, (n_answers,)."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(0.0, 0.5, world.n_answers)
    bias = rng.normal(0.0, world.bias, world.n_raters)
    noise = rng.uniform(0.15, 1.0, world.n_raters)
    marks = []
    for answer, value in enumerate(quality):
        for rater in rng.choice(world.n_raters, world.n_each, replace=False):
            if rater in world.odd:
                reward = world.odd[rater](value, rng)
            else:
                reward = value + bias[rater] + rng.normal(0.0, noise[rater])
            stars = int(np.clip(np.rint(2 * reward + 3), 1, 5))
            marks.append(
                Rating(interaction_id=str(answer), user_id=f"rater {rater}", rating=stars)
            )
    return marks, quality


def mean_rewards(marks: Sequence[Rating]) -> dict[str, float]:
    """Return the plain mean of each answer's marks."""
    by_answer: dict[str, list[float]] = {}
    for mark in marks:
        by_answer.setdefault(mark.interaction_id, []).append(mark.reward)
    return {name: float(np.mean(rewards)) for name, rewards in by_answer.items()}


def rank_correlations(world: RaterWorld, seed: int) -> tuple[float, float, float]:
    """Return the rank correlations of consensus and plain mean with the truth, and the coverage.

    Coverage is the share of 95 % intervals that contain the truth, after centering both.
    """
    marks, quality = simulated_marks(world, seed)
    found = rater_consensus(marks).answers
    plain = mean_rewards(marks)
    names = [str(one) for one in range(quality.size)]
    rewards = np.array([found[one].reward for one in names])
    errors = np.array([found[one].standard_error for one in names])
    off = np.abs((rewards - rewards.mean()) - (quality - quality.mean()))
    return (
        float(spearmanr(rewards, quality).statistic),
        float(spearmanr([plain[one] for one in names], quality).statistic),
        float(np.mean(off <= 1.96 * errors)),
    )


def main() -> None:
    """Print the table."""
    n = options(__doc__, seeds=20).seeds
    names = ("raters", "consensus", "plain mean", "difference ± standard error", "coverage")
    print(header(*names))
    for name, world in WORLDS.items():
        rows = np.array([rank_correlations(world, seed) for seed in range(n)])
        consensus, plain, covered = rows.mean(axis=0)
        gain = with_error(rows[:, 0] - rows[:, 1], "+.3f")
        print(row(name, f"{consensus:.3f}", f"{plain:.3f}", gain, f"{covered:.2f}"))


if __name__ == "__main__":
    main()
