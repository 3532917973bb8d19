"""Baseline of the information gain: predictions without the thought.

The paper keeps a moving average of the thinker's own weights (arXiv 2510.01265, section 2.1), so
that the thinker cannot earn by making its silent self worse. Hosted weights cannot be averaged;
here the lagged part is a mixture of predictors that never see a thought:

    p-(b|x) = sum_j v_j p-_j(b|x),   j in {no-thought model, statistical posterior}

    v_j <- v_j^.9 exp(mean_x log p-_j(b_x|x)), normalized, at least .05 each
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

DECAY: Final = 0.9
FLOOR: Final = 0.05


@dataclass(frozen=True, slots=True)
class Mixture:
    """The weights v; in a run of the no-thought model and of the statistical posterior."""

    weights: tuple[float, ...] = (0.5, 0.5)

    def predict(self, predictors: Sequence[np.ndarray]) -> np.ndarray:
        """Return p-.

        Args:
            predictors: distributions, one per weight, of one shape.
        """
        pairs = zip(self.weights, predictors, strict=True)
        return np.asarray(sum(v * p for v, p in pairs), np.float64)

    def after(self, likelihoods: Sequence[Sequence[float]], *, decay: float = DECAY) -> "Mixture":
        """Return the weights after a generation.

        Args:
            likelihoods: for each predictor, p-_j(b_x|x) of each outcome; empty: nothing came.
            decay: how much of the logarithm of an old weight is kept.
        """
        if not likelihoods or not likelihoods[0]:
            return self
        logs = [
            decay * math.log(v) + float(np.mean(np.log(np.asarray(of_one, np.float64))))
            for v, of_one in zip(self.weights, likelihoods, strict=True)
        ]
        powers = np.exp(np.asarray(logs) - max(logs))
        return Mixture(_floored(powers / powers.sum()))


def _floored(v: np.ndarray) -> tuple[float, ...]:
    """Return v with no part below ``FLOOR``; those above give in proportion to their surplus."""
    raised = np.maximum(v, FLOOR)
    surplus = raised - FLOOR
    missing = 1.0 - FLOOR * len(v)
    return tuple((FLOOR + surplus * (missing / surplus.sum())).tolist())
