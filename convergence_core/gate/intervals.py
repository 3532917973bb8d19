"""Confidence intervals for means of bounded values, for any distribution and n.

Student's t assumes normal values and would take 0.9 eight times as proof. These intervals assume
only the range. With values x_1 … x_n in [a, b] and D uniform on the simplex of n + 1 shares, the
upper end is the ``1 - tail`` quantile of

    D_1 x_1 + … + D_n x_n + D_(n+1) b                                                              (1)

(N. Gaffke, "Three test statistics for a nonparametric one-sided hypothesis on the mean of a
nonnegative variable", 2005; E. Learned-Miller, P. Thomas, "A new confidence interval for the mean
of a bounded random variable", 2019): a bootstrap with the worst value added once. For values 0 and
1 it is Clopper and Pearson's interval, for many values Student's. Coverage is proven for these
cases and conjectured for all other distributions.

It is a bet settled at a known end. Shares are ratios of independent exponentials E_j, so m is
rejected as too high if ``P(Q > 0) < tail`` (2), with

    Q = sum_j a_j E_j,    a_j = w_j (x_j - m)                                                      (3)
    P(Q > 0) = 1 / (2 pi i) ∫ exp(K(s)) / s ds,    K(s) = -sum_j log(1 - a_j s)                    (4)

The exponent of that probability at its saddle point is the minimum of ``-sum_j log(1 - s a_j)``:
the log-wealth of the best constant bet ``s`` against m (``convergence_core.gate.betting``).
Ville's inequality would require a wealth of 1 / tail because it allows a look after each value; a
single look requires less. The ratio of the means of w x and w is m if ``w (x - m)`` has mean 0. So
each term is weighted by w, and the worst value has the largest weight.

``one_look_p`` tests whether a mean of values in [-1, 1] is above 0. The worst value then has an
unknown probability p instead of one added occurrence. If no value below the minimum seen, x_(1),
occurs, the others have a mean of at most ``v = p / (1 - p)``. The probability that none occurs is
``(1 - p)^n = (1 + v)^-n``. With P_v that of (3) for a mean of v and x_(1) in place of -1,

    p-value = min(P_0 with -1, c max over v of (1 + v)^-n P_v)                                     (5)

which doubles the power for values far from -1. For given x_(1) the second term is a product of
valid factors; c corrects for choosing x_(1) by the values. Enumerations of three-point
distributions stay below the level (c = 1 exceeds it by 5 % at most).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

Floats = NDArray[np.float64]

_STEP = 0.25
"""Step of the trapezoid rule, whose error falls exponentially in 1 / step: here 1e-5 of the tail."""
_CHUNK = 8
_N_CHUNKS = 10
_SMALL = 1e-10
_CHOICE = 1.25
"""c of (eq. 5)."""
_FARTHEST, _N_MEANS = 15.0, 24
"""Maximum n v and the number of values of v: steps of .6, over which (eq. 5) changes by a few
percent."""


def grouped(
    values: Sequence[float], weights: Sequence[float], groups: Sequence[str | None]
) -> tuple[Floats, Floats]:
    """Return groups of cases as single units; a case with group ``None`` is a separate unit.

    The weighted mean over units equals that over cases. Cases of one group are alike, so ten of
    them carry less evidence than ten independent cases.

    Args:
        values: Values of the cases, (n,).
        weights: Positive weights of the cases, (n,).
        groups: Groups of the cases, (n,).

    Returns:
        Weighted mean and total weight of each unit, (n_units,) each, in order of first appearance.

    Raises:
        ValueError: A weight is not positive.
    """
    x, w = np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    if not np.all(w > 0.0):
        raise ValueError("each case's weight must be positive")
    keys = [(i, "") if group is None else (-1, group) for i, group in enumerate(groups)]
    index = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    units = np.array([index[key] for key in keys], dtype=np.intp)
    total = np.bincount(units, w, len(index)).astype(np.float64)
    means = np.bincount(units, w * x, len(index)) / total
    return (np.clip(means, x.min(), x.max()) if x.size else means), total


def mean_ends(
    values: ArrayLike,
    *,
    tail: float,
    lowest: float = 0.0,
    weights: ArrayLike | None = None,
) -> tuple[float, float]:
    """Return the ends of a confidence interval for the weighted mean.

    Args:
        values: Independent values in [``lowest``, 1], (n,), at least one.
        tail: Error probability on either side, in (0, 0.5).
        lowest: Lowest possible value, not the lowest observed one.
        weights: Positive weights, (n,); ``None`` means equal weights.

    Raises:
        ValueError: There is no value, one is out of range, or a weight is not positive.
    """
    x = np.asarray(values, dtype=np.float64)
    w = np.ones(x.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    if x.ndim != 1 or not x.size or not np.all((x >= lowest) & (x <= 1.0)):
        raise ValueError(f"values must be numbers in [{lowest:g}, 1], one at least")
    if w.shape != x.shape or not np.all((w > 0.0) & np.isfinite(w)):
        raise ValueError("weights must be one positive number per value")
    rows, counts = np.unique(np.stack((x, w / w.max())), axis=1, return_counts=True)
    return (
        -_upper(-rows[0], rows[1], counts, -lowest, tail),
        _upper(rows[0], rows[1], counts, 1.0, tail),
    )


def one_look_p(values: ArrayLike) -> float:
    """Return the p-value of "the mean is at most 0", for a single look at values in [-1, 1].

    Args:
        values: Independent values, (n,).
    """
    x, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    if not x.size:
        return 1.0
    n, least, largest = float(counts.sum()), float(x[0]), float(x[-1])

    def p_of(mean: float, lowest: float) -> float:
        return _probability_above_zero(mean - np.append(x, lowest), np.append(counts, 1))

    plain = p_of(0.0, -1.0)
    if least <= -1.0 or largest <= 0.0:
        return plain
    last = min(largest, _FARTHEST / n)
    means = np.linspace(0.0, last, _N_MEANS, endpoint=False)
    unseen = max((1.0 + v) ** -n * p_of(float(v), least) for v in means)
    # Beyond the last v, the first factor bounds the product.
    return float(min(plain, _CHOICE * max(unseen, (1.0 + last) ** -n)))  # (eq. 5)


def _upper(x: Floats, w: Floats, counts: NDArray[np.intp], highest: float, tail: float) -> float:
    """Return the lowest mean that is rejected as too high with error probability ``tail``."""
    least = float(x.min())
    if least >= highest:
        return highest
    x, w, counts = np.append(x, highest), np.append(w, 1.0), np.append(counts, 1)  # (eq. 1)

    def excess(m: float) -> float:
        return _probability_above_zero(w * (x - m), counts) - tail  # (eq. 2, 3)

    mass = counts * w
    centre = float(mass @ x / mass.sum())
    spread = float(np.sqrt((mass * w) @ (x - centre) ** 2) / mass.sum())
    low, high = least, highest
    for guess in (centre, centre + 4.0 * spread):  # most ends lie between: saves steps
        if low < guess < high:
            low, high = (guess, high) if excess(guess) > 0.0 else (low, guess)
    return float(brentq(excess, low, high, xtol=1e-7 * (highest - least)))


def _probability_above_zero(a: Floats, counts: NDArray[np.intp]) -> float:
    """Return P(Q > 0), where the j-th term occurs ``counts[j]`` times.

    The integration path runs upward and crosses the real axis only in (0, 1 / max a). Through the
    integrand's saddle point it oscillates least (H. Daniels, "Saddlepoint approximations in
    statistics", 1954).
    """
    top = float(a.max())
    if top <= 0.0:
        return 0.0
    if a.min() >= 0.0:
        return 1.0
    a = a / top
    # The saddle point has K'(s) = 1 / s; times s (1 - s): -1 at 0, positive at 1.
    saddle = float(
        brentq(lambda s: (1.0 - s) * (counts @ (a * s / (1.0 - a * s)) - 1.0), 1e-12, 1.0 - 1e-12)
    )
    slopes = a / (1.0 - a * saddle)
    scale = 1.0 / math.sqrt(counts @ slopes**2 + saddle**-2)
    # A hyperbola that follows steepest descent: straight where the integrand is symmetric.
    bend = float(np.clip(scale**3 * (counts @ slopes**3 - saddle**-3) * 2.0 / 3.0, -1.0, 1.0))
    total, largest = 0.0, 0.0
    for first in range(0, _CHUNK * _N_CHUNKS, _CHUNK):
        t = _STEP * np.arange(first, first + _CHUNK)
        s = saddle + scale * (1j * np.sinh(t) + bend * (np.cosh(t) - 1.0))
        logs = -(np.log(1.0 - np.outer(s, a)) @ counts) - np.log(s)  # (eq. 4)
        heights = np.exp(logs) * scale * (1j * np.cosh(t) + bend * np.sinh(t))
        total += float(heights.imag.sum())
        if not first:
            total -= float(heights.imag[0]) / 2.0
            largest = float(abs(heights[0]))
        if abs(heights[-1]) <= _SMALL * largest:
            break
    return min(1.0, max(0.0, _STEP * total / math.pi))
