"""How far a judge and a person agree, with intervals, and how far a judge agrees with itself.

Every function takes one pair per test case, since answers to one case are not independent; the
intervals of chance-corrected numbers resample cases.

* raw agreement: share of equal verdicts, with Wilson's interval (Wilson 1927, J. Am. Stat. Assoc.
  22:209).
* kappa: agreement beyond chance of two verdicts (Cohen 1960, Educ. Psychol. Meas. 20:37).
* weighted kappa: the same of two ratings, disagreements weighted by their square (Cohen 1968,
  Psychol. Bull. 70:213).
* rank correlation: Spearman's rho, ties at their mean rank.
* mean absolute difference, in points of the rating.
* intervals: percentiles of the bootstrap over cases (Efron & Tibshirani 1993, ch. 13).

What is undefined is ``None``, and ``Agreement.unknown`` says why.

Results hold a ``JudgeReport`` and are read by commands that compute nothing, so numpy and SciPy are
imported where they are used.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector: TypeAlias = NDArray[np.float64]

N_RESAMPLES = 1_000
"""Bootstrap samples: the ends of a 95 % interval rest on 25 of them each."""

JudgeMode: TypeAlias = Literal["rating", "pass_fail", "pairwise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number with its interval."""

    value: float
    low: float | None = None
    """``None``, as ``high``: too few resamples define the number."""
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A judge beside a person's labels."""

    n: int
    """Labelled cases that the judge judged."""
    level: float = 0.95
    """Of the intervals."""
    n_equal: int | None = None
    """Equal verdicts; ``None`` for ratings."""
    rate: Figure | None = None
    """Share of equal verdicts, in [0, 1]; ``None`` for ratings."""
    kappa: Figure | None = None
    """Cohen's kappa of verdicts, quadratic weighted kappa of ratings: 1 is perfect, 0 is chance."""
    spearman: Figure | None = None
    """Rank correlation of ratings, in [-1, 1]."""
    difference: Figure | None = None
    """Mean absolute difference of ratings, in points."""
    unknown: str = ""
    """Why numbers are absent, in words; empty: none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """What a run says of one of its judges."""

    name: str
    """Key under ``evaluation.metrics``."""
    mode: JudgeMode
    agreement: Agreement | None = None
    """``None``: the metric names no label."""
    of_default: bool = False
    """Whether the labels are compared with judgements of the default configuration's answers
    alone, or with those of all configurations asked."""
    n_bad_labels: int = 0
    """Labels that are not of the mode's form, left out."""
    n_undecided: int = 0
    """Labelled cases on which the judge's votes were evenly split, left out."""
    n_pairs: int = 0
    """Evaluations whose two answers were compared in both orders."""
    inconsistent: Figure | None = None
    """Share of comparisons whose verdict changed with the order; ``None``: there are none."""


def pass_fail_agreement(
    judged: Sequence[bool],
    labels: Sequence[bool],
    *,
    rng: "np.random.Generator",
    level: float = 0.95,
) -> Agreement:
    """Return how far verdicts agree with labels, one pair per case.

    Args:
        judged: the judge's verdicts.
        labels: the person's, in the same order.
        rng: draws the resamples.
        level: of the intervals, in (0, 1).

    Raises:
        ValueError: the lengths differ, or the level is out of range.
    """
    x, y = _pair([float(v) for v in judged], [float(v) for v in labels], level)
    n = len(x)
    if n < 2:
        return Agreement(n=n, level=level, unknown=_too_few(n))
    n_equal = int((x == y).sum())
    rate = wilson(n_equal, n, level=level)
    if y.min() == y.max():
        unknown = f"all {n} labels are equal, so kappa says nothing"
        return Agreement(n=n, level=level, n_equal=n_equal, rate=rate, unknown=unknown)
    kappa = _bootstrapped(_kappa, x, y, rng=rng, level=level)
    return Agreement(n=n, level=level, n_equal=n_equal, rate=rate, kappa=kappa)


def rating_agreement(
    judged: Sequence[float],
    labels: Sequence[float],
    *,
    rng: "np.random.Generator",
    level: float = 0.95,
) -> Agreement:
    """Return how far ratings agree with labels on the same scale, one pair per case.

    Args:
        judged: the judge's ratings; fractions where votes were averaged.
        labels: the person's, in the same order.
        rng: draws the resamples.
        level: of the intervals, in (0, 1).

    Raises:
        ValueError: the lengths differ, a number is not finite, or the level is out of range.
    """
    x, y = _pair(judged, labels, level)
    n = len(x)
    if n < 2:
        return Agreement(n=n, level=level, unknown=_too_few(n))
    difference = _bootstrapped(_mean_difference, x, y, rng=rng, level=level)
    if y.min() == y.max():
        unknown = f"all {n} labels are equal, so kappa and rank correlation say nothing"
        return Agreement(n=n, level=level, difference=difference, unknown=unknown)
    spearman = _bootstrapped(_spearman, x, y, rng=rng, level=level)
    return Agreement(
        n=n,
        level=level,
        kappa=_bootstrapped(_weighted_kappa, x, y, rng=rng, level=level),
        spearman=spearman,
        difference=difference,
        unknown="" if spearman else "all judgements are equal, so there is no rank correlation",
    )


