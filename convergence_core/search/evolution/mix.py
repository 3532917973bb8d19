"""Mix of breeding operators from which a generation's pool is made."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from convergence_core.records import Candidate
from convergence_core.search.evolution.pool import BreedingStyle, Pool, PoolBreeder

Operator: TypeAlias = Literal["crossover", "small_step", "large_step", "fresh"]
"""How a new candidate comes from known ones; ``fresh``: it does not."""
OPERATORS: tuple[Operator, ...] = get_args(Operator)

BORDER = 10.0**-1.25
"""Move of a number, as a share of its range, from which on a step is large."""
STYLES = (
    BreedingStyle(crossover_rate=1.0),
    BreedingStyle(crossover_rate=0.0, log_steps=(-2.0, -1.25), n_hits=(1, 1)),
    BreedingStyle(crossover_rate=0.0, log_steps=(-1.25, -0.5), n_hits=(2, 3)),
)
"""Of all operators but ``fresh``."""
FIXED_SHARES = (0.375, 0.1875, 0.1875, 0.25)
"""Shares that the fixed pool comes to: half of the children have two parents, steps are equally often
below and above ``BORDER``, and a quarter of the pool is drawn from the space."""
CLOSE_PART = 1 / 3
"""Of an operator's children, those bred around the very best candidates, as in the fixed pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreedingMix:
    """Shares of operators in a pool, and how much of a generation explores.

    Raises:
        ValueError: shares are negative or do not add up to 1, or exploration is negative.
    """

    shares: tuple[float, ...] = FIXED_SHARES
    """Of ``OPERATORS``; they add up to 1."""
    exploration: float = 1.0
    """Factor of the configured share of uniformly random candidates."""

    def __post_init__(self) -> None:
        if len(self.shares) != len(OPERATORS) or min(self.shares) < 0:
            raise ValueError(
                f"`shares` must be {len(OPERATORS)} numbers, 0 or more: {self.shares}"
            )
        if not abs(sum(self.shares) - 1.0) <= 1e-6:  # nor is it with a NaN
            raise ValueError(f"`shares` must add up to 1, but add up to {sum(self.shares):g}")
        if not self.exploration >= 0.0:
            raise ValueError(f"`exploration` must be 0 or more, but got {self.exploration:g}")

    def exploration_rate(self, configured: float) -> float:
        """Return the share of slots for uniformly random candidates, in [0, 1]."""
        return min(1.0, self.exploration * configured)

    def pool(
        self,
        breeder: PoolBreeder,
        parents: np.ndarray,
        n_close: int,
        size: int,
        rng: np.random.Generator,
    ) -> Pool:
        """Return a pool of up to ``size`` rows.

        Args:
            breeder: of the space.
            parents: rows of genes, best first, (n_parents, n_dims), at least one.
            n_close: parents, the first, around which a third of the children are bred.
            size: rows, before those that are refused or double.
            rng: source of chance.
        """
        counts = np.diff(np.rint(size * np.cumsum([0.0, *self.shares])).astype(int))
        pool = breeder.sample(int(counts[-1]), rng)
        for style, n in zip(STYLES, counts[:-1].tolist(), strict=True):
            close = round(n * CLOSE_PART)
            pool = pool.join(breeder.breed(parents, n - close, rng, style))
            pool = pool.join(breeder.breed(parents[:n_close], close, rng, style))
        return pool


def operator_of(
    candidate: Candidate, genes: np.ndarray, parent: np.ndarray | None, n_numbers: int
) -> int:
    """Return the index in ``OPERATORS`` of what made a candidate, -1 for a source beside them.

    A step is told by the move itself: a large one changes a number by more than ``BORDER`` of its range,
    or two choices or more.

    Args:
        candidate: asked in the search.
        genes: its row, numbers in [0, 1] and codes of choices, NaN where inactive, (n_dims,).
        parent: its first parent's row; ``None``: it has none, or the parent is no longer known.
        n_numbers: columns of numbers, the first.
    """
    if candidate.origin == "sample":
        return OPERATORS.index("fresh")
    if candidate.origin == "crossover":
        return OPERATORS.index("crossover")
    if candidate.origin != "mutation" or parent is None:
        return -1
    moves = np.abs(np.nan_to_num(genes, nan=-1.0) - np.nan_to_num(parent, nan=-1.0))
    n_changed = int(np.count_nonzero(moves[n_numbers:]))
    is_large = moves[:n_numbers].max(initial=0.0) > BORDER or n_changed > 1
    return OPERATORS.index("large_step" if is_large else "small_step")
