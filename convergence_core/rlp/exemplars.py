"""Exemplars: earlier thoughts that predicted best, no two alike.

At most three thoughts with the highest lower bound mean - sd/sqrt(n) of their gains, n >= 8, chosen
one by one by maximal marginal relevance (Carbonell & Goldstein 1998, lambda = .5). Their texts were
written before their outcomes, so none can tell one.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from convergence_core.judges.texts import jaccard, word_set
from convergence_core.rlp.commitments import Thought
from convergence_core.rlp.replay import Replay

MOST: Final = 3
LEAST_N: Final = 8
RELEVANCE: Final = 0.5
"""lambda of maximal marginal relevance."""


def lower_bound(gains: Sequence[float]) -> float:
    """Return mean - sd/sqrt(n), in nats; minus infinity for fewer than two gains."""
    if len(gains) < 2:
        return -math.inf
    values = np.asarray(gains, np.float64)
    return float(values.mean() - values.std(ddof=1) / math.sqrt(len(values)))


def exemplars(replay: Replay, *, most: int = MOST, least_n: int = LEAST_N) -> list[Thought]:
    """Return the thoughts to show, best first; only those that helped for sure."""
    bounds = {
        name: lower_bound(gains)
        for name, gains in replay.gains_of().items()
        if len(gains) >= least_n and name in replay.thoughts
    }
    words = {n: word_set(replay.thoughts[n].text) for n, bound in bounds.items() if bound > 0}
    left = sorted(words, key=lambda n: (-bounds[n], n))
    chosen: list[str] = []

    def likeness(name: str) -> float:
        return max((jaccard(words[name], words[c]) for c in chosen), default=0.0)

    while left and len(chosen) < most:
        best = max(left, key=lambda n: RELEVANCE * bounds[n] - (1.0 - RELEVANCE) * likeness(n))
        left.remove(best)
        if likeness(best) < 1.0:
            chosen.append(best)
    return [replay.thoughts[name] for name in chosen]


def worth_rescoring(replay: Replay, *, most: int, least_n: int = LEAST_N) -> list[Thought]:
    """Return promising thoughts that have too few outcomes to be exemplars, best first."""
    means = {
        name: float(np.mean(gains))
        for name, gains in replay.gains_of().items()
        if len(gains) < least_n and name in replay.thoughts
    }
    ranked = sorted((n for n, mean in means.items() if mean > 0), key=lambda n: (-means[n], n))
    return [replay.thoughts[name] for name in ranked[:most]]
