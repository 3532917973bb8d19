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

from convergence_core.gate.betting import (
    LOG_START,
    Floats,
    Side,
    log_factors,
    log_highest_wealth,
    log_wealth_of_counts,
)

Decision = Literal["promote", "keep", "undecided"]

N_BISECTIONS = 50


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
    n_to_verdict: int | None
    """Further pairs until one is expected, if they go on like this; 0: there is one; ``None``: no
    bet grows."""

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
        given = np.asarray(differences, dtype=np.float64)
        if given.ndim != 1 or not np.all(np.abs(given) <= 1.0):
            raise ValueError("differences must be a sequence of numbers in [-1, 1]")
        shares = _checked_weights(weights, given.size)
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
            n_to_verdict=0 if decision != "undecided" else _projected(moved, null, threshold),
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


def _checked_weights(weights: ArrayLike | None, n: int) -> Floats:
    """Return the weights divided by their largest, (n,)."""
    found = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if found.shape != (n,) or not np.all((found > 0.0) & np.isfinite(found)):
        raise ValueError("weights must be one positive number per difference")
    return np.asarray(found / found.max()) if n else found


def _projected(moved: Floats, null: float, threshold: float) -> int | None:
    """Return the further pairs that the likelier verdict needs at the growth seen so far."""
    needs = []
    sides: tuple[Side, ...] = ("above", "below")
    for side in sides if moved.size else ():
        gain = float(log_factors(moved, null, side).sum(axis=0).max())  # of the best bet
        if gain > 0.0:
            # It holds one share of the start, and must reach the whole threshold.
            missing = threshold - LOG_START - gain
            needs.append(max(1, int(np.ceil(missing * moved.size / gain))))
    return min(needs, default=None)
