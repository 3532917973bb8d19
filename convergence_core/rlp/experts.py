"""Thoughts as experts: their weights in the draws, and their strength.

Expert k = 0 is the base posterior. Expert k >= 1, a strategy's thought of this generation, counts at a
candidate as so many trials of its mean, on top of the same data, as if its prior were Beta(mu nu,
(1 - mu) nu); how that enters the posterior is in ``search.racing.cell_allocation``:

    mu_k(x) = E_p_k[y|x],    nu = clip(mu (1 - mu)/var - 1, 1, 5)

A thought has read the data already, so its prior repeats some of them; nu <= 5 bounds that. Weights
follow the evidence (fixed share; M. Herbster & M. Warmuth, "Tracking the best expert", 1998):

    w_k <- .99 w_k e_k / Z + .01 w0_k,    e_0 = 1,    w0_0 = .6, the rest equal

so an expert has influence only as far as its predictions came true.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

BASE_WEIGHT: Final = 0.6
"""More leaves good thoughts without a measurable gain where the search learns fast by itself; with
less, lies cost more than a few percent of regret (docs/benchmarks.md)."""
SHARE: Final = 0.01
LEAST_NU, MOST_NU = 1.0, 5.0
EDGE: Final = 0.01
"""An expert's mean stays this far from 0 and 1."""


@dataclass(frozen=True, slots=True)
class Weights:
    """w, the base posterior first."""

    values: tuple[float, ...]

    @classmethod
    def first(cls, n_experts: int) -> "Weights":
        """Return w0 of a base posterior and so many experts, at least one."""
        return cls((BASE_WEIGHT, *((1.0 - BASE_WEIGHT) / n_experts,) * n_experts))

    def after(self, evidence: Mapping[int, float]) -> "Weights":
        """Return the weights after a generation.

        Experts without evidence keep theirs; the mass of the others is shared out among them
        and the base by their evidence.

        Args:
            evidence: expert, from 1, → its e-value.
        """
        drawn = [0, *sorted(k for k in evidence if k > 0)]
        start = Weights.first(len(self.values) - 1).values
        e = np.array([1.0 if k == 0 else evidence[k] for k in drawn])
        w = np.array([self.values[k] for k in drawn])
        w0 = np.array([start[k] for k in drawn])
        shares = (1.0 - SHARE) * w * e / float(w @ e) + SHARE * w0 / w0.sum()
        updated = list(self.values)
        for k, value in zip(drawn, w.sum() * shares, strict=True):
            updated[k] = float(value)
        return Weights(tuple(updated))

    def lottery(self, drawn: Sequence[int]) -> dict[int, float]:
        """Return expert → probability of a place, over the base and these."""
        chosen = [0, *sorted(set(drawn) - {0})]
        total = sum(self.values[k] for k in chosen)
        return {k: self.values[k] / total for k in chosen}


def strength(mu: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return nu of predicted means and variances, (n,) each → (n,)."""
    return np.asarray(np.clip(mu * (1.0 - mu) / variance - 1.0, LEAST_NU, MOST_NU), np.float64)
