"""Recommendation of a candidate, and intervals of what was measured afterwards.

Recommended is the evaluated candidate whose posterior is highest by a cautious reading, never the
highest observation: a lucky candidate with few cells is shrunk towards its kind; where the length of
texts is priced (``LengthPrice``), what its texts cost is taken off. Where there are hard
constraints, one that probably breaks them too often is recommended only if all do. The winner's
search estimate stays biased upward by the choice itself; ``mean_interval`` and ``paired_difference``
are for cells that were asked after it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.evidence import Member
from convergence_core.gate.intervals import grouped, mean_ends
from convergence_core.posterior import FittedSpaceModel, SpaceModel
from convergence_core.posterior.selection_bias import N_LEADERS, SelectionBias
from convergence_core.posterior.warped_posterior import Bounds, WarpedPosterior
from convergence_core.search.goals import PROBABLY, FittedGoals
from convergence_core.search.sampler import SearchState

N_DRAWS = 4_000
"""Joint draws behind ``probability_within``: a standard error of at most .8 %."""
CAUTIOUS_LEVEL = 0.6827
"""Candidates are ranked by the lower end of the interval of this level, one standard deviation below
the mean: among hundreds of candidates with few cells the highest mean is often an error of the
model. On measured tasks the regret falls where cases decide, and changes nowhere else."""
N_CONTENDERS = 200
"""Candidates, best first, that these draws compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A candidate's estimates, in the ranking."""

    candidate_id: str
    mean: float
    """Posterior mean reward, in [0, 1]."""
    low: float
    high: float
    cautious: float
    """What candidates are ranked by: the posterior's lower end at ``CAUTIOUS_LEVEL``, before means
    of leaders are corrected for selection bias, less what the length of texts costs; in the bounds,
    so that ends can tie."""
    n_cells: int
    """Rewards behind it."""
    n_cases: int
    """Distinct test cases behind it."""
    feasible: float | None = None
    """Posterior probability that it keeps the hard constraints; ``None``: no cell broke one."""

    @property
    def is_feasible(self) -> bool:
        """Whether it probably keeps the hard constraints."""
        return self.feasible is None or self.feasible >= PROBABLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The recommended candidate, and all others."""

    candidate_id: str
    mean: float
    """Posterior mean reward, in [0, 1]."""
    low: float
    high: float
    level: float
    """Probability that the interval holds the mean reward, by the posterior."""
    delta: float
    """Reward that counts as a small gap."""
    probability_within: float
    """Posterior probability that no candidate asked lies more than ``delta`` above this one, what the
    length of texts costs taken off; if this one is probably feasible, no other one that is."""
    ranking: tuple[Ranked, ...]
    """All candidates with a reward: the probably feasible by cautious estimate, then by id; after
    them the others, the likeliest to be feasible first."""
    lead: "Lead | None" = None
    """Over the rival that was asked for; ``None``: none was, or it has no reward."""

    @property
    def is_feasible(self) -> bool:
        """Whether the recommended one probably keeps the hard constraints."""
        return self.ranking[0].is_feasible

    @property
    def passed_over(self) -> Ranked | None:
        """Return the highest mean of those passed over as infeasible; ``None``: none is higher."""
        if not self.is_feasible:
            return None
        higher = (r for r in self.ranking if not r.is_feasible and r.mean > self.mean)
        return max(higher, key=lambda ranked: ranked.mean, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """How far the recommended candidate lies above another, what texts cost taken off."""

    rival_id: str
    mean: float
    """Posterior mean of the difference; 0 for itself."""
    probability: float
    """Posterior probability of a higher mean reward; 0 for itself."""
    rival_is_feasible: bool = True
    """Whether the rival probably keeps the hard constraints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean over cases with its confidence interval."""

    mean: float
    low: float
    high: float
    level: float
    n: int
    """Cases."""
    n_groups: int
    """Groups of cases; a case without one is a group of its own."""


def recommend(
    state: SearchState,
    *,
    rng: np.random.Generator,
    surrogate: SpaceModel,
    level: float = 0.95,
    delta: float = 0.01,
    case_weights: Mapping[str, float] | None = None,
    rival_id: str | None = None,
    goals: FittedGoals | None = None,
    bounds: Bounds = (0.0, 1.0),
) -> Recommendation | None:
    """Return the recommendation of the evidence; ``None``: no candidate has a reward.

    Args:
        state: of the search; not changed.
        rng: for the draws behind ``probability_within``; the choice itself needs none.
        surrogate: the model.
        level: of the intervals, in (0, 1).
        delta: reward that counts as a small gap, at least 0.
        case_weights: search case → positive weight; absent ones weigh 1.
        rival_id: candidate to compare with, see ``Recommendation.lead``.
        goals: hard constraints, fitted to the same archive; ``None``: there are none.
        bounds: of rewards, and so of means and intervals; ``None``: anywhere.

    Raises:
        ValueError: level or delta is out of range.
    """
    if delta < 0:
        raise ValueError(f"delta must be at least 0, not {delta}")
    members = [member for member in state.archive if member.n]
    if not members:
        return None
    # From the evidence alone, not from the sampler's memory: however a run came to its evidence,
    # through resumes or repairs, it recommends the same.
    fitted = surrogate.fit(state.archive, case_weights=case_weights)
    candidates = [member.candidate for member in members]
    posterior = fitted.posterior(candidates)
    cautious, _ = fitted.worth(candidates).interval(CAUTIOUS_LEVEL)
    feasible = _feasible(goals, members)
    order = sorted(
        range(len(members)),
        key=lambda i: (_doubt(feasible[i]), -cautious[i], posterior.ids[i]),
    )
    bias = SelectionBias.of_memory(state.memory)
    # A candidate that is passed over as infeasible leads by the posterior of its reward, too.
    by_reward = sorted(order, key=lambda i: -cautious[i])
    leaders = sorted({*order[:N_LEADERS], *by_reward[:N_LEADERS]})
    bounds = bounds or (-math.inf, math.inf)
    mean, low, high = _claims(posterior, level, leaders, bias, bounds)
    cautious = np.clip(cautious, *bounds)
    ranking = tuple(
        Ranked(
            candidate_id=posterior.ids[i],
            mean=float(mean[i]),
            low=float(low[i]),
            high=float(high[i]),
            cautious=float(cautious[i]),
            n_cells=members[i].n,
            n_cases=len({case_id for case_id, _ in members[i].rewards}),
            feasible=feasible[i],
        )
        for i in order
    )
    best = ranking[0]
    rivals = [i for i, ranked in zip(order, ranking, strict=True) if ranked.is_feasible] or order
    contenders = fitted.worth([members[i].candidate for i in rivals[:N_CONTENDERS]])
    return Recommendation(
        candidate_id=best.candidate_id,
        mean=best.mean,
        low=best.low,
        high=best.high,
        level=level,
        delta=delta,
        probability_within=contenders.probability_within(rng, N_DRAWS, index=0, delta=delta),
        ranking=ranking,
        lead=_lead(fitted, state, ranking, rival_id, rng),
    )


def _claims(
    posterior: WarpedPosterior,
    level: float,
    leaders: Sequence[int],
    bias: SelectionBias,
    bounds: tuple[float, float],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means and ends of intervals, (n,) each: of leaders, corrected for selection bias.

    Followers, the baseline among them, keep those of the posterior.
    """
    mean, (low, high) = posterior.mean.copy(), map(np.copy, posterior.interval(level))
    if bias.square > 0.0:
        below = (mean - low)[leaders] * bias.widening
        above = (high - mean)[leaders] * bias.widening
        mean[leaders] -= bias.zeta * posterior.sd[leaders]
        low[leaders], high[leaders] = mean[leaders] - below, mean[leaders] + above
    return np.clip(mean, *bounds), np.clip(low, *bounds), np.clip(high, *bounds)


