"""Gains of a generation's new candidates over the leader before it, by operator.

    g_i = max(0, m_i - m_leader) / s                                                               (1)

Notation: m_i is the posterior mean of new candidate i, m_leader that of the candidate that led before
the generation, s the standard deviation of the posterior means of all candidates asked. All are of one
posterior, the one after the generation, so the fall of a lucky first estimate is no loss. One that ranks
below the leader, because it probably breaks a constraint, has gained nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from convergence_core.records import Json
from convergence_core.search.evolution import OPERATORS, BreedingMix, operator_of
from convergence_core.search.racing import Competitors

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
    of_leader: float
    """How far the leader after it lies above the one before, in the units of (eq. 1), at least 0."""
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
        gains, of_leader = np.zeros(len(members)), 0.0
        mean = competitors.marginals[0]
        spread = float(mean.std())
        if leader >= 0 and spread > 0.0:
            rank = np.empty(len(members), dtype=np.intp)
            rank[competitors.ranking] = np.arange(len(members))
            is_ahead = (operators >= 0) & (rank < rank[leader])
            gains[is_ahead] = np.maximum(0.0, mean - mean[leader])[is_ahead] / spread  # (eq. 1)
            of_leader = max(0.0, float(mean[competitors.ranking[0]] - mean[leader]) / spread)
        return cls(
            competitors=competitors,
            generation=generation,
            leader=leader,
            operators=operators,
            gains=gains,
            of_leader=of_leader,
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
        """Return the mix of the next generation; ``None``: the fixed one.

        Args:
            memory: of the sampler, after the last generation.
        """
        ...

    def learn(self, memory: Mapping[str, Json], found: GenerationGains) -> Mapping[str, Json]:
        """Return what is known after a generation, for ``META_KEY`` of the sampler's memory.

        Args:
            memory: of the sampler, before it.
            found: its gains.
        """
        ...


def entry_of(memory: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return what a meta-optimizer has left in a sampler's memory; empty: nothing yet."""
    found = memory.get(META_KEY)
    return found if isinstance(found, dict) else {}


def numbers_of(value: Json, n: int) -> list[float] | None:
    """Return n numbers that a memory holds; ``None``: it holds something else."""
    if isinstance(value, list) and len(value) == n:
        found = [float(one) for one in value if isinstance(one, int | float)]
        if len(found) == n and bool(np.isfinite(found).all()):
            return found
    return None
