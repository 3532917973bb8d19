"""Change detection by confidence sequences that are begun again and again.

A confidence sequence is begun at every block of rewards and all of them are kept up. While the mean
stays what it is, all cover it; when two of them have nothing in common, it has changed (S. Shekhar,
A. Ramdas, "Reducing sequential change detection to sequential estimation", 2024, the repeated
scheme). Neither the mean before nor after the change needs to be known.

Forgetting sequences makes an alarm later, never more frequent, so only ``N_SEQUENCES`` are kept, the
older the sparser.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.bandit.propensities import Floats

BLOCK = 10
"""Rewards from one beginning to the next."""
N_SEQUENCES = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceSequence:
    """One confidence sequence, from its block on."""

    total: float = 0.0
    """Sum of the values since."""
    squares: float = 0.0
    """Sum of their squares, where it is kept."""
    n: int = 0
    """Values since."""
    low: float
    high: float
    """Ends of what no look has excluded."""
    begun: int = 0
    """Rewards of all arms before it, where they are counted."""


Sequences = tuple[ConfidenceSequence, ...]
"""By age, oldest first."""


def narrowed(
    sequences: Sequence[ConfidenceSequence],
    totals: Floats,
    squares: Floats,
    numbers: Floats,
    ends: tuple[Floats, Floats],
) -> Sequences:
    """Return the sequences with new sums, less what the new intervals exclude; (n,) each."""
    rows = zip(sequences, totals, squares, numbers, *ends, strict=True)
    return tuple(
        ConfidenceSequence(
            total=float(total),
            squares=float(square),
            n=int(n),
            low=max(old.low, float(low)),
            high=min(old.high, float(high)),
            begun=old.begun,
        )
        for old, total, square, n, low, high in rows
    )


def younger_of_disagreeing(sequences: Sequences) -> ConfidenceSequence | None:
    """Return the younger of two sequences with nothing in common; ``None``: all overlap.

    It began after most of the change; the oldest of all saw everything before.
    """
    highest = max(sequences, key=lambda sequence: sequence.low)
    lowest = min(sequences, key=lambda sequence: sequence.high)
    if highest.low <= lowest.high:
        return None
    return min(highest, lowest, key=lambda sequence: sequence.n)


def thinned(sequences: Sequences) -> Sequences:
    """Drop every second of the older half, but the oldest, when there are too many."""
    if len(sequences) <= N_SEQUENCES:
        return sequences
    half = len(sequences) // 2
    return (*sequences[:half:2], *sequences[half:])


def sums_of(sequences: Sequence[ConfidenceSequence]) -> tuple[Floats, Floats, Floats]:
    """Return totals, squares and numbers, (n,) each."""
    rows = np.array([(s.total, s.squares, s.n) for s in sequences], dtype=np.float64)
    return rows[:, 0], rows[:, 1], rows[:, 2]
