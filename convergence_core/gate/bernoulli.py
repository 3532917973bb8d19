"""Confidence sequences from counts: exact for 0 and 1, valid for all of [0, 1].

The wealth of betting with every alternative ``q`` at once, weighted uniformly, has a closed form in
the sum ``s`` of the rewards and their number ``n`` (H. Robbins, "Statistical methods related to the
law of the iterated logarithm", 1970, the method of mixtures):

    E(m) = B(1 + s, 1 + n - s) / (m^s (1 - m)^(n - s))                                             (1)

For fractional rewards each factor ``(q/m)^x ((1-q)/(1-m))^(1-x)`` is at most its chord
``1 + lambda (x - m)`` (inequality of the means), so it stays a supermartingale: valid, though it
does not profit from a small variance as ``betting`` does. Counts are all it needs, so posteriors
in a database can be judged, in whatever order their rewards came.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, xlog1py, xlogy

from convergence_core.gate.betting import Floats

N_BISECTIONS = 40
"""To 1e-12."""


def log_e_value(successes: ArrayLike, failures: ArrayLike, mean: ArrayLike) -> Floats:
    """Return the logarithm of the evidence against a mean, nats; shapes broadcast.

    Args:
        successes: sum of the rewards.
        failures: number of rewards less their sum.
        mean: ``m`` in (0, 1).
    """
    s, f, m = (np.asarray(value, dtype=np.float64) for value in (successes, failures, mean))
    log_e = betaln(1.0 + s, 1.0 + f) - xlogy(s, m) - xlog1py(f, -m)  # (eq. 1)
    return np.asarray(log_e, dtype=np.float64)


def confidence_interval(
    successes: ArrayLike, failures: ArrayLike, alpha: ArrayLike = 0.05
) -> tuple[Floats, Floats]:
    """Return both ends of ``{m: E(m) < 1 / alpha}``; shapes broadcast.

    With probability ``1 - alpha`` the intervals of all n cover the mean. ``log E`` is convex in m
    with its least value at s / n, so each end is found by bisection.
    """
    s, f = np.broadcast_arrays(
        np.asarray(successes, dtype=np.float64), np.asarray(failures, dtype=np.float64)
    )
    threshold = -np.log(np.asarray(alpha, dtype=np.float64))
    n = s + f
    centre = np.where(n > 0, s / np.maximum(n, 1e-300), 0.5)
    ends = []
    for outside in (0.0, 1.0):
        rejected, kept = np.full(s.shape, outside), centre
        for _ in range(N_BISECTIONS):
            middle = (rejected + kept) / 2.0
            with np.errstate(divide="ignore"):
                is_rejected = log_e_value(s, f, middle) >= threshold
            rejected = np.where(is_rejected, middle, rejected)
            kept = np.where(is_rejected, kept, middle)
        ends.append(rejected)
    return ends[0], ends[1]
