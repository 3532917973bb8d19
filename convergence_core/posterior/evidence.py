"""Evidence of an archive as arrays: candidates, cases and mean rewards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.evidence import Archive, Member

MAX_CHANCE = 1e-3
"""Maximum probability of agreement by luck at which repeats count as exact."""
ROUNDING = 1e-9
"""Difference of rewards, relative to the largest, that counts as rounding."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Evidence:
    """All rewards of the members that have at least one.

    Notation: M members with rewards, N cases.
    """

    ids: tuple[str, ...]
    """Members in order of first evaluation."""
    case_ids: tuple[str, ...]
    mean: np.ndarray
    """Mean over repeats, 0 for unseen cells, (M, N)."""
    count: np.ndarray
    """Number of rewards, (M, N)."""
    case_weight: np.ndarray
    """Shares of the cases in the mean, which sum to 1, (N,)."""
    binary: bool
    """Whether every reward is 0 or 1."""
    repeat_sum: float
    """Sum of squared differences between the rewards of one cell and their mean."""
    repeat_dof: int
    """Degrees of freedom of that sum; 0 if no cell was repeated."""
    repeat_squares: np.ndarray
    """Each member's part of that sum, (M,)."""

    @property
    def is_graded(self) -> bool:
        """Whether rewards differ between most cells, unlike pass-fail rewards."""
        seen = self.mean[self.count > 0]
        return 2 * len(np.unique(np.round(seen / _least(seen)))) >= len(seen)

    @property
    def repeats_agree(self) -> bool:
        """Whether all repeats of a cell agree up to rounding."""
        least = _least(self.mean[self.count > 0])
        return self.repeat_sum <= self.repeat_dof * least**2

    @property
    def is_exact(self) -> bool:
        """Whether the agreement of all repeats shows that rewards have no noise.

        The probability that a repeat agrees by luck is about that of two random cells. With few
        levels of reward, agreement shows nothing: an answer that seldom changes agrees, too.
        """
        seen = self.mean[self.count > 0]
        if not self.repeat_dof or len(seen) < 2 or not self.is_graded:
            return False
        least = _least(seen)
        if not self.repeats_agree:
            return False
        _, n_alike = np.unique(np.round(seen / least), return_counts=True)
        n_pairs = float((n_alike * (n_alike - 1.0)).sum())
        chance = max(n_pairs / (len(seen) * (len(seen) - 1.0)), 1.0 / len(seen))
        return bool(chance**self.repeat_dof < MAX_CHANCE)

    @classmethod
    def gather(
        cls,
        archive: Archive,
        *,
        case_ids: Sequence[str] | None = None,
        case_weights: Mapping[str, float] | None = None,
    ) -> "Evidence":
        """Collect an archive's rewards, restricted to ``case_ids`` if given."""
        weights = case_weights or {}
        if case_ids is None:
            seen = {case for member in archive for case, _ in member.rewards}
            case_ids = sorted(seen | weights.keys())
        column = {case: j for j, case in enumerate(case_ids)}
        members = [member for member in archive if any(c in column for c, _ in member.rewards)]
        rows, columns, rewards = _flatten(members, column)
        shape = (len(members), len(column))
        cell, n_cells = rows * len(column) + columns, shape[0] * shape[1]
        count = np.bincount(cell, minlength=n_cells).astype(np.float64)
        mean = np.bincount(cell, rewards, n_cells) / np.maximum(count, 1.0)
        apart = rewards - mean[cell]
        weight = np.array([weights.get(case, 1.0) for case in case_ids], dtype=np.float64)
        return cls(
            ids=tuple(member.candidate.candidate_id for member in members),
            case_ids=tuple(case_ids),
            mean=mean.reshape(shape),
            count=count.reshape(shape),
            case_weight=weight / weight.sum() if len(weight) else weight,
            binary=bool(np.all((rewards == 0) | (rewards == 1))),
            repeat_sum=float(apart @ apart),
            repeat_dof=int(np.maximum(count - 1, 0).sum()),
            repeat_squares=np.bincount(rows, apart * apart, len(members)),
        )


def _least(rewards: np.ndarray) -> float:
    """Return the smallest difference of rewards beyond rounding."""
    return ROUNDING * max(float(np.abs(rewards).max(initial=0.0)), ROUNDING)


def _flatten(
    members: Sequence[Member], column: Mapping[str, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the row, column and value of each reward, (n_rewards,) each."""
    n = [len(member.rewards) for member in members]
    rows = np.repeat(np.arange(len(members)), n)
    columns = np.array([column.get(c, -1) for m in members for c, _ in m.rewards], dtype=np.intp)
    rewards = np.array([r for m in members for r in m.rewards.values()], dtype=np.float64)
    counts = columns >= 0
    return rows[counts], columns[counts], rewards[counts]
