"""Greedy hill climb with the same writer: the baseline of the other optimizers."""

import numpy as np

from benchmarks.prompts.world import START, World, cases
from benchmarks.prompts.writer import written

N_EACH = 6
"""Cases that the incumbent and each edit of it are asked."""


def climb(seed: int, n_calls: int, n_each: int = N_EACH) -> str:
    """Return the prompt that a climb ends with: an edit is kept if its mean is higher."""
    world, rng, listed = World(seed), np.random.default_rng([seed, 1]), cases()
    best, best_mean, told = START, -1.0, ""
    while world.n_calls + n_each <= n_calls:
        text = best if best_mean < 0 else written("reflect", [best], told, rng)
        chosen = rng.choice(len(listed), n_each, replace=False)
        answers = [world.ask(text, listed[i]) for i in chosen]
        mean = float(np.mean([answer.score for answer in answers]))
        if mean > best_mean:
            best, best_mean = text, mean
            reasons = [a.reason for a in sorted(answers, key=lambda a: a.score) if a.reason]
            told = "\n".join(dict.fromkeys(reasons[:4]))
    return best
