"""Changes of all arms together, and confidence sequences that detect them.

A change that all arms share (a weaker upstream model, harder requests) is spread over their watches,
each of which has to be convinced by its own rewards. So beside them the mean that a *fixed* traffic
would earn is watched: arm k with weight w_k, its share of recent traffic. Each request estimates it
without bias by its logged propensity p_A (M. Dudík, J. Langford, L. Li, "Doubly robust policy
evaluation and learning", 2011):

    r = w_A / p_A (x - m_A)                                                                        (1)
    E[r] = sum_k w_k (mu_k - m_k)                                                                  (2)

with centres m_k, recent means. Weights and centres are fixed when an epoch begins. While no arm's
mean changes E[r] is constant, however the shares of the arms move; when w_A / p_A exceeds the epoch's
bound (``RATIOS``) the traffic is another one, and a new epoch begins. Where one arm gets nearly all of
it there is none: that arm's own watch sees as much.

A confidence sequence of E[r] is begun at every block (``ConfidenceSequence``; ``drift`` states the
rate of false alarms). Their ends are those of the best of a few stakes c: since r >= -b (S. Howard et al.,
"Time-uniform, nonparametric, nonasymptotic confidence sequences", 2021, theorem 4; X. Fan et al.,
"Exponential inequalities for martingales with applications", 2015),

    low = mean r - min_c [b log(2 J / alpha) / c + sum r^2 (-log(1 - c) - c) / (b c)] / n          (3)

for J stakes, and the other end alike. The price is that of the variance that is there, not of the
range.

A confidence sequence is begun at every block of rewards and all of them are kept up. While the mean
stays what it is, all cover it; when two of them have nothing in common, it has changed (S. Shekhar,
A. Ramdas, "Reducing sequential change detection to sequential estimation", 2024, the repeated
scheme). Neither the mean before nor after the change needs to be known.

Forgetting sequences makes an alarm later, never more frequent, so only ``N_SEQUENCES`` are kept, the
older the sparser.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from convergence_core.bandit.propensities import Floats
from convergence_core.records import Json

BLOCK = 10
"""Rewards from one beginning to the next."""
N_SEQUENCES = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceSequence:
    """One confidence sequence, from its block on."""

    total: float = 0.0
    """Sum of the values since."""
    squares: float = 0.0
    """Sum of their squares, where it is kept."""
    n: int = 0
    """Values since."""
    low: float
    high: float
    """Ends of the interval that no look has excluded."""
    begun: int = 0
    """Rewards of all arms before it, where they are counted."""


Sequences = tuple[ConfidenceSequence, ...]
"""By age, oldest first."""


def narrowed(
    sequences: Sequence[ConfidenceSequence],
    totals: Floats,
    squares: Floats,
    numbers: Floats,
    ends: tuple[Floats, Floats],
) -> Sequences:
    """Return the sequences with new sums, less what the new intervals exclude; (n,) each."""
    rows = zip(sequences, totals, squares, numbers, *ends, strict=True)
    return tuple(
        ConfidenceSequence(
            total=float(total),
            squares=float(square),
            n=int(n),
            low=max(old.low, float(low)),
            high=min(old.high, float(high)),
            begun=old.begun,
        )
        for old, total, square, n, low, high in rows
    )


def younger_of_disagreeing(sequences: Sequences) -> ConfidenceSequence | None:
    """Return the younger of two sequences with nothing in common; ``None`` means all overlap.

    It began after most of the change; the oldest of all saw everything before.
    """
    highest = max(sequences, key=lambda sequence: sequence.low)
    lowest = min(sequences, key=lambda sequence: sequence.high)
    if highest.low <= lowest.high:
        return None
    return min(highest, lowest, key=lambda sequence: sequence.n)


def thinned(sequences: Sequences) -> Sequences:
    """Drop every second of the older half, but the oldest, when there are too many."""
    if len(sequences) <= N_SEQUENCES:
        return sequences
    half = len(sequences) // 2
    return (*sequences[:half:2], *sequences[half:])


def sums_of(sequences: Sequence[ConfidenceSequence]) -> tuple[Floats, Floats, Floats]:
    """Return totals, squares and numbers, (n,) each."""
    rows = np.array([(s.total, s.squares, s.n) for s in sequences], dtype=np.float64)
    return rows[:, 0], rows[:, 1], rows[:, 2]


MIN_REQUESTS: Final = 40
"""Requests for each arm that weights and centres rest on."""
MEMORY: Final = 0.998
"""Weight of earlier requests in them, for each new one."""
MIN_SHARE: Final = 0.3
"""Arms with less of the traffic than this part of the largest share have no weight: it may vanish."""
RATIOS: Final = (1.5, 3.0, 6.0)
"""Greatest of an arm's weight to its propensity, by epoch; the last one for all later ones."""
STAKES: Final = 0.9 * 2.0 ** -np.arange(7.0)
"""c, (n_stakes,)."""
_PRICES: Final = (-np.log1p(-STAKES) - STAKES) / STAKES


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A detected change of all arms together."""

    n: int
    """Requests by then, since the watch began."""
    before: float
    after: float
    """Mean reward of recent traffic before and since, roughly."""
    n_after: int
    """Requests since, roughly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalDriftDetector:
    """State of the detector since the last alarm."""

    counts: tuple[float, ...] = ()
    """Requests of each arm, the older the lighter, (n_arms,)."""
    sums: tuple[float, ...] = ()
    """Their rewards, as light, (n_arms,)."""
    n: int = 0
    weights: tuple[float, ...] = ()
    """w of this epoch, (n_arms,); empty: none has begun."""
    centres: tuple[float, ...] = ()
    """m of this epoch, (n_arms,)."""
    n_epochs: int = 0
    sequences: Sequences = ()
    pending: tuple[float, float, int] = (0.0, 0.0, 0)
    """Sum of r, sum of r^2 and number of the block that is not full yet."""

    def widened(self, n_arms: int) -> "GlobalDriftDetector":
        """Return the detector with arms added until there are so many; they have no weight yet."""
        more = (0.0,) * (n_arms - len(self.counts))
        in_epoch = more if self.weights else ()
        return replace(
            self,
            counts=self.counts + more,
            sums=self.sums + more,
            weights=self.weights + in_epoch,
            centres=self.centres + in_epoch,
        )

    @property
    def max_ratio(self) -> float:
        """Greatest ratio of weight to propensity in this epoch."""
        return RATIOS[min(max(self.n_epochs, 1), len(RATIOS)) - 1]

    def reset(self) -> "GlobalDriftDetector":
        """Return the detector of as many arms before any reward."""
        return GlobalDriftDetector().widened(len(self.counts))

    def tell(
        self, arm: int, reward: float, propensity: float, error: float
    ) -> tuple["GlobalDriftDetector", Change | None]:
        """Return the detector after one reward, and the change if it found one.

        Args:
            arm: index of the arm that was chosen.
            reward: in [0, 1].
            propensity: with which it was chosen, in (0, 1].
            error: probability that a confidence sequence ever misses.
        """
        counts = [MEMORY * count for count in self.counts]
        sums = [MEMORY * total for total in self.sums]
        counts[arm] += 1.0
        sums[arm] += reward
        updated = replace(self, counts=tuple(counts), sums=tuple(sums), n=self.n + 1)
        ratio = self.weights[arm] / propensity if self.weights else np.inf
        if ratio > self.max_ratio:
            return updated._with_new_epoch(), None
        return updated._with_estimate(ratio * (reward - self.centres[arm]), error)  # (eq. 1)

    def _with_new_epoch(self) -> "GlobalDriftDetector":
        """Return the detector at the beginning of an epoch, or without one where none can begin."""
        counts = np.array(self.counts)
        shares = counts / counts.sum()
        shares = np.where(shares >= MIN_SHARE * shares.max(), shares, 0.0)
        updated = replace(self, weights=(), centres=(), sequences=(), pending=(0.0, 0.0, 0))
        if self.n < MIN_REQUESTS * len(self.counts) or np.count_nonzero(shares) < 2:
            return updated  # a change of one arm alone is found by its own watch
        centres = (np.array(self.sums) + 0.5) / (counts + 1.0)
        return replace(
            updated,
            weights=tuple((shares / shares.sum()).tolist()),
            centres=tuple(centres.tolist()),
            n_epochs=self.n_epochs + 1,
        )

    def _with_estimate(
        self, r: float, error: float
    ) -> tuple["GlobalDriftDetector", Change | None]:
        total, squares, n = self.pending
        total, squares, n = total + r, squares + r * r, n + 1
        if n < BLOCK:
            return replace(self, pending=(total, squares, n)), None
        sequences = self._narrowed(total, squares, n, error)
        updated = replace(self, sequences=thinned(sequences), pending=(0.0, 0.0, 0))
        younger, oldest = younger_of_disagreeing(sequences), sequences[0]
        if younger is None:
            return updated, None
        level = float(np.dot(self.weights, self.centres))
        n_before = oldest.n - younger.n
        before = (oldest.total - younger.total) / n_before if n_before else 0.0
        after = younger.total / younger.n
        return updated, Change(
            n=self.n, before=level + before, after=level + after, n_after=younger.n
        )

    def _narrowed(self, total: float, squares: float, n: int, error: float) -> Sequences:
        """Return all sequences after a full block, the one that begins with it included."""
        old = (*self.sequences, ConfidenceSequence(low=-np.inf, high=np.inf))
        totals, all_squares, numbers = sums_of(old)
        totals, all_squares, numbers = totals + total, all_squares + squares, numbers + n
        centres = np.array(self.centres)[np.array(self.weights) > 0.0]
        price = np.log(2.0 * STAKES.size / error)
        widths = []
        for b in (self.max_ratio * centres.max(), self.max_ratio * (1.0 - centres).max()):
            by_stake = b * price / STAKES + all_squares[:, None] * _PRICES / b  # (eq. 3)
            widths.append(by_stake.min(axis=1) / numbers)
        means = totals / numbers
        ends = (means - widths[0], means + widths[1])
        return narrowed(old, totals, all_squares, numbers, ends)

    def to_json(self) -> dict[str, Json]:
        """Return a JSON value from which ``from_json`` makes an equal detector."""
        rows: list[Json] = [[s.total, s.squares, s.n, s.low, s.high] for s in self.sequences]
        return {
            "counts": [*self.counts],
            "sums": [*self.sums],
            "n": self.n,
            "weights": [*self.weights],
            "centres": [*self.centres],
            "n_epochs": self.n_epochs,
            "stretches": rows,  # as earlier versions wrote them
            "pending": [*self.pending],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "GlobalDriftDetector":
        """Rebuild from ``to_json``.

        Raises:
            KeyError, TypeError, ValueError: the value was not made by ``to_json``.
        """
        total, squares, n = value["pending"]
        names = ("counts", "sums", "weights", "centres")
        return cls(
            **{name: tuple(float(x) for x in value[name]) for name in names},
            n=int(value["n"]),
            n_epochs=int(value["n_epochs"]),
            sequences=tuple(
                ConfidenceSequence(
                    total=float(a), squares=float(b), n=int(c), low=float(d), high=float(e)
                )
                for a, b, c, d, e in value["stretches"]
            ),
            pending=(float(total), float(squares), int(n)),
        )
