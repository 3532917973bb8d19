"""Merits of items from paired judgements (Bradley & Terry 1952), with position and length.

    logit P(i beats j) = theta_i - theta_j + delta pos + lambda dln(length)

pos = +1 where i is shown first and -1 where second; each judged pair gives both rows. Soft labels
are probabilities. Maximised with a ridge penalty .01/2 |(theta, delta, lambda)|^2 by Newton's method;
the penalty makes theta unique and keeps it finite where an item never loses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.sao.preferences import Judgement

RIDGE: Final = 0.01
N_STEPS: Final = 25
SMALL: Final = 1e-9
"""Greatest step at which Newton's method has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedJudgement:
    """One judgement of i against j."""

    i: int
    j: int
    position: float
    """+1: i was shown first; -1: second."""
    log_length_ratio: float
    """ln(length of i / length of j)."""
    p: float
    """Probability that i is better, or 0 or 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Merits:
    """A fit."""

    theta: np.ndarray
    """(n_items,)"""
    position: float
    """delta: what being shown first adds to the log-odds."""
    length: float
    """lambda: what a length times e adds to the log-odds."""


def fit(rows: Sequence[PairedJudgement], n_items: int) -> Merits:
    """Return the merits that the rows tell.

    Raises:
        ValueError: there is no row.
    """
    if not rows:
        raise ValueError("no judgement, no merits")
    x = np.zeros((len(rows), n_items + 2))  # (n_rows, n_items + 2)
    for k, row in enumerate(rows):
        x[k, row.i] += 1.0
        x[k, row.j] -= 1.0
    x[:, -2] = [row.position for row in rows]
    x[:, -1] = [row.log_length_ratio for row in rows]
    p = np.array([row.p for row in rows])
    weights = np.zeros(n_items + 2)
    for _ in range(N_STEPS):
        expected = 1.0 / (1.0 + np.exp(-x @ weights))
        gradient = x.T @ (p - expected) - RIDGE * weights
        hessian = (x * (expected * (1.0 - expected))[:, None]).T @ x
        step = np.linalg.solve(hessian + RIDGE * np.eye(len(weights)), gradient)
        # Newton's steps may overshoot where all expectations are near 0 or 1.
        weights = weights + np.clip(step, -2.0, 2.0)
        if float(np.abs(step).max()) < SMALL:
            break
    return Merits(weights[:-2], float(weights[-2]), float(weights[-1]))


def both_orders(
    i: int, j: int, log_length_ratio: float, judgement: Judgement
) -> tuple[PairedJudgement, PairedJudgement]:
    """Return the two rows of one judged pair."""
    return (
        PairedJudgement(
            i=i, j=j, position=1.0, log_length_ratio=log_length_ratio, p=judgement.p12
        ),
        PairedJudgement(
            i=i, j=j, position=-1.0, log_length_ratio=log_length_ratio, p=judgement.p21
        ),
    )
