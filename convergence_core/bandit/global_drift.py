"""Has the system as a whole changed? One stream of all arms' rewards, whatever traffic each one gets.

A change that all arms share (a weaker upstream model, harder requests) is spread over their watches,
each of which has to be convinced by its own rewards. So beside them the mean that a *fixed* traffic
would earn is watched: arm k with weight w_k, the shares of late. Each request estimates it without
bias by its logged propensity p_A (M. Dudík, J. Langford, L. Li, "Doubly robust policy evaluation and
learning", 2011):

    r = w_A / p_A (x - m_A),    E[r] = sum_k w_k (mu_k - m_k),

with centres m_k, the means of late. Weights and centres are fixed when an epoch begins. While no arm's
mean changes E[r] is constant, however the shares of the arms move; when w_A / p_A exceeds the epoch's
bound (``RATIOS``) the traffic is another one, and a new epoch begins. Where one arm gets nearly all of
it there is none: that arm's own watch sees as much.

A confidence sequence of E[r] is begun at every block, and when two of an epoch have nothing in common
there is an alarm, as for one arm (``drift``, which states the rate of false ones). Their ends are those
of the best of a few stakes c: since r >= -b (S. Howard et al., "Time-uniform, nonparametric,
nonasymptotic confidence sequences", 2021, theorem 4; X. Fan et al., "Exponential inequalities for
martingales with applications", 2015),

    low = mean r - min_c [b (log(2 J / alpha) / c) + sum r^2 (-log(1 - c) - c) / (b c)] / n

for J stakes, and the other end alike. The price is that of the variance that is there, not of the range.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from convergence_core.records import Json

FIRST: Final = 40
"""Requests for each arm that say what weights and centres are."""
MEMORY: Final = 0.998
"""Weight of earlier requests in them, for each new one."""
LEAST_SHARE: Final = 0.3
"""Arms with less of the traffic than this part of the largest share have no weight: it may vanish."""
RATIOS: Final = (1.5, 3.0, 6.0)
"""Greatest of an arm's weight to its propensity, by epoch; the last one for all later ones."""
BLOCK: Final = 10
N_STARTS: Final = 48
STAKES: Final = 0.9 * 2.0 ** -np.arange(7.0)
"""c, (n_stakes,)."""
_PRICES: Final = (-np.log1p(-STAKES) - STAKES) / STAKES


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The confidence sequence of E[r] from one block on."""

    total: float
    """Sum of r since."""
    squares: float
    """Sum of r^2 since."""
    n: int
    low: float
    high: float
    """What no look has excluded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the whole."""

    n: int
    """Requests by then, since the watch began."""
    before: float
    after: float
    """Mean reward of the traffic of late before and since, roughly."""
    n_after: int
    """Requests since, roughly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalDriftDetector:
    """What is remembered of all arms together since the last alarm."""

    counts: tuple[float, ...] = ()
    """Requests of each arm, the older the lighter, (n_arms,)."""
    sums: tuple[float, ...] = ()
    """Their rewards, as light, (n_arms,)."""
    n: int = 0
    weights: tuple[float, ...] = ()
    """Of this epoch, (n_arms,); empty: none has begun."""
    centres: tuple[float, ...] = ()
    n_epochs: int = 0
    stretches: tuple[Stretch, ...] = ()
    """By age, oldest first."""
    pending: tuple[float, float, int] = (0.0, 0.0, 0)
    """Sum of r, sum of r^2 and number of the block that is not full yet."""

    def widened(self, n_arms: int) -> "GlobalDriftDetector":
        """Return the watch with arms added until there are so many; they have no weight yet."""
        missing = n_arms - len(self.counts)
        if missing <= 0:
            return self
        more = (0.0,) * missing
        return replace(
            self,
            counts=self.counts + more,
            sums=self.sums + more,
            weights=self.weights + more if self.weights else (),
            centres=self.centres + more if self.weights else (),
        )

    @property
    def most_ratio(self) -> float:
        """Greatest ratio of weight to propensity in this epoch."""
        return RATIOS[min(max(self.n_epochs, 1), len(RATIOS)) - 1]

    def anew(self) -> "GlobalDriftDetector":
        """Return the watch before its next epoch, nothing remembered."""
        return GlobalDriftDetector().widened(len(self.counts))

    def tell(
        self, arm: int, reward: float, propensity: float, error: float
    ) -> tuple["GlobalDriftDetector", Change | None]:
        """Return the watch after one reward, and the change if it found one.

        Args:
            arm: place of the arm that was chosen.
            reward: in [0, 1].
            propensity: with which it was chosen, in (0, 1].
            error: probability that a confidence sequence ever misses.
        """
        told = self._remembering(arm, reward)
        if not self.weights:
            return told._begun(), None
        ratio = self.weights[arm] / propensity
        if ratio > self.most_ratio:
            return told._begun(), None
        return told._taken(ratio * (reward - self.centres[arm]), error)

    def _remembering(self, arm: int, reward: float) -> "GlobalDriftDetector":
        counts = [MEMORY * count for count in self.counts]
        sums = [MEMORY * total for total in self.sums]
        counts[arm] += 1.0
        sums[arm] += reward
        return replace(self, counts=tuple(counts), sums=tuple(sums), n=self.n + 1)

    def _begun(self) -> "GlobalDriftDetector":
        """Return the watch at the begin of an epoch, or without one where it cannot begin."""
        counts = np.array(self.counts)
        shares = counts / counts.sum()
        shares = np.where(shares >= LEAST_SHARE * shares.max(), shares, 0.0)
        if self.n < FIRST * len(self.counts) or np.count_nonzero(shares) < 2:
            # What is about one arm alone is for its own watch to find.
            return replace(self, weights=(), centres=(), stretches=(), pending=(0.0, 0.0, 0))
        centres = (np.array(self.sums) + 0.5) / (counts + 1.0)
        return replace(
            self,
            weights=tuple((shares / shares.sum()).tolist()),
            centres=tuple(centres.tolist()),
            n_epochs=self.n_epochs + 1,
            stretches=(),
            pending=(0.0, 0.0, 0),
        )

    def _taken(self, r: float, error: float) -> tuple["GlobalDriftDetector", Change | None]:
        total, squares, n = self.pending
        total, squares, n = total + r, squares + r * r, n + 1
        if n < BLOCK:
            return replace(self, pending=(total, squares, n)), None
        stretches = self._looked(total, squares, n, error)
        new = replace(self, stretches=_thinned(stretches), pending=(0.0, 0.0, 0))
        highest = max(stretches, key=lambda one: one.low)
        lowest = min(stretches, key=lambda one: one.high)
        if highest.low <= lowest.high:
            return new, None
        younger, oldest = min(highest, lowest, key=lambda one: one.n), stretches[0]
        level = float(np.dot(self.weights, self.centres))
        n_before = oldest.n - younger.n
        before = (oldest.total - younger.total) / n_before if n_before else 0.0
        return new, Change(
            n=self.n,
            before=level + before,
            after=level + younger.total / younger.n,
            n_after=younger.n,
        )

    def _looked(self, total: float, squares: float, n: int, error: float) -> tuple[Stretch, ...]:
        """Return all stretches after a full block, the one that begins with it included."""
        start = Stretch(total=0.0, squares=0.0, n=0, low=-np.inf, high=np.inf)
        old = (*self.stretches, start)
        heard = np.array(self.weights) > 0.0
        centres = np.array(self.centres)[heard]
        totals = np.array([one.total for one in old]) + total
        sums = np.array([one.squares for one in old]) + squares
        numbers = np.array([one.n for one in old]) + n
        price = np.log(2.0 * STAKES.size / error)
        ends = []
        for reach in (self.most_ratio * centres.max(), self.most_ratio * (1.0 - centres).max()):
            widths = reach * price / STAKES + sums[:, None] * _PRICES / reach
            ends.append(widths.min(axis=1) / numbers)
        means = totals / numbers
        return tuple(
            Stretch(
                total=float(a), squares=float(b), n=int(c), low=max(one.low, float(low)),
                high=min(one.high, float(high)),
            )
            for one, a, b, c, low, high in zip(
                old, totals, sums, numbers, means - ends[0], means + ends[1], strict=True
            )
        )  # fmt: skip


