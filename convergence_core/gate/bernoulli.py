"""Evidence from counts alone: exact for rewards of 0 and 1, valid for all in [0, 1].

The wealth of betting with every alternative ``q`` at once, weighted by a Beta(a, b) density, has a
closed form in the sum ``s`` of the rewards and their number ``n`` (H. Robbins, "Statistical methods
related to the law of the iterated logarithm", 1970, the method of mixtures):

    E(m) = B(a + s, b + n - s) / (B(a, b) m^s (1 - m)^(n - s))                    two-sided
    E(m) times P(q > m | a + s, b + n - s) / P(q > m | a, b)                      above; below alike

For fractional rewards each factor ``(q/m)^x ((1-q)/(1-m))^(1-x)`` is at most its chord
``1 + lambda (x - m)`` (inequality of the means), so it stays a supermartingale: valid, though it
does not profit from a small variance as ``betting`` does. Counts are all it needs, so posteriors
in a database can be judged, in whatever order their rewards came.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincc, betaln, xlog1py, xlogy

from convergence_core.gate.betting import Floats, Side

UNIFORM = (1.0, 1.0)
"""Prior of the alternatives."""


def log_e_value(
    successes: ArrayLike,
    failures: ArrayLike,
    mean: ArrayLike,
    *,
    side: Side | None = None,
    prior: tuple[float, float] = UNIFORM,
) -> Floats:
    """Return the logarithm of the evidence against a mean, nats; shapes broadcast.

    Args:
        successes: sum of the rewards.
        failures: number of rewards less their sum.
        mean: ``m`` in (0, 1).
        side: ``above``: against "the mean is at most m"; ``below``: "at least"; ``None``: against
            "it is m".
        prior: a and b.
    """
    s, f, m = (np.asarray(value, dtype=np.float64) for value in (successes, failures, mean))
    a, b = prior
    log_e = betaln(a + s, b + f) - betaln(a, b) - xlogy(s, m) - xlog1py(f, -m)
    if side is not None:
        log_e = log_e + _log_mass(a + s, b + f, m, side) - _log_mass(a, b, m, side)
    return np.asarray(log_e, dtype=np.float64)


def _log_mass(a: Floats | float, b: Floats | float, mean: Floats, side: Side) -> Floats:
    """Return log P(q > m) or log P(q < m) for q ~ Beta(a, b); minus infinity on underflow."""
    mass = betaincc(a, b, mean) if side == "above" else betaincc(b, a, 1.0 - mean)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(mass), dtype=np.float64)


def confidence_interval(
    successes: ArrayLike,
    failures: ArrayLike,
    alpha: ArrayLike = 0.05,
    *,
    prior: tuple[float, float] = UNIFORM,
) -> tuple[Floats, Floats]:
    """Return both ends of ``{m: E(m) < 1 / alpha}``; shapes broadcast.

    With probability ``1 - alpha`` the intervals of all n cover the mean (a confidence sequence).
    ``log E`` is convex in m with its least value at s / n, so each end is found by bisection.
    """
    s, f = np.broadcast_arrays(
        np.asarray(successes, dtype=np.float64), np.asarray(failures, dtype=np.float64)
    )
    threshold = -np.log(np.asarray(alpha, dtype=np.float64))
    n = s + f
    centre = np.where(n > 0, s / np.maximum(n, 1e-300), 0.5)
    ends = []
    for outside in (0.0, 1.0):
        rejected, kept = np.full(s.shape, outside), centre.copy()
        for _ in range(40):  # to 1e-12
            middle = (rejected + kept) / 2.0
            with np.errstate(divide="ignore"):
                is_rejected = log_e_value(s, f, middle, prior=prior) >= threshold
            rejected = np.where(is_rejected, middle, rejected)
            kept = np.where(is_rejected, kept, middle)
        ends.append(rejected)
    return ends[0], ends[1]
