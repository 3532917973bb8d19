"""How far a judge is trusted: a lower bound from items whose truth was executed.

    trust = max(0, 2 q10 - 1),    q10: the 10 % quantile of Beta(c + 1/2, n - c + 1/2)

c of n items were judged right, pooled over rounds with weight .8 per round of age. Below .2 the judge is
disabled. The naive 2 accuracy - 1 would enable a judge that tosses a coin in 6 of 100 audits of fifty
items; the bound in fewer than one. Trust gates, and scales where a weight begins; it moves nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

N_ITEMS: Final = 50
"""Items of one audit, if there are so many."""
MEMORY: Final = 0.8
"""Weight of an audit per round of age."""
QUANTILE: Final = 0.1
LEAST_TRUST: Final = 0.2
"""Below it a judge is disabled."""
N_BINS: Final = 10
N_DRAWS: Final = 1_000
"""Of the bootstrap."""


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

    n_items: int
    n_right: float
    """Items judged right; a tie counts half."""
    log_score: float | None
    """Mean ln P(truth), in nats; -.69 is what a coin gets."""
    calibration_error: float | None
    """Mean |stated - observed| over ten bins, weighted by their items."""
    correlation: float | None
    """Spearman's rho of judge and truth."""
    interval: tuple[float, float] | None
    """Its bootstrapped 95 % interval."""

    @property
    def accuracy(self) -> float | None:
        """Share of items judged right."""
        return self.n_right / self.n_items if self.n_items else None


def audit(items: Sequence[Item], rng: np.random.Generator) -> Audit:
    """Return what one round's items say of the judge."""
    if not items:
        return Audit(
            n_items=0, n_right=0.0, log_score=None, calibration_error=None, correlation=None,
            interval=None,
        )  # fmt: skip
    right = np.array([one.p_right for one in items])
    said = np.array([one.q for one in items])
    truth = np.array([float(one.first_is_right) for one in items])
    rho, interval = _correlation(said, truth, rng)
    return Audit(
        n_items=len(items),
        n_right=float(np.sum(right > 0.5) + 0.5 * np.sum(right == 0.5)),
        log_score=float(np.mean(np.log(np.maximum(right, 1e-6)))),
        calibration_error=calibration_error(said, truth),
        correlation=rho,
        interval=interval,
    )


def calibration_error(said: np.ndarray, truth: np.ndarray) -> float:
    """Return the expected calibration error over ten equal bins, in [0, 1]."""
    places = np.minimum((said * N_BINS).astype(int), N_BINS - 1)
    total = 0.0
    for place in np.unique(places):
        held = places == place
        total += held.sum() * abs(float(said[held].mean() - truth[held].mean()))
    return total / len(said)


def _correlation(
    said: np.ndarray, truth: np.ndarray, rng: np.random.Generator
) -> tuple[float | None, tuple[float, float] | None]:
    rho = float(_spearman(said[None], truth[None])[0])
    if np.isnan(rho):
        return None, None
    rows = rng.integers(len(said), size=(N_DRAWS, len(said)))
    low, high = np.nanquantile(_spearman(said[rows], truth[rows]), [0.025, 0.975])
    return rho, (float(low), float(high))


def _spearman(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return Spearman's rho of each row, (n, n_items) -> (n,); NaN where a side is constant."""
    from scipy.stats import rankdata  # noqa: PLC0415 - takes most of a second to import

    x, y = rankdata(a, axis=1), rankdata(b, axis=1)
    x -= x.mean(axis=1, keepdims=True)
    y -= y.mean(axis=1, keepdims=True)
    norms = np.sqrt(np.sum(x * x, axis=1) * np.sum(y * y, axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(norms > 1e-9, np.sum(x * y, axis=1) / norms, np.nan))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Audits so far, the older the lighter."""

    n_right: float = 0.0
    n_items: float = 0.0

    def after(self, found: Audit) -> "Trust":
        """Return the state after a round; one without items ages nothing."""
        if not found.n_items:
            return self
        return Trust(
            n_right=MEMORY * self.n_right + found.n_right,
            n_items=MEMORY * self.n_items + found.n_items,
        )

    @property
    def value(self) -> float:
        """Trust, in [0, 1]; 0 before the first audit."""
        if self.n_items <= 0:
            return 0.0
        return trust_of(self.n_right, self.n_items)

    @property
    def lower_bound(self) -> float:
        """The 10 % quantile of the judge's accuracy, in [0, 1]; 0 before the first audit."""
        return lower_bound(self.n_right, self.n_items) if self.n_items > 0 else 0.0

    @property
    def is_enabled(self) -> bool:
        """Whether the judge may be heard."""
        return self.value >= LEAST_TRUST


def trust_of(n_right: float, n_items: float) -> float:
    """Return max(0, 2 q10 - 1) of c of n items judged right."""
    return max(0.0, 2.0 * lower_bound(n_right, n_items) - 1.0)


def lower_bound(n_right: float, n_items: float) -> float:
    """Return q10 of Beta(c + 1/2, n - c + 1/2)."""
    # A report of trust computes none, and need not wait for this.
    from scipy.special import betaincinv  # noqa: PLC0415

    return float(betaincinv(n_right + 0.5, n_items - n_right + 0.5, QUANTILE))
