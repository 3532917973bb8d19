"""A reward model that may order a queue, and nothing else.

Logistic regression on differences of hashed word counts of chosen and rejected answers, fitted to
the training pairs. It speaks only if it ranks the frozen audit pairs with an area under the curve
above .6, and then it says who is tried first; it enters no reward, no draw and no ranking.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.coverage.measures import N_BUCKETS, hashed_counts
from convergence_core.sao.preferences import Preference
from convergence_core.sao.rounds import split_of

LEAST_AUC: Final = 0.6
LEAST_PAIRS: Final = 20
"""Training pairs below which nothing is fitted."""
LEAST_AUDIT: Final = 10
"""Audit pairs below which nothing is trusted."""
RIDGE: Final = 1.0
N_STEPS: Final = 200


@dataclass(frozen=True, slots=True, eq=False)
class RewardModel:
    """A fit, and how well it ranked pairs that it had not seen."""

    weights: np.ndarray
    """(N_BUCKETS,)"""
    auc: float
    n_audit: int

    @property
    def may_order(self) -> bool:
        """Whether it ranked the audit pairs well enough."""
        return self.n_audit >= LEAST_AUDIT and self.auc > LEAST_AUC

    def merits(self, texts: Sequence[str]) -> np.ndarray:
        """Return a merit of each text, (n,); only their order means anything."""
        return np.asarray(_features(texts) @ self.weights, np.float64)


def fit(preferences: Sequence[Preference]) -> RewardModel | None:
    """Return the model of the training split, tried on the audit split; ``None``: too few pairs."""
    train = [p for p in preferences if split_of(p.comparison.prompt) == "train"]
    audit = [p for p in preferences if split_of(p.comparison.prompt) == "audit"]
    if len(train) < LEAST_PAIRS:
        return None
    x = _features([p.chosen.text for p in train]) - _features([p.rejected.text for p in train])
    weights = np.zeros(N_BUCKETS)
    # Each row is a win of x over 0, so the gradient is that of -log sigma(x w).
    rate = 1.0 / (RIDGE / len(train) + 0.25 * float(np.mean(np.sum(x * x, axis=1))))
    for _ in range(N_STEPS):
        lost = 1.0 / (1.0 + np.exp(x @ weights))
        weights += rate * (x.T @ lost - RIDGE * weights) / len(train)
    found = _features([p.chosen.text for p in audit] + [p.rejected.text for p in audit]) @ weights
    n = len(audit)
    return RewardModel(weights, area_under_curve(found[:n], found[n:]), n)


def area_under_curve(winners: np.ndarray, losers: np.ndarray) -> float:
    """Return P(a winner's merit exceeds a loser's), ties half; .5 if either is empty."""
    n, m = len(winners), len(losers)
    if n == 0 or m == 0:
        return 0.5
    from scipy.stats import rankdata  # noqa: PLC0415 - takes most of a second to import

    ranks = rankdata(np.concatenate([winners, losers]))[:n]
    return float((ranks.sum() - n * (n + 1) / 2.0) / (n * m))


def _features(texts: Sequence[str]) -> np.ndarray:
    """Return hashed counts scaled to length 1, (n, N_BUCKETS)."""
    if not texts:
        return np.zeros((0, N_BUCKETS))
    counts = hashed_counts(texts)
    norms = np.linalg.norm(counts, axis=1, keepdims=True)
    return np.asarray(counts / np.maximum(norms, 1.0), np.float64)
