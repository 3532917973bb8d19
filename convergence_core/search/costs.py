"""Predicted costs of candidates, so that an expensive one has to earn its price.

A draw's value becomes its gain over the leader per predicted cost of a cell, as expected improvement
per second is (Snoek, Larochelle & Adams 2012, §3.2). Per whole cost alone a search would hardly leave
the cheap end, so the exponent of cost falls from 1 to 0 with what is spent (Lee, Perrone, Archambeau
& Seeger 2020, CArBO, §3, "cost-cooling"):

    gain / cost^(1 - spent)                                                                        (1)

Costs are known per candidate asked, as means over its cells. Their logarithms have a surrogate over
the space, so candidates nobody asked have a cost too.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from convergence_core.evidence.archive import Archive
from convergence_core.evidence.tallies import COST, total_of
from convergence_core.posterior.mean_model import Means, pooled_variance
from convergence_core.search.schedule import FINAL_SHARE

if TYPE_CHECKING:
    from convergence_core.config import Configuration

Per: TypeAlias = Literal["usd", "seconds"]

MIN_COST = 1e-9
"""Dollars or seconds; a cheaper cell counts as this."""
MAX_RATIO = 100.0
"""Of a candidate's cost to the median one's, or the inverse, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAwareSettings:
    """Settings of cost-aware draws."""

    per: Per
    budget: float | None = None
    """What the search may spend, in these units; ``None``: no limit, generations alone count."""

    @classmethod
    def of(cls, configuration: "Configuration") -> "CostAwareSettings | None":
        """Return the settings of a configuration; ``None``: cost does not count."""
        per, max_usd = configuration.optimization.cost_aware, configuration.budget.max_usd
        if per is None:
            return None
        if per == "seconds" or max_usd is None:
            return cls(per=per)
        return cls(per=per, budget=(1.0 - FINAL_SHARE) * max_usd)

    def exponent(self, archive: Archive, generation: int, n_generations: int) -> float:
        """Return the exponent of cost in a generation: from 1 at first to 0 when all is spent.

        A function of the evidence, so that a resumed run goes on as the unbroken one.

        Args:
            archive: told with this cost.
            generation: to plan, from 0.
            n_generations: of the run.
        """
        spent = generation / n_generations
        if self.budget is not None:
            paid = sum(total_of(member.tallies, COST)[1] for member in archive)
            spent = max(spent, paid / self.budget)
        return max(0.0, 1.0 - spent)


def per_cost(
    values: np.ndarray, leader: np.ndarray, costs: np.ndarray, exponent: float
) -> np.ndarray:
    """Return gains over the leader per cost; values without a gain keep their order behind.

    Args:
        values: of n candidates, (..., n).
        leader: its value, (...,).
        costs: predicted, of one cell each, (n,).
        exponent: of the costs; 0: they change no order.
    """
    ratio = np.clip(costs / float(np.median(costs)), 1.0 / MAX_RATIO, MAX_RATIO)
    gain = values - leader[..., None]
    return np.asarray(np.where(gain > 0, gain * ratio**-exponent, gain), np.float64)  # (eq. 1)


def log_costs(archive: Archive) -> Means:
    """Return the logarithm of each candidate's mean cost of a cell.

    A cell's error is the pooled relative one, since what costs more varies more.
    """
    known = Means.gather(archive, COST)
    cost = np.maximum(known.mean, MIN_COST)
    sums = [total_of(archive.members[c.candidate_id].tallies, COST) for c in known.candidates]
    within = sum(
        max(squares - n * mean**2, 0.0) / mean**2
        for (n, _, squares), mean in zip(sums, cost.tolist(), strict=True)
    )
    variance = pooled_variance(float(within), known.count)
    return replace(known, mean=np.log(cost), variance=variance)
