"""Trust in a judge, from items with executed truth.

Optimization exploits a critic's weaknesses (arXiv 2411.16905, §2.1). So audits limit the trust in
a judge, and disable it at low trust.

    trust = max(0, 2 q10 - 1),    q10: the 10 % quantile of Beta(c + 1/2, n - c + 1/2)

c of n items were judged right, pooled over rounds with weight .8 per round of age. Below .2 the
judge is disabled, and so is one that was tried on fewer than fifty different items: the bound
would enable a judge that tosses a coin in 7 of 100 audits of ten items, in fewer than one of
fifty. Trust gates, and scales where a weight begins; it moves nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LEAST_ITEMS: Final = 50
"""Minimum distinct items for a verdict on a judge."""
MEMORY: Final = 0.8
"""Weight of an audit per round of age."""
QUANTILE: Final = 0.1
LEAST_TRUST: Final = 0.2
"""Minimum trust; below it a judge is disabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Result of one round's items."""

    n_items: int = 0
    n_right: float = 0.0
    """Number of items judged right; a tie counts half."""
    n_new: int = 0
    """Number of items that no earlier audit had."""

    @property
    def accuracy(self) -> float | None:
        """Share of items judged right."""
        return self.n_right / self.n_items if self.n_items else None


def audit(p_right: Sequence[float], *, n_new: int | None = None) -> Audit:
    """Return the audit of one round's items.

    Args:
        p_right: Judge's probability of the truth for each item.
        n_new: Number of items that no earlier audit had; ``None`` means all.
    """
    n_right = sum(1.0 if p > 0.5 else 0.5 if p == 0.5 else 0.0 for p in p_right)
    n_items = len(p_right)
    return Audit(n_items=n_items, n_right=n_right, n_new=n_items if n_new is None else n_new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Sum of audits so far, with less weight for older ones."""

    n_right: float = 0.0
    n_items: float = 0.0
    n_different: int = 0
    """Number of distinct items in all audits."""

    def after(self, audit: Audit) -> "Trust":
        """Return the state after a round; a round without items changes nothing."""
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
        """Number of distinct items still needed for a verdict."""
        return max(0, LEAST_ITEMS - self.n_different)

    @property
    def lower_bound(self) -> float:
        """q10, the 10 % quantile of the judge's accuracy, in [0, 1]; 0 before the first audit."""
        from scipy.special import betaincinv  # noqa: PLC0415 - reports compute none

        n, c = self.n_items, self.n_right
        return float(betaincinv(c + 0.5, n - c + 0.5, QUANTILE)) if n > 0 else 0.0

    @property
    def is_enabled(self) -> bool:
        """Whether the judge is trusted enough to be used."""
        return self.value >= LEAST_TRUST
