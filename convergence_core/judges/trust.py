"""Trust in a judge: earned on items whose truth was executed.

A critic that can be pleased will be (arXiv 2411.16905, §2.1). ``audit`` states how far a judge is trusted
and when it is disabled.

    trust = max(0, 2 q10 - 1),    q10: the 10 % quantile of Beta(c + 1/2, n - c + 1/2)

c of n items were judged right, pooled over rounds with weight .8 per round of age. Below .2 the judge is
disabled, and so is one that was tried on fewer than fifty different items: the bound would enable a judge
that tosses a coin in 7 of 100 audits of ten items, in fewer than one of fifty. Trust gates, and scales where
a weight begins; it moves nothing else.

What length does to the judge, whatever the truth, is the slope lambda of

    l = a s + lambda ln(length of the first / length of the second) + error,    s = +1: the first is right, else -1

by least squares over one round's items, l being the judge's log-odds of the first; its standard error is that
of White (1980, Econometrica 48:817), times n / (n - 2). If right answers are longer by the same factor each time,
length and truth cannot be distinguished, and there is no estimate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

LEAST_ITEMS: Final = 50
"""Different items below which there is no verdict on a judge."""
MOST_LENGTH_BIAS: Final = 1.0
"""|lambda| above which a round is aborted: log-odds for a length times e."""
SURE: Final = 1.645
"""Standard errors by which it must be above: one side of 95 %."""
MOST_LOG_ODDS: Final = 5.0
"""Log-odds beyond these count as these: a judge that is sure by .999 is not twice as sure as by .99."""
MIN_UNEXPLAINED_LENGTH: Final = 0.05
"""Share of the squared length differences that truth must leave unexplained."""
MEMORY: Final = 0.8
"""Weight of an audit per round of age."""
QUANTILE: Final = 0.1
LEAST_TRUST: Final = 0.2
"""Below it a judge is disabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A judged pair of which one side is right for sure."""

    q: float
    """P(the first is better) by the judge, both orders taken together."""
    first_is_right: bool
    log_length_ratio: float = 0.0
    """ln(length of the first / length of the second)."""

    @property
    def p_right(self) -> float:
        """Probability that the judge gave to the truth."""
        return self.q if self.first_is_right else 1.0 - self.q


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """One round's items; ``None`` where there is none."""

    n_items: int = 0
    n_right: float = 0.0
    """Items judged right; a tie counts half."""
    n_new: int = 0
    """Items that no earlier audit had."""
    length: float | None = None
    """lambda: what a length times e adds to the judge's log-odds, the truth held; ``None``: cannot be told."""
    length_se: float | None = None
    """Its standard error."""

    @property
    def abort_reason(self) -> str | None:
        """Why the round is to be aborted; ``None`` if it is not."""
        if self.length is None or self.length_se is None:
            return None
        if abs(self.length) - SURE * self.length_se <= MOST_LENGTH_BIAS:
            return None
        return (
            f"a length times e moves the judge by {self.length:+.2f} ± {self.length_se:.2f} log-odds on "
            f"{self.n_items} items whose truth is known, surely more than {MOST_LENGTH_BIAS:g}"
        )

    @property
    def accuracy(self) -> float | None:
        """Share of items judged right."""
        return self.n_right / self.n_items if self.n_items else None


def audit(items: Sequence[Item], *, n_new: int | None = None) -> Audit:
    """Return the audit of one round's items.

    Args:
        items: judged ones.
        n_new: of these, items that no earlier audit had; ``None`` means all.
    """
    if not items:
        return Audit()
    right = np.array([item.p_right for item in items])
    length, length_se = length_bias(items)
    return Audit(
        n_items=len(items),
        n_right=float(np.sum(right > 0.5) + 0.5 * np.sum(right == 0.5)),
        n_new=len(items) if n_new is None else n_new,
        length=length,
        length_se=length_se,
    )


def length_bias(items: Sequence[Item]) -> tuple[float | None, float | None]:
    """Return lambda and its standard error, log-odds for a length times e; ``None``: cannot be told."""
    q = np.array([item.q for item in items])
    with np.errstate(divide="ignore"):
        residual = np.clip(np.log(q) - np.log1p(-q), -MOST_LOG_ODDS, MOST_LOG_ODDS)  # l, (n,)
    s = np.array([1.0 if item.first_is_right else -1.0 for item in items])
    d = np.array([item.log_length_ratio for item in items])
    n = len(items)
    log_odds = d - s * float(s @ d) / n  # what truth leaves of length, (n,)
    squares = float(log_odds @ log_odds)
    if n <= 2 or squares <= MIN_UNEXPLAINED_LENGTH * float(d @ d):  # two slopes are fitted
        return None, None
    slope = float(log_odds @ residual) / squares
    a = float(s @ (residual - slope * d)) / n
    errors = residual - a * s - slope * d
    variance = float((log_odds * errors) @ (log_odds * errors)) / squares**2 * n / (n - 2)
    return slope, math.sqrt(variance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Audits so far, the older the lighter."""

    n_right: float = 0.0
    n_items: float = 0.0
    n_different: int = 0
    """Different items of all audits."""

    def after(self, audit: Audit) -> "Trust":
        """Return the state after a round; one without items ages nothing."""
        if not audit.n_items:
            return self
        return Trust(
            n_right=MEMORY * self.n_right + audit.n_right,
            n_items=MEMORY * self.n_items + audit.n_items,
            n_different=self.n_different + audit.n_new,
        )

    @property
    def value(self) -> float:
        """Trust, max(0, 2 q10 - 1), in [0, 1]; 0 as long as items are missing."""
        return 0.0 if self.n_missing else max(0.0, 2.0 * self.lower_bound - 1.0)

    @property
    def n_missing(self) -> int:
        """Different items that a verdict still needs."""
        return max(0, LEAST_ITEMS - self.n_different)

    @property
    def lower_bound(self) -> float:
        """q10, the 10 % quantile of the judge's accuracy, in [0, 1]; 0 before the first audit."""
        from scipy.special import betaincinv  # noqa: PLC0415 - reports compute none

        n, c = self.n_items, self.n_right
        return float(betaincinv(c + 0.5, n - c + 0.5, QUANTILE)) if n > 0 else 0.0

    @property
    def is_enabled(self) -> bool:
        """Whether the judge may be believed."""
        return self.value >= LEAST_TRUST
