"""Evidence of an archive as arrays: candidates, cases and mean rewards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.evidence import Archive, Member

MAX_CHANCE = 1e-3
"""Probability that repeats agree by luck below which they are taken to be exact."""
ROUNDING = 1e-9
"""Difference of rewards, relative to the largest, that is none."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Evidence:
    """All rewards of the members that have any.

    Notation: M members with rewards, N cases.
    """

    ids: tuple[str, ...]
    """Members in the order they were first asked."""
    case_ids: tuple[str, ...]
    mean: np.ndarray
    """Mean over repeats, 0 where nothing was seen, (M, N)."""
    count: np.ndarray
    """Repeats seen, (M, N)."""
    case_weight: np.ndarray
    """Shares in the mean over cases; their sum is 1, (N,)."""
    binary: bool
    """Whether every reward is 0 or 1."""
    repeat_sum: float
    """Sum of squared differences between repeats of one cell's reward and their mean."""
    repeat_dof: int
    """Degrees of freedom of that sum; 0: no case was repeated."""
    repeat_squares: np.ndarray
    """Each member's share in that sum, (M,)."""

    @property
    def is_graded(self) -> bool:
        """Whether rewards differ between most cells, as measured numbers do, and pass and fail do not."""
        seen = self.mean[self.count > 0]
        return 2 * len(np.unique(np.round(seen / _least(seen)))) >= len(seen)

    @property
    def repeats_agree(self) -> bool:
        """Whether no repeat of a case differed from another by more than rounding."""
        least = _least(self.mean[self.count > 0])
        return self.repeat_sum <= self.repeat_dof * least**2

    @property
    def is_exact(self) -> bool:
        """Whether rewards of single cases are shown to hold no noise: all repeats agreed.

        By luck one repeat agrees with about the probability that two cells drawn at random do. Where
        rewards have few levels agreement shows nothing: an answer that seldom changes agrees, too.
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
        """Collect an archive's rewards; those of other cases than ``case_ids`` are left out."""
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
    """Return the smallest difference of rewards that is one, see ``ROUNDING``."""
    return ROUNDING * max(float(np.abs(rewards).max(initial=0.0)), ROUNDING)


def _flatten(
    members: Sequence[Member], column: Mapping[str, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return row, column and reward of each reward, (n_rewards,) each."""
    n = [len(member.rewards) for member in members]
    rows = np.repeat(np.arange(len(members)), n)
    columns = np.array([column.get(c, -1) for m in members for c, _ in m.rewards], dtype=np.intp)
    rewards = np.array([r for m in members for r in m.rewards.values()], dtype=np.float64)
    counts = columns >= 0
    return rows[counts], columns[counts], rewards[counts]
