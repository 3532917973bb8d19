"""Figures of LLM judges, as a result holds them.

Commands read these and compute nothing, so no NumPy is imported here.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

JudgeMode: TypeAlias = Literal["rating", "pass_fail", "pairwise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number with its interval."""

    value: float
    low: float | None = None
    """``None``, as ``high``: too few resamples define the number."""
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A judge beside a person's labels."""

    n: int
    """Labelled cases that the judge judged."""
    level: float = 0.95
    """Of the intervals."""
    n_equal: int | None = None
    """Equal verdicts; ``None`` for ratings."""
    rate: Figure | None = None
    """Share of equal verdicts, in [0, 1]; ``None`` for ratings."""
    kappa: Figure | None = None
    """Cohen's kappa of verdicts, quadratic weighted kappa of ratings: 1 is perfect, 0 is chance."""
    spearman: Figure | None = None
    """Rank correlation of ratings, in [-1, 1]."""
    difference: Figure | None = None
    """Mean absolute difference of ratings, in points."""
    unknown: str = ""
    """Why numbers are absent, in words; empty: none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """What a run says of one of its judges."""

    name: str
    """Key under ``evaluation.metrics``."""
    mode: JudgeMode
    agreement: Agreement | None = None
    """``None`` if the metric names no label."""
    of_default: bool = False
    """Whether the labels are compared with judgements of the default configuration's answers
    alone, or with those of all configurations asked."""
    n_bad_labels: int = 0
    """Labels that are not of the mode's form, left out."""
    n_undecided: int = 0
    """Labelled cases on which the judge's votes were evenly split, left out."""
    n_pairs: int = 0
    """Evaluations whose two answers were compared in both orders."""
    inconsistent: Figure | None = None
    """Share of comparisons whose verdict changed with the order; ``None`` if there are none."""