def to_json(watch: GlobalDriftDetector) -> dict[str, Json]:
    """Return a JSON value from which ``from_json`` makes an equal watch."""
    return {
        "counts": [*watch.counts],
        "sums": [*watch.sums],
        "n": watch.n,
        "weights": [*watch.weights],
        "centres": [*watch.centres],
        "n_epochs": watch.n_epochs,
        "stretches": [[s.total, s.squares, s.n, s.low, s.high] for s in watch.stretches],
        "pending": [*watch.pending],
    }


def from_json(value: Any) -> GlobalDriftDetector:
    """Rebuild a watch from ``to_json``.

    Raises:
        KeyError, TypeError, ValueError: the value was not made by ``to_json``.
    """
    total, squares, n = value["pending"]
    return GlobalDriftDetector(
        counts=tuple(float(x) for x in value["counts"]),
        sums=tuple(float(x) for x in value["sums"]),
        n=int(value["n"]),
        weights=tuple(float(x) for x in value["weights"]),
        centres=tuple(float(x) for x in value["centres"]),
        n_epochs=int(value["n_epochs"]),
        stretches=tuple(
            Stretch(total=float(a), squares=float(b), n=int(c), low=float(d), high=float(e))
            for a, b, c, d, e in value["stretches"]
        ),
        pending=(float(total), float(squares), int(n)),
    )


def _thinned(stretches: tuple[Stretch, ...]) -> tuple[Stretch, ...]:
    """Drop every second of the older half, but the oldest, when there are too many."""
    if len(stretches) <= N_STARTS:
        return stretches
    half = len(stretches) // 2
    return (*stretches[:half:2], *stretches[half:])
