"""Ratings until a reward model picks good answers: most uncertain answers first, or in random order.

    python -m benchmarks.feedback.selection [--seeds 20] [--first-seed 0]

Answers have one of 12 topics and one of 4 styles, whose words they are made of; reward is a sum of
topic, style and both together, and a rating has a noise of one step of 1 to 5. Of 240 logged answers
most have few topics and one style. A ridge regression on hashed n-grams of what is rated picks one of
four answers to each of 200 further prompts. Uncertainty is that of a Gaussian process with the same
features (D. MacKay, "Information-based objective functions for active data selection", 1992). The table counts ratings until the picks' true reward has
come nine tenths of the way from chance to that after all 240. Each seed draws the ratings of its answers five times.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.feedback.text_features import hashed_ngrams

N_TOPICS, N_STYLES, N_POOL, N_HELD_OUT, STEP, N_DRAWS = 12, 4, 240, 200, 8, 5
TEXT_VARIANCE, COMMON_VARIANCE, NOISE_VARIANCE = 0.25, 0.06, 0.25
"""Of the rewards that texts tell, of their common mean and of single ratings."""
STYLE_SHARES = np.array([0.6, 0.25, 0.1, 0.05])
WORLDS = {
    "prompts as in the log": (1.0, True),
    "prompts of all topics alike": (1.0, False),
    "log of all topics alike": (0.0, True),
}
"""Name → exponent of the topics' frequencies, whether further prompts have these frequencies."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Answers:
    """Logged answers with noisy ratings, and candidates for further prompts."""

    texts: list[str]
    ratings: np.ndarray
    """In rewards, drawn again and again, (N_DRAWS, N_POOL)."""
    candidates: np.ndarray
    """Vectors, (N_HELD_OUT * N_STYLES, n_features)."""
    rewards: np.ndarray
    """True ones, (N_HELD_OUT, N_STYLES)."""


def simulated_answers(seed: int, exponent: float, *, is_same: bool) -> Answers:
    """Return one world."""
    rng = np.random.default_rng(seed)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    words = np.array(["".join(rng.choice(letters, 6)) for _ in range(2_000)])
    of_topic, of_style = rng.choice(words, (N_TOPICS, 30)), rng.choice(words, (N_STYLES, 12))
    filler = rng.choice(words, 60)
    shares = 1.0 / np.arange(1, N_TOPICS + 1) ** exponent
    shares /= shares.sum()
    reward = (
        rng.normal(0, 0.25, (N_TOPICS, 1))
        + rng.normal(0, 0.3, (1, N_STYLES))
        + rng.normal(0, 0.35, (N_TOPICS, N_STYLES))
    )

    def text(topic: int, style: int) -> str:
        parts = [rng.choice(of_topic[topic], 14), rng.choice(of_style[style], 6)]
        return " ".join([*np.concatenate(parts), *rng.choice(filler, 15)])

    topics = rng.choice(N_TOPICS, N_POOL, p=shares)
    styles = rng.choice(N_STYLES, N_POOL, p=STYLE_SHARES)
    texts = [text(topic, style) for topic, style in zip(topics, styles, strict=True)]
    noisy = reward[topics, styles] + rng.normal(0, 0.5, (N_DRAWS, N_POOL))
    marks = np.clip(np.rint(2 * noisy + 3), 1, 5)
    further = rng.choice(N_TOPICS, N_HELD_OUT, p=shares if is_same else None)
    held_out = [
        hashed_ngrams(text(topic, style)) for topic in further for style in range(N_STYLES)
    ]
    return Answers(
        texts=texts,
        ratings=(marks - 3) / 2,
        candidates=np.stack(held_out),
        rewards=reward[further],
    )


def picked_rewards(
    world: Answers, ratings: np.ndarray, order: Sequence[int], x: np.ndarray
) -> np.ndarray:
    """Return the mean true reward of the picks after 0, STEP, 2 STEP, … ratings."""
    among = TEXT_VARIANCE * (x @ x.T) + COMMON_VARIANCE
    across = TEXT_VARIANCE * (world.candidates @ x.T) + COMMON_VARIANCE
    found = [float(world.rewards.mean())]
    for n in range(STEP, N_POOL + 1, STEP):
        rated = np.array(order[:n])
        inner = among[np.ix_(rated, rated)] + NOISE_VARIANCE * np.eye(n)
        predicted = across[:, rated] @ np.linalg.solve(inner, ratings[rated])
        picks = predicted.reshape(world.rewards.shape).argmax(axis=1)
        found.append(float(world.rewards[np.arange(N_HELD_OUT), picks].mean()))
    return np.array(found)


def most_uncertain_first(x: np.ndarray) -> list[int]:
    """Return all answers, next always the one whose reward those before it leave most uncertain."""
    covariance = TEXT_VARIANCE * (x @ x.T) + COMMON_VARIANCE
    left, order = np.ones(len(x), dtype=bool), list[int]()
    while left.any():
        best = int(np.argmax(np.where(left, np.diag(covariance), -1.0)))
        column = covariance[:, best]
        covariance = covariance - np.outer(column, column) / (column[best] + NOISE_VARIANCE)
        left[best] = False
        order.append(best)
    return order


def ratings_needed(seed: int, exponent: float, *, is_same: bool) -> tuple[float, float]:
    """Return how many ratings a random order and the most uncertain first need, means of the draws."""
    world = simulated_answers(seed, exponent, is_same=is_same)
    x = np.stack([hashed_ngrams(text) for text in world.texts])
    rng = np.random.default_rng([seed, 1])
    chosen = most_uncertain_first(x)
    needed = []
    for ratings in world.ratings:
        orders = (list(rng.permutation(N_POOL)), chosen)
        curves = [picked_rewards(world, ratings, order, x) for order in orders]
        target = curves[0][0] + 0.9 * (curves[0][-1] - curves[0][0])
        needed.append([STEP * int(np.argmax(curve >= target)) for curve in curves])
    at_random, uncertain_first = np.mean(needed, axis=0)
    return float(at_random), float(uncertain_first)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    print("world | random order | most uncertain first | saved ± standard error")
    for name, (exponent, is_same) in WORLDS.items():
        rows = np.array([ratings_needed(seed, exponent, is_same=is_same) for seed in seeds])
        saved = rows[:, 0] - rows[:, 1]
        error = saved.std(ddof=1) / np.sqrt(given.seeds)
        print(
            f"{name} | {rows[:, 0].mean():.0f} | {rows[:, 1].mean():.0f} | "
            f"{saved.mean():.1f} ± {error:.1f}"
        )


if __name__ == "__main__":
    main()
