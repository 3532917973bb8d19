"""Agreement of a judge with a person's labels, with intervals.

Every function takes one pair per test case, since answers to one case are not independent; the
intervals of chance-corrected numbers resample cases.

* raw agreement: share of equal verdicts, with Wilson's interval (Wilson 1927, J. Am. Stat. Assoc.
  22:209).
* kappa: agreement beyond chance of two verdicts (Cohen 1960, Educ. Psychol. Meas. 20:37).
* weighted kappa: the same of two ratings, disagreements weighted by their square (Cohen 1968,
  Psychol. Bull. 70:213). The form here needs no categories, so averaged votes stay as they are.
* rank correlation: Spearman's rho, ties at their mean rank.
* mean absolute difference, in points of the rating.
* intervals: percentiles of the bootstrap over cases (Efron & Tibshirani 1993, ch. 13).

What is undefined is ``None``, and ``Agreement.unknown`` says why.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from scipy.special import ndtri

from convergence_core.judges.report import Agreement, Figure


def spearman(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return rho of each row, (..., n) and (..., n) -> (...,); NaN where a side is constant."""
    from scipy.stats import rankdata  # noqa: PLC0415 - takes most of a second to import

    x, y = (rankdata(side, axis=-1) for side in (a, b))
    x = x - x.mean(axis=-1, keepdims=True)
    y = y - y.mean(axis=-1, keepdims=True)
    norms = np.sqrt(np.sum(x * x, axis=-1) * np.sum(y * y, axis=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = np.clip(np.sum(x * y, axis=-1) / norms, -1.0, 1.0)
    return np.asarray(np.where(norms > 1e-9, rho, np.nan))


LEVEL = 0.95
"""Of the intervals."""
N_RESAMPLES = 1_000
"""Bootstrap samples: the ends of a 95 % interval rest on 25 of them each."""

Number: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(..., n) and (..., n) -> (...,); NaN if undefined."""


def pass_fail_agreement(
    judged: Sequence[bool], labels: Sequence[bool], *, rng: np.random.Generator
) -> Agreement:
    """Return how far verdicts agree with labels, one pair per case.

    Args:
        judged: the judge's verdicts.
        labels: the person's, in the same order.
        rng: draws the resamples.
    """
    x, y = np.asarray(judged, np.float64), np.asarray(labels, np.float64)
    n = len(x)
    if n < 2:
        return Agreement(n=n, unknown=_too_few(n))
    n_equal = int((x == y).sum())
    rate = wilson(n_equal, n)
    if y.min() == y.max():
        unknown = f"all {n} labels are equal, so kappa is undefined"
        return Agreement(n=n, n_equal=n_equal, rate=rate, unknown=unknown)
    return Agreement(n=n, n_equal=n_equal, rate=rate, kappa=_bootstrapped(kappa, x, y, rng))


def rating_agreement(
    judged: Sequence[float], labels: Sequence[float], *, rng: np.random.Generator
) -> Agreement:
    """Return how far ratings agree with labels on the same scale, one pair per case.

    Args:
        judged: the judge's ratings; fractions where votes were averaged.
        labels: the person's, in the same order.
        rng: draws the resamples.
    """
    x, y = np.asarray(judged, np.float64), np.asarray(labels, np.float64)
    n = len(x)
    if n < 2:
        return Agreement(n=n, unknown=_too_few(n))
    difference = _bootstrapped(_mean_difference, x, y, rng)
    if y.min() == y.max():
        unknown = f"all {n} labels are equal, so kappa and rank correlation are undefined"
        return Agreement(n=n, difference=difference, unknown=unknown)
    rho = _bootstrapped(spearman, x, y, rng)
    return Agreement(
        n=n,
        kappa=_bootstrapped(weighted_kappa, x, y, rng),
        spearman=rho,
        difference=difference,
        unknown="" if rho else "all judgements are equal, so there is no rank correlation",
    )


def wilson(n_hits: float, n: int, *, level: float = LEVEL) -> Figure | None:
    """Return a share with Wilson's interval; ``None`` of nothing.

    centre ± half = (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n).

    Args:
        n_hits: from 0 to ``n``; a fraction where a unit counts in part.
        n: independent units.
        level: of the interval, in (0, 1).
    """
    if n == 0:
        return None
    z = float(ndtri(0.5 + level / 2))
    share = n_hits / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    low = 0.0 if n_hits == 0 else max(0.0, middle - half)
    high = 1.0 if n_hits == n else min(1.0, middle + half)
    return Figure(value=share, low=low, high=high)


def kappa(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Cohen's kappa of verdicts 0 and 1, (p_o - p_e) / (1 - p_e), of each row."""
    p, q = x.mean(axis=-1), y.mean(axis=-1)
    by_chance = p * q + (1 - p) * (1 - q)  # p_e
    observed = (x == y).mean(axis=-1)  # p_o
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(
            np.where(by_chance < 1, (observed - by_chance) / (1 - by_chance), np.nan)
        )


def weighted_kappa(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the quadratic weighted kappa, 1 - sum_i (x_i - y_i)^2/n / sum_ij (x_i - y_j)^2/n^2."""
    # sum_ij (x_i - y_j)^2/n^2 = var x + var y + (mean x - mean y)^2, without the n^2 terms.
    by_chance = x.var(axis=-1) + y.var(axis=-1) + (x.mean(axis=-1) - y.mean(axis=-1)) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        kappas = 1 - ((x - y) ** 2).mean(axis=-1) / by_chance
    return np.asarray(np.where(by_chance > 0, kappas, np.nan))


def _mean_difference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(abs(x - y).mean(axis=-1))


def _bootstrapped(
    number: Number, x: np.ndarray, y: np.ndarray, rng: np.random.Generator
) -> Figure | None:
    """Return a number with its percentile interval over resampled cases."""
    value = float(number(x, y))
    if math.isnan(value):
        return None
    rows = rng.integers(len(x), size=(N_RESAMPLES, len(x)))
    resampled = number(x[rows], y[rows])  # (N_RESAMPLES,)
    resampled = resampled[~np.isnan(resampled)]
    if 2 * len(resampled) < N_RESAMPLES:
        return Figure(value=value)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Figure(value=value, low=min(value, float(low)), high=max(value, float(high)))


def _too_few(n: int) -> str:
    return f"{n} labelled {'case was' if n == 1 else 'cases were'} judged; agreement needs 2"