def wilson(n_hits: float, n: int, *, level: float = 0.95) -> Figure | None:
    """Return a share with Wilson's interval; ``None`` of nothing.

    centre ± half = (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n).

    Args:
        n_hits: from 0 to ``n``; a fraction where a unit counts in part.
        n: independent units.
        level: of the interval, in (0, 1).

    Raises:
        ValueError: the level or the hits are out of range.
    """
    from scipy.special import ndtri  # noqa: PLC0415 - see above

    _check(level)
    if not 0 <= n_hits <= max(n, 0):
        raise ValueError(f"hits must lie in [0, {n}], not {n_hits}")
    if n == 0:
        return None
    z = float(ndtri(0.5 + level / 2))
    share = n_hits / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    low = 0.0 if n_hits == 0 else max(0.0, middle - half)
    high = 1.0 if n_hits == n else min(1.0, middle + half)
    return Figure(value=share, low=low, high=high)


def cohen_kappa(a: Sequence[bool], b: Sequence[bool]) -> float | None:
    """Return Cohen's kappa of two raters' verdicts: (pₒ - pₑ) / (1 - pₑ).

    ``None`` for fewer than two pairs, or where both always say the same one thing.

    Raises:
        ValueError: the lengths differ.
    """
    x, y = _pair([float(v) for v in a], [float(v) for v in b], 0.5)
    return None if len(x) < 2 else _kappa(x, y)


def weighted_kappa(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return the quadratic weighted kappa: 1 - Σᵢ(aᵢ - bᵢ)²/n / ΣᵢΣⱼ(aᵢ - bⱼ)²/n².

    For integers this is Cohen's of 1968; the form needs no categories, so averaged votes stay
    as they are. ``None`` for fewer than two pairs, or where all numbers are equal.

    Raises:
        ValueError: the lengths differ, or a number is not finite.
    """
    x, y = _pair(a, b, 0.5)
    return None if len(x) < 2 else _weighted_kappa(x, y)


def spearman_rho(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; ``None`` where one side has no variance.

    Raises:
        ValueError: the lengths differ, or a number is not finite.
    """
    x, y = _pair(a, b, 0.5)
    return None if len(x) < 2 else _spearman(x, y)


# -- the numbers themselves: (n,) and (n,) → one number, None where it is undefined


def _kappa(x: "Vector", y: "Vector") -> float | None:
    observed = float((x == y).mean())
    p, q = float(x.mean()), float(y.mean())
    by_chance = p * q + (1 - p) * (1 - q)
    return None if by_chance >= 1 else (observed - by_chance) / (1 - by_chance)


def _weighted_kappa(x: "Vector", y: "Vector") -> float | None:
    # ΣᵢΣⱼ(xᵢ - yⱼ)²/n² = var x + var y + (mean x - mean y)², without the n² terms.
    by_chance = float(x.var() + y.var() + (x.mean() - y.mean()) ** 2)
    return None if by_chance <= 0 else 1 - float(((x - y) ** 2).mean()) / by_chance


def _spearman(x: "Vector", y: "Vector") -> float | None:
    if x.min() == x.max() or y.min() == y.max():
        return None
    a, b = _ranks(x), _ranks(y)
    a, b = a - a.mean(), b - b.mean()
    rho = float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))
    return min(1.0, max(-1.0, rho))


def _mean_difference(x: "Vector", y: "Vector") -> float:
    return float(abs(x - y).mean())


def _ranks(x: "Vector") -> "Vector":
    """Return ranks from 1, ties at their mean."""
    import numpy as np  # noqa: PLC0415 - see above

    _, places, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Vector = (last - (counts - 1) / 2)[places]
    return ranks


# -- intervals


def _bootstrapped(
    number: "Callable[[Vector, Vector], float | None]",
    x: "Vector",
    y: "Vector",
    *,
    rng: "np.random.Generator",
    level: float,
) -> Figure | None:
    """Return a number with its percentile interval over resampled cases."""
    import numpy as np  # noqa: PLC0415 - see above

    value = number(x, y)
    if value is None:
        return None
    n = len(x)
    found = []
    for _ in range(N_RESAMPLES):
        drawn = rng.integers(n, size=n)
        resampled = number(x[drawn], y[drawn])
        if resampled is not None:
            found.append(resampled)
    if 2 * len(found) < N_RESAMPLES:
        return Figure(value=value)
    tail = (1 - level) / 2
    low, high = np.quantile(found, [tail, 1 - tail])
    return Figure(value=value, low=min(value, float(low)), high=max(value, float(high)))


def _pair(a: Sequence[float], b: Sequence[float], level: float) -> "tuple[Vector, Vector]":
    import numpy as np  # noqa: PLC0415 - see above

    _check(level)
    if len(a) != len(b):
        raise ValueError(f"judgements and labels must be pairs, not {len(a)} and {len(b)}")
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("judgements and labels must be finite numbers")
    return x, y


def _check(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie within (0, 1), not {level}")


def _too_few(n: int) -> str:
    return f"{n} labelled {'case was' if n == 1 else 'cases were'} judged; agreement needs 2"
