"""The judge as one more expert among the draws, trusted only as far as grounded outcomes bear it out.

    m_i = g + s z_i,    prior Beta(nu m_i, nu (1 - m_i)),    nu = 5

g: mean of the grounded rewards; s: spread of the candidates' grounded means, at least .05; z_i: merit
of candidate i among those compared, standardized. The weight starts at .1 min(1, trust / .6) and is
moved by nothing but likelihood ratios on grounded outcomes that came later, as a thought's is
(``rlp.experts``):

    w <- .997 w e / (w e + 1 - w) + .003 w_0

All outcomes count that came after the judge spoke, also those of candidates that it chose: unlike a
thought it states no width of its own, so it cannot hedge.

A judge that lies costs 1 to 3 % of regret in simulation, and one that is right saves 17 %; always
trusting it would save 34 % and cost 49 %. Both constants were chosen there: from .2, going back by .01
of it each time as a thought does, a good judge saves no more, and a liar costs 5.5 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import betainc

from convergence_core.rlp.bins import EDGES, normalized
from convergence_core.rlp.experts import EDGE, MOST_NU
from convergence_core.sao.bradley_terry import fit, rows_of
from convergence_core.sao.preferences import Comparison, Judgement

NU: Final = MOST_NU
"""Trials that the judge's word counts for."""
LEAST_SPREAD: Final = 0.05
"""Least s."""
START: Final = 0.1
"""Greatest weight before any evidence."""
SHARE: Final = 0.003
"""Of the first weight in each new one: enough for a judge to come back."""
FULL_TRUST: Final = 0.6
"""Trust from which the weight starts at ``START``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What the judge thinks of the candidates it compared."""

    means: Mapping[str, float]
    """Candidate → m, its predicted mean reward."""

    def forecast(self, candidate_id: str) -> np.ndarray:
        """Return the ten bins of the candidate's reward, (N_BINS,)."""
        return binned_beta(self.means[candidate_id])


def opinion_of(
    judged: Sequence[tuple[Comparison, Judgement]], grounded: Mapping[str, float]
) -> Opinion | None:
    """Return the judge's opinion of candidates.

    Args:
        judged: comparisons of candidates with each other.
        grounded: candidate → mean of its rewards.

    Returns:
        ``None``: nothing was compared, or nothing has a reward yet.
    """
    items = sorted({a.author for c, _ in judged for a in (c.first, c.second)})
    if len(items) < 2 or not grounded:
        return None
    merits = fit(rows_of(judged, items), len(items)).standardized
    values = np.array(list(grounded.values()))
    spread = max(LEAST_SPREAD, float(values.std()))
    means = np.clip(float(values.mean()) + spread * merits, EDGE, 1.0 - EDGE)
    return Opinion(means={name: float(m) for name, m in zip(items, means, strict=True)})


def binned_beta(mean: float, nu: float = NU) -> np.ndarray:
    """Return the bins of Beta(nu m, nu (1 - m)), (N_BINS,)."""
    m = min(1.0 - EDGE, max(EDGE, mean))
    return normalized(np.diff(betainc(nu * m, nu * (1.0 - m), EDGES)))


def variance_of(mean: float, nu: float = NU) -> float:
    """Return the variance of Beta(nu m, nu (1 - m))."""
    m = min(1.0 - EDGE, max(EDGE, mean))
    return m * (1.0 - m) / (nu + 1.0)


def first_weight(trust: float) -> float:
    """Return the weight before any evidence, for a trust in [0, 1]."""
    return START * min(1.0, trust / FULL_TRUST)


def weight_after(weight: float, evidence: float, start: float) -> float:
    """Return the weight after grounded outcomes.

    Args:
        weight: before them, in [0, 1].
        evidence: mean likelihood ratio of the judge's forecast to the base's.
        start: the weight that the judge began with.
    """
    moved = weight * evidence / (weight * evidence + 1.0 - weight)
    return (1.0 - SHARE) * moved + SHARE * start