def _feasible(goals: FittedGoals | None, members: Sequence[Member]) -> list[float | None]:
    """Return the members' probabilities of being feasible; ``None``: no cell broke a constraint."""
    if goals is None or not goals.is_constrained:
        return [None] * len(members)
    return [float(p) for p in goals.feasible([member.candidate for member in members])]


def _doubt(feasible: float | None) -> float:
    """Return the first key of a candidate's rank: -1 of the probably feasible, else minus that."""
    return -1.0 if feasible is None or feasible >= PROBABLY else -feasible


def _lead(
    fitted: FittedSpaceModel,
    state: SearchState,
    ranking: Sequence[Ranked],
    rival_id: str | None,
    rng: np.random.Generator,
) -> Lead | None:
    rival = next((ranked for ranked in ranking if ranked.candidate_id == rival_id), None)
    if rival is None:
        return None
    mean = probability = 0.0
    if rival is not ranking[0]:
        members = [state.archive.members[one.candidate_id] for one in (ranking[0], rival)]
        pair = fitted.worth([member.candidate for member in members])
        drawn = pair.draws(rng, N_DRAWS)
        mean = float(pair.mean[0] - pair.mean[1])
        probability = float(np.mean(drawn[:, 0] - drawn[:, 1] > 0))
    return Lead(
        rival_id=rival.candidate_id,
        mean=mean,
        probability=probability,
        rival_is_feasible=rival.is_feasible,
    )


def mean_interval(
    value_by_case: Mapping[str, float],
    *,
    lowest: float = 0.0,
    level: float = 0.95,
    weights: Mapping[str, float] | None = None,
    groups: Mapping[str, str] | None = None,
) -> Interval | None:
    """Return the mean over cases with a confidence interval; ``None`` without a case.

    Cases, or groups of them, count as a random sample of such; nothing else is assumed, see
    ``convergence_core.gate.intervals``. The interval is never of width zero.

    Args:
        value_by_case: case → reward, in [``lowest``, 1].
        lowest: least value that is possible.
        level: confidence, in (0, 1).
        weights: case → positive weight; absent ones weigh 1.
        groups: case → group of cases that are alike; absent ones are groups of their own.

    Raises:
        ValueError: the level, a value or a weight is out of range.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie within (0, 1), not {level}")
    if not value_by_case:
        return None
    cases = sorted(value_by_case)
    units = grouped(
        [value_by_case[case] for case in cases],
        [(weights or {}).get(case, 1.0) for case in cases],
        [(groups or {}).get(case) for case in cases],
    )
    low, high = mean_ends(units.values, weights=units.weights, tail=(1 - level) / 2, lowest=lowest)
    mean = float(np.clip(np.average(units.values, weights=units.weights), lowest, 1.0))
    return Interval(
        mean=mean,
        low=min(low, mean),
        high=max(high, mean),
        level=level,
        n=len(cases),
        n_groups=len(units.values),
    )


def paired_difference(
    a_by_case: Mapping[str, float],
    b_by_case: Mapping[str, float],
    *,
    level: float = 0.95,
    weights: Mapping[str, float] | None = None,
    groups: Mapping[str, str] | None = None,
) -> Interval | None:
    """Return mean(a - b) over the cases that both have; ``None`` if they share none.

    As ``mean_interval``, of the cases' differences in [-1, 1].
    """
    gaps = {case: a - b_by_case[case] for case, a in a_by_case.items() if case in b_by_case}
    return mean_interval(gaps, lowest=-1.0, level=level, weights=weights, groups=groups)
