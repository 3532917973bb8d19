"""Paired test of candidate and champion on the same cases, one look at a time.

Null: the mean difference of rewards, candidate minus champion, is at most ``min_effect``.
Differences d in [-1, 1], with weight w up to 1, are tested at a fixed n by
``intervals.one_look_p`` on ``w (d - effect) / (1 + effect)``; case difficulty cancels within each
pair. The opposite null, "at least ``min_effect``", determines when to give up. Cases count as a
sample of the relevant ones.

A verdict *promote* is wrong with probability at most ``alpha``, however often you check. The same
holds for *keep*. Looks at the same cases share ``alpha``: each spends ``SPENT`` of what is left on
its cases,

    level = SPENT alpha mean over the cases of (1 - SPENT)^k                                       (1)

with k earlier looks at a case. So the levels of all looks at a set of cases sum to at most
``alpha``, and new cases renew it by their share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtri, stdtr

from convergence_core.caveats import LEAST_FORECAST
from convergence_core.gate.betting import Floats
from convergence_core.gate.intervals import one_look_p

Decision = Literal["promote", "keep", "undecided"]
Side = Literal["above", "below"]
"""Alternative: the mean difference is above or below an effect."""

SPENT = 0.9
"""Share of the remaining error on its cases that a look spends."""
N_FUTURES = 200
"""Number of simulated futures in a forecast."""
HORIZON = 4_000
"""Maximum additional pairs in a forecast."""


def level_of_look(alpha: float, n_earlier: ArrayLike) -> float:
    """Return the error level of a look (eq. 1).

    Args:
        alpha: Error level of all looks together.
        n_earlier: Number of earlier looks at each of its cases, (n,).
    """
    return SPENT * alpha * share_left(n_earlier)


def share_left(n_looks: ArrayLike) -> float:
    """Return the share of ``alpha`` left after ``n_looks`` looks at each case, (n,)."""
    return float(np.mean((1.0 - SPENT) ** np.asarray(n_looks, dtype=np.float64)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedVerdict:
    """Verdict of one look at paired differences."""

    decision: Decision
    """``promote``: better by more than ``min_effect``; ``keep``: not better by that much."""
    n: int
    """Number of pairs."""
    mean: float
    """Mean difference in [-1, 1]; NaN without pairs."""
    low: float
    high: float
    """Interval of the differences that this look does not reject; if it promotes, ``low`` exceeds
    ``min_effect``."""
    log_e_better: float
    """Evidence that it is better by more than ``min_effect``: -log p-value, in nats."""
    log_e_worse: float
    """Evidence that it is not better by that much, in nats."""
    log_threshold: float
    """Evidence required for a verdict, in nats."""
    probability_better: float | None
    """Posterior probability that it is better by more than ``min_effect``, from this look alone.
    It affects only wording such as *likely*, not the decision. ``None`` with fewer than two
    pairs."""

    @property
    def p_value(self) -> float:
        """P-value of "not better by more than ``min_effect``"."""
        return float(np.exp(-self.log_e_better))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedGate:
    """Settings of the paired test."""

    alpha: float = 0.05
    """Maximum probability of promoting a candidate that is not better."""
    min_effect: float = 0.0
    """Minimum mean difference in reward for a promotion, in [0, 1)."""

    def judge(
        self,
        differences: Sequence[float] | ArrayLike,
        weights: ArrayLike | None = None,
        *,
        level: float,
    ) -> PairedVerdict:
        """Judge pairs.

        Args:
            differences: Candidate's reward minus champion's, (n,), in [-1, 1].
            weights: Positive weights of the cases, (n,), for a weighted mean; ``None`` means equal
                weights.
            level: Error level of this look (``level_of_look``).

        Raises:
            ValueError: A difference is not in [-1, 1], or a weight is not positive and finite.
        """
        given, shares = _checked(differences, weights)
        sides: tuple[Side, ...] = ("above", "below")
        better, worse = (max(0.0, -_log_p(given, shares, self.min_effect, side)) for side in sides)
        low, high = (_end(given, shares, level, side) for side in sides)
        threshold = -float(np.log(level))
        decision: Decision = "undecided"
        if better >= threshold and better >= worse:
            decision = "promote"
        elif worse >= threshold:
            decision = "keep"
        return PairedVerdict(
            decision=decision,
            n=given.size,
            mean=float(np.average(given, weights=shares)) if given.size else float("nan"),
            low=low,
            high=high,
            log_e_better=better,
            log_e_worse=worse,
            log_threshold=threshold,
            probability_better=_probability_better(given, shares, self.min_effect),
        )

    def forecast(
        self,
        differences: Sequence[float] | ArrayLike,
        weights: ArrayLike | None = None,
        *,
        left: float = 1.0 - SPENT,
    ) -> tuple[int, int, int | None] | None:
        """Return the number of additional pairs until a verdict; ``None`` if over ``HORIZON``.

        The three numbers are the 10 %, 50 % and 90 % quantiles over futures; the last is ``None``
        if it exceeds ``HORIZON``.

        Futures are drawn from the observed pairs, each from a reweighting of them (the Bayesian
        bootstrap, D. B. Rubin 1981), so that the forecast includes the uncertainty of the effect.
        The next look takes old and new pairs at the level of (eq. 1). It decides if the statistic
        exceeds the normal quantile after adding the worst value once. The forecast is
        deterministic.

        Args:
            differences: Undecided differences, see ``judge``. Fewer than ``LEAST_FORECAST`` have
                no
                forecast, so the result is ``None``.
            weights: See ``judge``.
            left: Share of ``alpha`` left on these pairs.

        Raises:
            ValueError: See ``judge``.
        """
        given, shares = _checked(differences, weights)
        n = given.size
        if n < LEAST_FORECAST:
            return None
        values = shares * (given - self.min_effect)
        rng = np.random.default_rng(0)  # noqa: TID251 - local to this function
        more = np.unique(np.geomspace(1, HORIZON, 100).astype(int))
        levels = SPENT * self.alpha * (n * left + more) / (n + more)
        n_decided = np.zeros(more.size)
        for _ in range(N_FUTURES):
            drawn = rng.choice(values, size=HORIZON, p=rng.dirichlet(np.ones(n)))
            sums = values.sum() + np.cumsum(drawn)[more - 1]
            squares = np.square(values).sum() + np.cumsum(np.square(drawn))[more - 1] + 1.0
            distance = (np.abs(sums) - 1.0) / np.sqrt(squares - np.square(sums) / (n + more))
            n_decided += distance >= -ndtri(levels)
        low, middle, high = (
            next((int(m) for m, k in zip(more, n_decided, strict=True) if k >= share), None)
            for share in (0.1 * N_FUTURES, 0.5 * N_FUTURES, 0.9 * N_FUTURES)
        )
        if low is None or middle is None:
            return None
        return low, middle, high


def _log_p(given: Floats, shares: Floats, effect: float, side: Side) -> float:
    """Return the log p-value of one look, against an effect on either side."""
    sign = 1.0 if side == "above" else -1.0
    p = one_look_p(sign * shares * (given - effect) / (1.0 + sign * effect))
    return float(np.log(max(p, 1e-300)))


def _end(given: Floats, shares: Floats, level: float, side: Side) -> float:
    """Return the effect beyond which one look at ``level`` rejects on this side."""
    outside = -1.0 if side == "above" else 1.0
    if not given.size:
        return outside
    far = outside * (1.0 - 1e-9)
    inside = float(np.clip(np.average(given, weights=shares), -1.0 + 1e-6, 1.0 - 1e-6))

    def excess(effect: float) -> float:
        return _log_p(given, shares, effect, side) - float(np.log(level))

    if excess(far) >= 0.0:
        return outside
    return float(brentq(excess, far, inside, xtol=2e-4))


def _checked(
    differences: Sequence[float] | ArrayLike, weights: ArrayLike | None
) -> tuple[Floats, Floats]:
    """Return differences and weights, (n,) each.

    Raises:
        ValueError: See ``PairedGate.judge``.
    """
    given = np.asarray(differences, dtype=np.float64)
    if given.ndim != 1 or not np.all(np.abs(given) <= 1.0):
        raise ValueError("differences must be a sequence of numbers in [-1, 1]")
    return given, _checked_weights(weights, given.size)


def _checked_weights(weights: ArrayLike | None, n: int) -> Floats:
    """Return the weights divided by their maximum, (n,)."""
    checked = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if checked.shape != (n,) or not np.all((checked > 0.0) & np.isfinite(checked)):
        raise ValueError("weights must be one positive number per difference")
    return np.asarray(checked / checked.max()) if n else checked


def _probability_better(differences: Floats, shares: Floats, effect: float) -> float | None:
    """Return the posterior probability of a mean above ``effect``: Student's t, flat prior."""
    n = differences.size
    if n < 2:
        return None
    mean = float(np.average(differences, weights=shares))
    # Kish's effective number of pairs, n for equal weights.
    n_effective = float(shares.sum() ** 2 / np.square(shares).sum())
    variance = float(np.average(np.square(differences - mean), weights=shares))
    error = np.sqrt(variance / max(n_effective - 1.0, 1e-9))
    if error == 0.0:
        return 0.5 if mean == effect else float(mean > effect)
    return float(stdtr(max(n_effective - 1.0, 1.0), (mean - effect) / error))
