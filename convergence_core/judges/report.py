"""Statistics of LLM judges in a result.

Commands only read them, so this module imports no NumPy.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

JudgeMode: TypeAlias = Literal["rating", "pass_fail", "pairwise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number with its interval."""

    value: float
    low: float | None = None
    """Lower end; ``None``, as ``high``, if too few resamples define the number."""
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Agreement of a judge with a person's labels."""

    n: int
    """Number of labelled cases with a judgement."""
    level: float = 0.95
    """Level of the intervals."""
    n_equal: int | None = None
    """Number of equal verdicts; ``None`` for ratings."""
    rate: Figure | None = None
    """Share of equal verdicts, in [0, 1]; ``None`` for ratings."""
    kappa: Figure | None = None
    """Cohen's kappa of verdicts, quadratic weighted kappa of ratings: 1 is perfect, 0 is chance."""
    spearman: Figure | None = None
    """Rank correlation of ratings, in [-1, 1]."""
    difference: Figure | None = None
    """Mean absolute difference of ratings, in points."""
    unknown: str = ""
    """Why numbers are missing; empty if none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """Statistics of one judge in a run."""

    name: str
    """Key under ``evaluation.metrics``."""
    mode: JudgeMode
    agreement: Agreement | None = None
    """``None`` if the metric has no label."""
    of_default: bool = False
    """Whether the labels are compared with judgements of the default configuration's answers
    alone, or with those of all configurations asked."""
    n_bad_labels: int = 0
    """Number of labels left out because their form does not fit the mode."""
    n_undecided: int = 0
    """Number of labelled cases left out because the judge's votes were evenly split."""
    n_pairs: int = 0
    """Number of evaluations whose two answers were compared in both orders."""
    inconsistent: Figure | None = None
    """Share of comparisons whose verdict changed with the order; ``None`` without comparisons."""
