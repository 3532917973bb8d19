"""Position and length bias of a judge, and the bounds that abort a round.

Of pair k, l_k is the mean of both orders' log-odds, beta_k half their difference (``preferences``), and
x_k = ln(length of the first / length of the second):

    delta = mean_k beta_k,    lambda = sum_k x_k l_k / (sum_k x_k^2 + 2)

delta is what being shown first adds to the log-odds; lambda the slope of l on length, by least squares
through 0: a pair turned around has -x and -l. The 2 holds it near 0 where answers are equally long.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.judges.trust import SURE
from convergence_core.sao.preferences import JudgedPair

LEAST_PAIRS: Final = 100
"""Pairs below which delta and lambda are unknown."""
MOST_PAIRS: Final = 200
"""Pairs that are pooled: the last ones."""
MOST_BIAS: Final = 1.0
"""|delta| above which a round is aborted, by ``SURE`` standard errors."""
LEAST_AGREEMENT: Final = 0.5
"""Share of pairs on which both orders agree, below which a round is aborted."""
LEAST_TO_ABORT: Final = 10
"""Pairs of one round that may abort it by their agreement alone."""
RIDGE: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeBias:
    """The judge as its last judgements show it; ``None`` if too few."""

    n_pairs: int
    agreement: float | None
    """Share of pairs on which both orders agree; ``None`` means no pair."""
    position: float | None
    """delta."""
    position_se: float | None = None
    """Its standard error."""
    length: float | None
    """lambda."""

    @property
    def abort_reason(self) -> str | None:
        """Why the round is to be aborted; ``None`` if it is not."""
        if (
            self.agreement is not None
            and self.n_pairs >= LEAST_TO_ABORT
            and self.agreement < LEAST_AGREEMENT
        ):
            return (
                f"the judge agrees with itself on {self.agreement:.0%} of {self.n_pairs} pairs "
                f"in both orders, less than {LEAST_AGREEMENT:.0%}"
            )
        if self.position is None or self.position_se is None:
            return None
        if abs(self.position) - SURE * self.position_se <= MOST_BIAS:
            return None
        return (
            f"being shown first moves the judge by {self.position:+.2f} ± {self.position_se:.2f} "
            f"log-odds, surely more than {MOST_BIAS:g}"
        )


def judge_bias(judged: Sequence[JudgedPair]) -> JudgeBias:
    """Return what the last ``MOST_PAIRS`` judgements say of the judge."""
    last = judged[-MOST_PAIRS:]
    n = len(last)
    x = np.array([pair.comparison.log_length_ratio for pair in last])  # (n,)
    log_odds = np.array([pair.judgement.log_odds for pair in last])  # l, (n,)
    biases = np.array([pair.judgement.bias for pair in last])  # beta, (n,)
    is_sufficient = n >= LEAST_PAIRS
    return JudgeBias(
        n_pairs=n,
        agreement=float(np.mean([pair.judgement.agrees for pair in last])) if n else None,
        position=float(biases.mean()) if is_sufficient else None,
        position_se=float(biases.std(ddof=1) / np.sqrt(n)) if is_sufficient else None,
        length=float(x @ log_odds / (x @ x + RIDGE)) if is_sufficient else None,
    )
