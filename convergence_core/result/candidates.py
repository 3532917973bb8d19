"""Estimates of candidates on each kind of cells, and the gate's verdict.

Three kinds of estimates stand side by side and must not be confused:

* ``search``: posterior over the cells that the search used to choose. The winner was chosen
  *because* it looked high there, so its value is biased upward by that selection.
* ``fresh``: the same test cases, evaluated again after the choice. Unbiased for these cases.
* ``holdout``: cases that the search never saw. Unbiased for cases like them.

A difference between winner and default is one look at paired cases; the promotion decision is the
gate's, ``GateReport``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from convergence_core.records import Estimate, Params, Ranked, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """What the promotion gate says of the candidate handed over, by held-out cases."""

    decision: Literal["promote", "keep", "undecided"]
    """``promote``: ahead of the opponent by more than ``min_effect``; ``keep``: not by as much."""
    opponent: Literal["champion", "default"]
    """Whom it was compared with; the defaults until there is a champion."""
    opponent_id: str
    champion_id: str | None = None
    """The champion in production that the opponent is, whose id may be of another space; ``None``:
    as ``opponent_id``."""
    n_cases: int
    """Held-out cases that both answered."""
    n_groups: int | None = None
    """Groups of them, each of which was one bet; ``None`` means each case was one."""
    mean: float
    """Mean difference, candidate less opponent, in [-1, 1]."""
    low: float
    high: float
    """The differences that this look does not reject, at ``level`` on each side."""
    alpha: float
    """Largest probability of a wrong ``promote`` among all looks at these cases."""
    min_effect: float
    log_e: float
    """Evidence for a promotion, nats: minus the logarithm of ``p_value``."""
    log_threshold: float
    """Evidence that decides, nats."""
    p_value: float
    n_to_verdict: int | None
    """Further cases, or groups of them where there are groups, until a verdict, if they go on like
    this: the median; 0: there is one; ``None`` means probably none within thousands, or too few
    cases to forecast."""
    n_to_verdict_low: int | None = None
    """Fewer in one future of ten."""
    n_to_verdict_high: int | None = None
    """More in one future of ten; ``None`` means thousands, or as of ``n_to_verdict``."""
    probability_better: float | None = None
    """Posterior probability of a difference above ``min_effect``, by this one look; it words a
    verdict, and decides nothing. ``None`` if fewer than two cases, or of an earlier version."""
    level: float | None = None
    """Probability of a wrong ``promote`` that this look spends; ``None`` for an earlier
    version."""
    left: float | None = None
    """What is left of ``alpha`` on these cases for later looks; ``None`` means as of ``level``."""
    is_adopted: bool = False
    """Whether the verdict made the candidate champion without asking a person."""

    @property
    def coverage(self) -> float | None:
        """Probability that ``low`` to ``high`` holds the difference; ``None`` as of ``level``."""
        return None if self.level is None else 1.0 - 2.0 * self.level


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateReport:
    """One candidate, as estimated in the search and after it."""

    candidate_id: str
    label: str
    params: Params
    origin: str
    generation: int | None
    """Generation of its first evaluation, from 0; ``None``: a default that the search did not evaluate."""
    search: Estimate | None
    """Posterior; for the winner biased upward by selection. ``None`` means a default that got no
    reward in the search; every winner has one."""
    fresh: Estimate | None = None
    """The search cases, evaluated again after the choice; ``None`` if not evaluated."""
    holdout: Estimate | None = None
    """Cases that the search never saw; ``None`` if not evaluated."""
    answer_usd: float | None = None
    """Mean price of an answer in the final evaluation; ``None`` if not evaluated, or without a known price.
    """
    answer_ms: float | None = None
    """Mean latency of an answer in the final evaluation; ``None`` if not evaluated, or not measured.
    """
    metrics: Mapping[Role, Mapping[str, float]] = field(default_factory=dict)
    """Role → metric → mean in the metric's unit: for ``search`` adjusted for the cases that were
    asked, else measured, on the same cells for every candidate."""

    def estimate(self, role: Role) -> Estimate | None:
        """Return the estimate on the cells of a role."""
        return {"search": self.search, "fresh": self.fresh, "holdout": self.holdout}[role]

    def headline(self) -> tuple[Role, Estimate]:
        """Return the most trustworthy estimate and the cells it rests on.

        Raises:
            ValueError: there is none.
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
    """Reward that counts as a small gap."""
    probability: float
    """Posterior probability that the winner is within ``delta`` of the highest mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRow(Ranked):
    """One candidate's standing by its search cells."""

    rank: int
    """From 1."""
    label: str
    params: Params
    n_failed: int
    """Search evaluations without an ``ok`` status, skipped ones left out."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metric → mean, adjusted for the cases that it answered."""
    origin: str
    generation: int
    """Generation of its first evaluation, from 0."""
