"""Choice of breeding operators by what they have gained.

``optimization.meta_optimizer``. A sampler that breeds holds a ``MetaOptimizer``, or ``None``, by which nothing is learned and the pool is
the fixed one. What it learns lies in the sampler's memory, so it is journaled with each generation and a
resumed run makes the same choices.

    g_i = max(0, m_i - m_leader) / s                                                               (1)

Notation: m_i is the posterior mean of new candidate i, m_leader that of the candidate that led before
the generation, s the standard deviation of the posterior means of all candidates asked. All are of one
posterior, the one after the generation, so the fall of a lucky first estimate is no loss. One that ranks
below the leader, because it probably breaks a constraint, has gained nothing.

D. Thierens, "An adaptive pursuit strategy for allocating operator probabilities", GECCO 2005, section 2.2.
After a generation each operator that made new candidates is rewarded with their mean gain, relative to the
operator that gained most:

    R_a = mean_{i made by a} g_i / max_b mean_{i made by b} g_i                                     (1)
    Q_a <- Q_a + ALPHA (R_a - Q_a)                                                                  (2)
    P_a = P_MIN + (1 - K P_MIN) Q_a / sum_b Q_b                                                     (3)

Probabilities begin at the shares of the fixed pool, and a generation in which no one gained changes none.
Here P_a is the share of operator a in the pool rather than the chance of one child, since draws of the
posterior choose among all of the pool; the share of uniformly random candidates follows that of ``fresh``.

Notation: K operators, g_i the gain of new candidate i (``gains``, eq. 1), Q_a the quality and P_a the
probability of operator a.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from convergence_core.records import Json
from convergence_core.search.evolution import OPERATORS, BreedingMix, operator_of
from convergence_core.search.evolution.operators import FIXED_SHARES
from convergence_core.search.racing import Competitors

__all__ = ["META_KEY", "GenerationGains", "MetaOptimizer", "OperatorCredit"]

META_KEY = "meta_optimizer"
"""Of what a meta-optimizer has learned, in a sampler's memory."""
LEADER_KEY = "leader"
"""Of the candidate that led after the last generation, in that."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GenerationGains:
    """Outcome of one generation, as its operators see it."""

    competitors: Competitors
    """As the posterior sees them after it."""
    generation: int
    """From 0."""
    leader: int
    """Member that led before it, -1 before the first reward."""
    operators: np.ndarray
    """Index in ``OPERATORS`` of what made each member that is new, -1 for all others, (n,)."""
    gains: np.ndarray
    """Of each new member over the leader (eq. 1), 0 of all others, (n,)."""
    n_cells: int
    """Rewards that the generation brought."""

    @classmethod
    def of(
        cls,
        competitors: Competitors,
        memory: Mapping[str, Json],
        generation: int,
        n_cells: int,
    ) -> "GenerationGains":
        """Return the gains of a generation.

        Args:
            competitors: after it.
            memory: of the sampler, before it.
            generation: its number.
            n_cells: rewards that it brought.
        """
        members, archive = competitors.members, competitors.archive
        ids = {member.candidate_id: i for i, member in enumerate(members)}
        before = entry_of(memory).get(LEADER_KEY)
        leader = ids.get(before, -1) if isinstance(before, str) else -1
        operators = np.full(len(members), -1, dtype=np.intp)
        n_numbers = len(competitors.encoding.number_names)
        for i, member in enumerate(members):
            if leader < 0 or archive.members[member.candidate_id].generation != generation:
                continue
            parent = ids.get(member.parent_ids[0]) if member.parent_ids else None
            genes = None if parent is None else competitors.genes[parent]
            operators[i] = operator_of(member, competitors.genes[i], genes, n_numbers)
        gains = np.zeros(len(members))
        mean = competitors.marginals[0]
        spread = float(mean.std())
        if leader >= 0 and spread > 0.0:
            rank = np.empty(len(members), dtype=np.intp)
            rank[competitors.ranking] = np.arange(len(members))
            is_ahead = (operators >= 0) & (rank < rank[leader])
            gains[is_ahead] = np.maximum(0.0, mean - mean[leader])[is_ahead] / spread  # (eq. 1)
        return cls(
            competitors=competitors,
            generation=generation,
            leader=leader,
            operators=operators,
            gains=gains,
            n_cells=n_cells,
        )

    @property
    def leader_after(self) -> str:
        """Id of the candidate that leads after it."""
        name: str = self.competitors.members[self.competitors.ranking[0]].candidate_id
        return name

    def per_candidate(self) -> np.ndarray:
        """Return the mean gain of each operator's new candidates, NaN of those that made none."""
        known = self.operators >= 0
        n = np.bincount(self.operators[known], minlength=len(OPERATORS))
        total = np.bincount(
            self.operators[known], weights=self.gains[known], minlength=len(OPERATORS)
        )
        return np.where(n > 0, total / np.maximum(n, 1), np.nan)


class MetaOptimizer(Protocol):
    """Chooses the operators of the next generation; a value, like a sampler."""

    def mix(self, memory: Mapping[str, Json]) -> BreedingMix | None:
        """Return the mix of the next generation; ``None`` means the fixed one.

        Args:
            memory: of the sampler, after the last generation.
        """
        ...

    def learn(self, memory: Mapping[str, Json], gains: GenerationGains) -> Mapping[str, Json]:
        """Return what is known after a generation, for ``META_KEY`` of the sampler's memory.

        Args:
            memory: of the sampler, before it.
            gains: its gains.
        """
        ...


def entry_of(memory: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return what a meta-optimizer has left in a sampler's memory; empty: nothing yet."""
    entry = memory.get(META_KEY)
    return entry if isinstance(entry, dict) else {}


def numbers_of(value: Json, n: int) -> list[float] | None:
    """Return n numbers that a memory holds; ``None`` if it holds something else."""
    if isinstance(value, list) and len(value) == n:
        numbers = [float(number) for number in value if isinstance(number, int | float)]
        if len(numbers) == n and bool(np.isfinite(numbers).all()):
            return numbers
    return None


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

    def learn(self, memory: Mapping[str, Json], gains: GenerationGains) -> Mapping[str, Json]:
        """Return the qualities after a generation, and who leads."""
        known = numbers_of(entry_of(memory).get(QUALITY_KEY), len(OPERATORS))
        quality = self._start() if known is None else np.asarray(known)
        gained = gains.per_candidate()
        tried = ~np.isnan(gained)
        if (best := float(gained[tried].max(initial=0.0))) > 0.0:
            reward = gained[tried] / best  # (eq. 1)
            quality[tried] += self.alpha * (reward - quality[tried])  # (eq. 2)
        return {QUALITY_KEY: quality.tolist(), LEADER_KEY: gains.leader_after}

    def _start(self) -> np.ndarray:
        """Return qualities whose probabilities are the fixed shares, the highest 1, (K,)."""
        above = np.asarray(FIXED_SHARES) - self.p_min
        return np.asarray(above / above.max(), np.float64)

    def _probabilities(self, quality: np.ndarray) -> np.ndarray:
        k, total = len(quality), float(quality.sum())
        part = np.full(k, 1.0 / k) if total <= 0.0 else quality / total
        return np.asarray(self.p_min + (1.0 - k * self.p_min) * part, np.float64)  # (eq. 3)
