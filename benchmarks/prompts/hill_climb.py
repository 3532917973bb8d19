"""Greedy hill climb with the same writer: the baseline of the other optimizers."""

import numpy as np

from benchmarks.prompts.world import Mock
from benchmarks.prompts.writer import Writer

N_EACH = 6
"""Cases that the incumbent and each edit of it are asked."""


def climb(mock: Mock, seed: int, n_calls: int, operator: str, n_each: int = N_EACH) -> str:
    """Return the prompt that a climb ends with: an edit is kept if its mean is higher.

    Args:
        mock: of the run.
        seed: of the writer and of the cases.
        n_calls: answers of the mock.
        operator: ``reflect``, or ``blind``, which reads no failure.
        n_each: cases of each prompt.
    """
    rng, listed = np.random.default_rng([seed, 1]), mock.world.cases(40)
    writer = Writer(world=mock.world, rng=rng)
    best, best_mean, shown = mock.world.start, -1.0, ""
    while mock.n_calls + n_each <= n_calls:
        text = best if best_mean < 0 else writer.edit(operator, [best], shown)
        chosen = rng.choice(len(listed), n_each, replace=False)
        answers = [mock.ask(text, listed[i]) for i in chosen]
        mean = float(np.mean([answer.score for answer in answers]))
        if mean > best_mean:
            best, best_mean = text, mean
            reasons = [a.reason for a in sorted(answers, key=lambda a: a.score) if a.reason]
            shown = "\n".join(dict.fromkeys(reasons[:4]))
    return best
