"""What the last judgements, pooled, say of the judge: position, length, agreement; when to abort.

Every pair's answers are new, so theirs are merits of their own: two per pair, held by the ridge
alone. delta and lambda are common to all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.sao.bradley_terry import both_orders, fit
from convergence_core.sao.preferences import Judgement

LEAST_PAIRS: Final = 100
"""Pairs below which nothing is said."""
MOST_PAIRS: Final = 200
"""Pairs that are pooled: the last ones."""
MOST_BIAS: Final = 1.0
"""|delta| above which a round is aborted."""
LEAST_AGREEMENT: Final = 0.5
"""Share of pairs on which both orders agree, below which a round is aborted."""
LEAST_TO_ABORT: Final = 10
"""Pairs of one round that may abort it by their agreement alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledJudgement:
    """One judgement as pooling needs it."""

    judgement: Judgement
    log_length_ratio: float
    """ln(length of the first answer / length of the second)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """The judge as the pool shows it; ``None``: insufficient."""

    n_pairs: int
    agreement: float | None
    """Share of pairs on which both orders agree; ``None``: no pair."""
    position: float | None
    """delta."""
    length: float | None
    """lambda."""
    length_correlation: float | None
    """Spearman's rho of the length difference and l; ``None`` also where one of them is constant."""

    @property
    def is_sufficient(self) -> bool:
        """Whether there are pairs enough for delta and lambda."""
        return self.position is not None

    @property
    def why_abort(self) -> str | None:
        """Why the round is to be aborted; ``None``: it is not."""
        if (
            self.agreement is not None
            and self.n_pairs >= LEAST_TO_ABORT
            and self.agreement < LEAST_AGREEMENT
        ):
            return (
                f"the judge agrees with itself on {self.agreement:.0%} of {self.n_pairs} pairs "
                f"in both orders, less than {LEAST_AGREEMENT:.0%}"
            )
        if self.position is not None and abs(self.position) > MOST_BIAS:
            return (
                f"being shown first moves the judge by {self.position:+.2f} log-odds, more than "
                f"{MOST_BIAS:g}"
            )
        return None


def pool(judged: Sequence[PooledJudgement]) -> Pooled:
    """Return what the last ``MOST_PAIRS`` judgements say of the judge."""
    last = judged[-MOST_PAIRS:]
    n = len(last)
    agreement = float(np.mean([one.judgement.agrees for one in last])) if n else None
    position = length = None
    if n >= LEAST_PAIRS:
        rows = [
            row
            for k, one in enumerate(last)
            for row in both_orders(2 * k, 2 * k + 1, one.log_length_ratio, one.judgement)
        ]
        merits = fit(rows, 2 * n)
        position, length = merits.position, merits.length
    return Pooled(
        n_pairs=n,
        agreement=agreement,
        position=position,
        length=length,
        length_correlation=correlation(
            [one.log_length_ratio for one in last], [one.judgement.log_odds for one in last]
        ),
    )


def correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return Spearman's rho; ``None``: fewer than three values, or one side is constant."""
    if len(a) < 3 or len(set(a)) < 2 or len(set(b)) < 2:
        return None
    from scipy.stats import spearmanr  # noqa: PLC0415 - takes most of a second to import

    return float(spearmanr(a, b).statistic)
