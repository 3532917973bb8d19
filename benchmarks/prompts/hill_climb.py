"""Greedy hill climb with the same writer: the baseline for the optimizers."""

from collections.abc import Callable
from typing import Any

import numpy as np

N_EACH = 6
"""Cases per evaluation of the incumbent or an edit."""


def climb(
    mock: Any,
    rng: np.random.Generator,
    n_calls: int,
    edit: Callable[[str, str], str],
    n_each: int = N_EACH,
) -> str:
    """Return the final prompt of a climb that keeps an edit if its mean is higher.

    Args:
        mock: Answering model, a ``Mock`` or a real one.
        rng: Random generator that draws cases.
        n_calls: Maximum answers.
        edit: Edits a prompt, given a text of its failures.
        n_each: Cases per prompt.
    """
    listed = mock.world.cases(40)
    best, best_mean, shown = str(mock.world.start), -1.0, ""
    while mock.n_calls + n_each <= n_calls:
        text = best if best_mean < 0 else edit(best, shown)
        chosen = rng.choice(len(listed), n_each, replace=False)
        answers = mock.ask_all(text, [listed[i] for i in chosen])
        mean = float(np.mean([answer.score for answer in answers]))
        if mean > best_mean:
            best, best_mean = text, mean
            reasons = [a.reason for a in sorted(answers, key=lambda a: a.score) if a.reason]
            shown = "\n".join(dict.fromkeys(reasons[:4]))
    return best
