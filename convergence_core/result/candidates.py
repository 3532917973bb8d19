"""Estimates of candidates on each kind of cells, and the gate's verdict.

There are three kinds of estimates, which must not be confused:

* ``search``: posterior over the cells that the search used to choose. The winner was chosen
  *because* its value looked high there, and this selection biases it upward.
* ``fresh``: the same test cases, evaluated again after the choice. Unbiased for these cases.
* ``holdout``: cases that the search never saw. Unbiased for cases like them.

A difference between winner and default is one look at paired cases. The promotion decision is the
gate's, ``GateReport``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from convergence_core.records import Estimate, Params, Ranked, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """Promotion gate's verdict on the search's best candidate, from held-out cases."""

    decision: Literal["promote", "keep", "undecided"]
    """``promote``: better than the opponent by more than ``min_effect``; ``keep``: not by that
    much."""
    opponent: Literal["champion", "default"]
    """Opponent; the defaults until there is a champion."""
    opponent_id: str
    champion_id: str | None = None
    """Id of the champion as opponent, which may belong to another space; ``None`` means
    ``opponent_id``."""
    n_cases: int
    """Held-out cases with answers of both."""
    n_groups: int | None = None
    """Groups of these cases, which count as units; ``None`` means that each case is a unit."""
    mean: float
    """Mean difference, candidate minus opponent, in [-1, 1]."""
    low: float
    high: float
    """Interval of the differences that this look does not reject, at ``level`` on each side."""
    alpha: float
    """Maximum probability of a wrong ``promote`` over all looks at these cases."""
    min_effect: float
    log_e: float
    """Evidence for a promotion, -log ``p_value``, in nats."""
    log_threshold: float
    """Evidence required for a verdict, in nats."""
    p_value: float
    n_to_verdict: int | None
    """Median number of additional cases, or groups if there are any, until a verdict, at the
    current trend. 0 after a verdict; ``None`` if probably none follows within thousands, or with
    too few cases for a forecast."""
    n_to_verdict_low: int | None = None
    """10 % quantile of that number."""
    n_to_verdict_high: int | None = None
    """90 % quantile of that number; ``None`` means thousands, or no forecast."""
    probability_better: float | None = None
    """Posterior probability of a difference above ``min_effect``, from this look alone. It affects
    the wording of a verdict, not the decision. ``None`` with fewer than two cases, or in earlier
    versions."""
    level: float | None = None
    """Probability of a wrong ``promote`` that this look spends; ``None`` in earlier versions."""
    left: float | None = None
    """Part of ``alpha`` left on these cases for later looks; ``None`` in earlier versions."""
    is_adopted: bool = False
    """Whether the verdict made the candidate champion automatically."""

    @property
    def coverage(self) -> float | None:
        """Probability that ``low`` to ``high`` contains the difference; or ``None``."""
        return None if self.level is None else 1.0 - 2.0 * self.level


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateReport:
    """Estimates of one candidate, in the search and after it."""

    candidate_id: str
    label: str
    params: Params
    origin: str
    generation: int | None
    """Generation of its first evaluation, from 0; ``None`` for a default outside the search."""
    search: Estimate | None
    """Posterior; selection biases the winner's upward. ``None`` for a default without a reward in
    the search; every winner has one."""
    fresh: Estimate | None = None
    """Estimate on the search cases, evaluated again after the choice; ``None`` if not
    evaluated."""
    holdout: Estimate | None = None
    """Estimate on cases that the search never saw; ``None`` if not evaluated."""
    answer_usd: float | None = None
    """Mean price of an answer in the final test; ``None`` if not evaluated or of unknown price."""
    answer_ms: float | None = None
    """Mean latency of an answer in the final test; ``None`` if not evaluated or measured."""
    metrics: Mapping[Role, Mapping[str, float]] = field(default_factory=dict)
    """Role → metric → mean in the metric's unit. Means for ``search`` are adjusted for case
    difficulty; others are measured, on the same cells for every candidate."""

    def estimate(self, role: Role) -> Estimate | None:
        """Return the estimate on the cells of a role."""
        return {"search": self.search, "fresh": self.fresh, "holdout": self.holdout}[role]

    def headline(self) -> tuple[Role, Estimate]:
        """Return the most trustworthy estimate and the role of its cells.

        Raises:
            ValueError: There is no estimate.
        """
        roles: tuple[Role, ...] = ("holdout", "fresh", "search")
        for role in roles:
            estimate = self.estimate(role)
            if estimate is not None:
                return role, estimate
        raise ValueError(f"candidate {self.candidate_id} has no estimate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """Probability that no evaluated candidate is much better than the winner."""

    delta: float
    """Reward difference that counts as small."""
    probability: float
    """Posterior probability that the winner is within ``delta`` of the highest mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRow(Ranked):
    """Rank of one candidate on its search cells."""

    rank: int
    """Rank, from 1."""
    label: str
    params: Params
    n_cells: int
    """Search evaluations, skipped ones left out."""
    n_failed: int
    """Those of them without an ``ok`` status."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metric → mean, adjusted for the difficulty of its cases."""
    origin: str
    generation: int
    """Generation of its first evaluation, from 0."""
