"""Weight and strength of the model's forecasts in the draws.

The model counts as nu trials of its mean at a candidate, in addition to the data, as if its prior
were Beta(mu nu, (1 - mu) nu). ``search.racing.cell_allocation`` adds it to the posterior:

    mu(x) = E_p[y|x],    nu = clip(mu (1 - mu)/var - 1, 1, 5)

A thought has already used the data, so its prior repeats some of them; nu <= 5 bounds that. The
weight follows the cumulative log score against the posterior's (fixed share; M. Herbster & M.
Warmuth, "Tracking the best expert", 1998):

    w <- .99 w e^r / (1 - w + w e^r) + .01 w0,    w0 = .4

so the model has influence only as far as its forecasts came true.

Notation: w weight of the model, 1 - w that of the posterior, r mean gain of a generation, in nats.
"""

import math
from typing import Final

import numpy as np

FIRST_WEIGHT: Final = 0.4
"""w0. With less, good thoughts have no measurable gain in fast searches; with more, false
forecasts cost more than a few percent of regret.
"""
SHARE: Final = 0.01
LEAST_NU, MOST_NU = 1.0, 5.0
EDGE: Final = 0.01
"""Minimum distance of an expert's mean from 0 and 1."""


def weight_after(weight: float, reward: float) -> float:
    """Return w after a generation.

    Args:
        weight: w before.
        reward: r.
    """
    likelihood = weight * math.exp(reward)
    return (1.0 - SHARE) * likelihood / (1.0 - weight + likelihood) + SHARE * FIRST_WEIGHT


def strength(mu: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return nu for predicted means and variances, (n,) each → (n,)."""
    return np.asarray(np.clip(mu * (1.0 - mu) / variance - 1.0, LEAST_NU, MOST_NU), np.float64)
