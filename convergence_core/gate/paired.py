"""Paired test of candidate and champion on the same cases, valid at any look.

Null: the mean difference of rewards, candidate less champion, is at most ``min_effect``. Differences
d in [-1, 1], of weight w up to 1, are moved to [0, 1] and bet on one by one (``betting``); case
difficulty cancels within each pair:

    y = (w (d - effect) + effect + 1) / 2,    m = (1 + effect) / 2                                 (1)

so that ``E[y] <= m`` says ``E[w (d - effect)] <= 0``. The other null, "at least ``min_effect``", says
when to give up. The order of the pairs must not depend on their values; a hash of the case decides it.

A verdict *promote* is wrong with probability at most ``alpha``, however often one looks; so is a
verdict *keep*. Cases are taken as drawn from those that matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr

from convergence_core.gate.betting import (
    LOG_START,
    Floats,
    Side,
    log_factors,
    log_highest_wealth,
    log_mean_wealth,
    log_wealth_of_counts,
)

Decision = Literal["promote", "keep", "undecided"]

N_BISECTIONS = 50
N_FUTURES = 100
"""Futures of a forecast."""
HORIZON = 4_000
"""Further pairs that a forecast looks ahead."""
BLOCK = 200
"""Pairs that are drawn at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictForecast:
    """How many further pairs a verdict probably takes, if they are like those seen."""

    n: int
    """Median."""
    low: int
    """Fewer in one future of ten."""
    high: int | None
    """More in one future of ten; ``None``: more than ``HORIZON`` in that one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedVerdict:
    """Verdict of one look at paired differences."""

    decision: Decision
    """``promote``: better by more than ``min_effect``; ``keep``: not better by as much."""
    n: int
    """Pairs seen."""
    mean: float
    """Mean difference in [-1, 1]; NaN without pairs."""
    low: float
    high: float
    """Confidence sequence of the mean difference at level ``1 - alpha``."""
    log_e_better: float
    """Highest evidence that it is better by more than ``min_effect``, nats."""
    log_e_worse: float
    """Highest evidence that it is not better by as much, nats."""
    log_threshold: float
    """Evidence that decides, nats."""
    probability_better: float | None
    """Posterior probability that it is better by more than ``min_effect``, by this one look, for
    words such as *likely*; it decides nothing. ``None``: fewer than two pairs."""

    @property
    def p_value(self) -> float:
        """Anytime-valid p-value of "not better by more than ``min_effect``"."""
        return float(np.exp(-self.log_e_better))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedGate:
    """Settings of the paired test."""

    alpha: float = 0.05
    """Largest probability of promoting what is not better."""
    min_effect: float = 0.0
    """Least mean difference in reward that is worth a promotion, in [0, 1)."""

    def __post_init__(self) -> None:
        """Refuse settings without meaning.

        Raises:
            ValueError: ``alpha`` or ``min_effect`` is out of range.
        """
        if not 0.0 < self.alpha < 1.0:
            raise ValueError(f"alpha must lie in (0, 1), but got {self.alpha}")
        if not 0.0 <= self.min_effect < 1.0:
            raise ValueError(f"min_effect must lie in [0, 1), but got {self.min_effect}")

    def judge(
        self, differences: Sequence[float] | ArrayLike, weights: ArrayLike | None = None
    ) -> PairedVerdict:
        """Judge pairs in an order that does not depend on their values.

        Args:
            differences: candidate's reward less champion's, (n,), in [-1, 1].
            weights: of the cases, (n,), positive; ``None``: all alike. What is judged is then the
                weighted mean.

        Raises:
            ValueError: a difference is not in [-1, 1], or a weight not positive and finite.
        """
        given, shares = _checked(differences, weights)
        moved, null = _moved(given, shares, self.min_effect)
        better = log_highest_wealth(moved, null, "above")
        worse = log_highest_wealth(moved, null, "below")
        threshold = -float(np.log(self.alpha))
        low, high = _interval(given, shares, self.alpha)
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
        self, differences: Sequence[float] | ArrayLike, weights: ArrayLike | None = None
    ) -> VerdictForecast | None:
        """Return how many further pairs a verdict takes; ``None``: probably more than ``HORIZON``.

        Futures are drawn from the pairs seen, each from a reweighting of them (the Bayesian
        bootstrap, D. B. Rubin 1981), so that what is unknown of the effect is in it too. They go
        on from the wealth that there is, and the same pairs have the same forecast.

        Args:
            differences: as of ``judge``, where they are undecided.
            weights: as of ``judge``.

        Raises:
            ValueError: as ``judge``.
        """
        given, shares = _checked(differences, weights)
        if given.size < 2:
            return None
        moved, null = _moved(given, shares, self.min_effect)
        rng = np.random.default_rng(0)  # noqa: TID251 - of this function alone
        # Both sides' bets side by side, (n, 2, n_bets).
        factors = np.stack([log_factors(moved, null, side) for side in ("above", "below")], axis=1)
        threshold = -float(np.log(self.alpha))
        needs = [_first_passage(factors, threshold, rng) for _ in range(N_FUTURES)]
        low, middle, high = np.quantile(needs, (0.1, 0.5, 0.9), method="higher")
        if not np.isfinite(middle):
            return None
        return VerdictForecast(
            n=int(middle), low=int(low), high=int(high) if np.isfinite(high) else None
        )


def _moved(given: Floats, shares: Floats, effect: float) -> tuple[Floats, float]:
    """Return y, (n,), and m (eq. 1)."""
    return (shares * (given - effect) + effect + 1.0) / 2.0, (1.0 + effect) / 2.0


def _interval(given: Floats, shares: Floats, alpha: float) -> tuple[float, float]:
    """Return the effects that neither side rejects at ``alpha / 2``, by bisection.

    Both kinds of wealth are monotone in the effect: a bet's factor above is
    ``1 + c w (d - effect) / (1 + effect)``, whose derivative is never positive.
    """
    if not given.size:
        return -1.0, 1.0
    threshold = float(np.log(2.0 / alpha))
    pairs, counts = np.unique(np.stack((given, shares)), axis=1, return_counts=True)
    centre = float(np.clip(np.average(given, weights=shares), -1.0 + 1e-9, 1.0 - 1e-9))

    def end(outside: float, side: Side) -> float:
        rejected, kept = outside, centre
        for _ in range(N_BISECTIONS):
            middle = (rejected + kept) / 2.0
            moved, null = _moved(pairs[0], pairs[1], middle)
            if not 0.0 < null < 1.0:
                break
            if log_wealth_of_counts(moved, counts, null, side) >= threshold:
                rejected = middle
            else:
                kept = middle
        return rejected

    return end(-1.0, "above"), end(1.0, "below")


def _checked(
    differences: Sequence[float] | ArrayLike, weights: ArrayLike | None
) -> tuple[Floats, Floats]:
    """Return differences and weights, (n,) each.

    Raises:
        ValueError: as ``PairedGate.judge``.
    """
    given = np.asarray(differences, dtype=np.float64)
    if given.ndim != 1 or not np.all(np.abs(given) <= 1.0):
        raise ValueError("differences must be a sequence of numbers in [-1, 1]")
    return given, _checked_weights(weights, given.size)


def _checked_weights(weights: ArrayLike | None, n: int) -> Floats:
    """Return the weights divided by their largest, (n,)."""
    checked = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if checked.shape != (n,) or not np.all((checked > 0.0) & np.isfinite(checked)):
        raise ValueError("weights must be one positive number per difference")
    return np.asarray(checked / checked.max()) if n else checked


def _first_passage(factors: Floats, threshold: float, rng: np.random.Generator) -> float:
    """Return after how many further pairs one future reaches the threshold; infinite: in none.

    Args:
        factors: log-factors of the pairs seen, (n, n_sides, n_bets).
        threshold: in nats.
        rng: draws the future.
    """
    log_wealth = LOG_START + factors.sum(axis=0)
    weights = rng.dirichlet(np.ones(len(factors)))
    for begin in range(0, HORIZON, BLOCK):
        drawn = rng.choice(len(factors), size=BLOCK, p=weights)
        course = log_wealth + np.cumsum(factors[drawn], axis=0)  # (eq. 1)
        reached = np.flatnonzero((log_mean_wealth(course) >= threshold).any(axis=1))
        if reached.size:
            return float(begin + reached[0] + 1)
        log_wealth = course[-1]
    return float("inf")


def _probability_better(differences: Floats, shares: Floats, effect: float) -> float | None:
    """Return the posterior probability of a mean above ``effect``: Student's t, flat prior."""
    n = differences.size
    if n < 2:
        return None
    mean = float(np.average(differences, weights=shares))
    # Kish's effective number of pairs: that of equal weights is n.
    n_effective = float(shares.sum() ** 2 / np.square(shares).sum())
    variance = float(np.average(np.square(differences - mean), weights=shares))
    error = np.sqrt(variance / max(n_effective - 1.0, 1e-9))
    if error == 0.0:
        return 0.5 if mean == effect else float(mean > effect)
    return float(stdtr(max(n_effective - 1.0, 1.0), (mean - effect) / error))
