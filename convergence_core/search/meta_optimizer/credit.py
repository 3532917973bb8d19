"""Adaptive operator credit: probability matching on measured gains.

D. Thierens, "An adaptive pursuit strategy for allocating operator probabilities", GECCO 2005, section 2.2.
After a generation each operator that made new candidates is rewarded with their mean gain, relative to the
operator that gained most:

    R_a = mean_{i made by a} g_i / max_b mean_{i made by b} g_i                                     (1)
    Q_a <- Q_a + ALPHA (R_a - Q_a)                                                                  (2)
    P_a = P_MIN + (1 - K P_MIN) Q_a / sum_b Q_b                                                     (3)

Probabilities begin at the shares of the fixed pool, and a generation in which nobody gained changes none.
Here P_a is the share of operator a in the pool rather than the chance of one child, since draws of the
posterior choose among all of the pool; the share of uniformly random candidates follows that of ``fresh``.

Notation: K operators, g_i the gain of new candidate i (``gains``, eq. 1), Q_a the quality and P_a the
probability of operator a.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from convergence_core.records import Json
from convergence_core.search.evolution import OPERATORS, BreedingMix
from convergence_core.search.evolution.mix import FIXED_SHARES
from convergence_core.search.meta_optimizer.gains import (
    LEADER_KEY,
    GenerationGains,
    entry_of,
    numbers_of,
)

ALPHA = 0.3
"""Weight of the latest generation in an operator's quality."""
P_MIN = 0.05
"""Least share of an operator, so that each one is tried in every generation."""
QUALITY_KEY = "quality"


@dataclass(frozen=True, slots=True)
class OperatorCredit:
    """``optimization.meta_optimizer: credit``."""

    alpha: float = ALPHA
    p_min: float = P_MIN

    def mix(self, memory: Mapping[str, Json]) -> BreedingMix | None:
        """Return the mix of the next generation; ``None`` before the first one's outcome."""
        quality = numbers_of(entry_of(memory).get(QUALITY_KEY), len(OPERATORS))
        if quality is None:
            return None
        shares = self._probabilities(np.asarray(quality))
        fresh = OPERATORS.index("fresh")
        return BreedingMix(
            shares=tuple(shares.tolist()), exploration=float(shares[fresh] / FIXED_SHARES[fresh])
        )

    def learn(self, memory: Mapping[str, Json], found: GenerationGains) -> Mapping[str, Json]:
        """Return the qualities after a generation, and who leads."""
        known = numbers_of(entry_of(memory).get(QUALITY_KEY), len(OPERATORS))
        quality = self._start() if known is None else np.asarray(known)
        gained = found.per_candidate()
        tried = ~np.isnan(gained)
        if (best := float(gained[tried].max(initial=0.0))) > 0.0:
            reward = gained[tried] / best  # (eq. 1)
            quality[tried] += self.alpha * (reward - quality[tried])  # (eq. 2)
        return {QUALITY_KEY: quality.tolist(), LEADER_KEY: found.leader_after}

    def _start(self) -> np.ndarray:
        """Return qualities whose probabilities are the fixed shares, the highest 1, (K,)."""
        above = np.asarray(FIXED_SHARES) - self.p_min
        return np.asarray(above / above.max(), np.float64)

    def _probabilities(self, quality: np.ndarray) -> np.ndarray:
        k, total = len(quality), float(quality.sum())
        part = np.full(k, 1.0 / k) if total <= 0.0 else quality / total
        return np.asarray(self.p_min + (1.0 - k * self.p_min) * part, np.float64)  # (eq. 3)
