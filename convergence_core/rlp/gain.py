"""What a thought is worth: the predictive information it adds, and the evidence of that.

The reward is a log-likelihood ratio against a baseline that never saw a thought (arXiv 2510.01265,
eq. 5), with departures:

* Outcomes are bins of a trial's reward, not tokens.
* p~ = .98 p + .02 p-: mixing bounds a loss at log .02, and unlike clipping it keeps
  E_p-[e^IG] = 1, which the e-value needs.
* Within a generation e-values are averaged and never multiplied, since its outcomes share
  surprises: products raise false alarms of a contentless bet from .02 to .34.

Notation: p(b) with the thought, p-(b) baseline, b_x the observed outcome of candidate x.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

MIX: Final = 0.02
"""Share of the baseline in p~."""
FLOOR: Final = math.log(MIX)
"""Least information gain, in nats."""


def mixed(p: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    """Return p~ = .98 p + .02 p-; same shape as both."""
    return np.asarray(p + MIX * (baseline - p), np.float64)  # exactly p where both are equal


def information_gain(p: np.ndarray, baseline: np.ndarray, observed: int) -> float:
    """Return IG = log p~(b_x) - log p-(b_x), in nats, at least ``FLOOR``.

    Args:
        p: outcome's distribution with the thought, (n_outcomes,).
        baseline: without one, (n_outcomes,), all above 0.
        observed: index of what came.
    """
    return math.log(float(mixed(p, baseline)[observed])) - math.log(float(baseline[observed]))


def log_ratio(p: np.ndarray, no_thought: np.ndarray, observed: int) -> float:
    """Return log p(b_x) - log p_0(b_x) against the same model without a thought (the paper's)."""
    return math.log(float(p[observed])) - math.log(float(no_thought[observed]))


def reward_of(gains: Sequence[float]) -> float:
    """Return r = mean of IG over a generation's exogenous candidates.

    Raises:
        ValueError: there is none.
    """
    if not gains:
        raise ValueError("a thought without an outcome has no reward")
    return sum(gains) / len(gains)


def e_value(gains: Sequence[float]) -> float:
    """Return e = (1/m) sum_x e^IG(x): the evidence of one generation against "no help".

    Raises:
        ValueError: there is no gain.
    """
    if not gains:
        raise ValueError("no outcome, no evidence")
    return float(np.mean(np.exp(np.asarray(gains, np.float64))))


def interval_of(values: Sequence[float]) -> tuple[float, float] | None:
    """Return mean and standard error, in nats; ``None`` for fewer than two values."""
    if len(values) < 2:
        return None
    found = np.asarray(values, np.float64)
    return float(found.mean()), float(found.std(ddof=1) / math.sqrt(len(found)))
