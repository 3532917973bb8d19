"""Operator credit: which ways of breeding earned improvements, and how often each is used next.

Probability matching (Goldberg 1990; Thierens 2005, eq. 1 and 2): an operator is used in proportion
to what it earned, with a floor that keeps every operator in play. Earned is the posterior
probability that a child lies above its better parent, so a lucky child earns little.

An operator is whether a child has two parents, and how far its numbers moved. Both are read off
child and parents, so credit is a function of the evidence alone and a resumed run goes on as the
unbroken one. A child that changed in choices alone moved neither near nor far; it counts half for
both.

Notation: n children, K operators, D dimensions.
"""

import numpy as np

OPERATORS = ("near", "far", "crossover near", "crossover far")
"""Mutation by small or large steps, of one parent or of a crossover of two."""
LOG_STEPS = np.array([(-2.0, -1.25), (-1.25, -0.5)])
"""Decimal logarithms of the least and largest step of ``near`` and ``far``, in shares of the range."""
BORDER = 10.0**-1.25
"""Move, as a share of the range, from which on a child counts as far."""
FLOOR = 0.1
"""Least share of an operator; of four, one takes .7 at most."""
WINDOW = 200
"""Newest children that count: what helped at first need not help later."""
PSEUDO_COUNT = 5.0
"""Children of average earnings that every operator is given."""
UNMOVED = 1e-9


def counts(genes: np.ndarray, parents: np.ndarray, n_numbers: int) -> np.ndarray:
    """Return how far each child counts for each operator; rows sum to 1, (n, K).

    Args:
        genes: of the children, numbers first; NaN: not active, (n, D).
        parents: genes of up to two parents each; the second all NaN where there is one, (n, 2, D).
        n_numbers: how many of the dimensions are numbers.
    """
    gaps = np.abs(genes[:, None, :n_numbers] - parents[:, :, :n_numbers])  # (n, 2, n_numbers)
    nearest = np.where(np.isnan(gaps), np.inf, gaps).min(axis=1)
    moved = np.where(np.isfinite(nearest), nearest, 0.0).max(axis=1, initial=0.0)
    far = np.where(moved > UNMOVED, (moved >= BORDER).astype(np.float64), 0.5)
    crossed = (~np.isnan(parents[:, 1])).any(axis=1).astype(np.float64)
    by_step = np.stack([1.0 - far, far], axis=1)  # (n, 2)
    return np.concatenate([(1.0 - crossed)[:, None] * by_step, crossed[:, None] * by_step], axis=1)


def shares(count: np.ndarray, earned: np.ndarray) -> np.ndarray:
    """Return the share of each operator among the next children, (K,).

    Args:
        count: see ``counts``, (n, K).
        earned: by each child, in [0, 1], (n,).
    """
    n_operators = len(OPERATORS)
    if not earned.any():
        return np.full(n_operators, 1.0 / n_operators)
    quality = (count.T @ earned + PSEUDO_COUNT * earned.mean()) / (
        count.sum(axis=0) + PSEUDO_COUNT
    )
    return np.asarray(FLOOR + (1.0 - n_operators * FLOOR) * quality / quality.sum(), np.float64)
