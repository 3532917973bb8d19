"""Recommendation of a candidate, and intervals of later measurements.

The recommended candidate has the highest cautious posterior estimate, never the highest
observation: the model shrinks a lucky candidate with few cells towards similar ones. If the length
of prompts has a price (``LengthPrice``), the estimate is reduced by it. A candidate that probably
violates hard constraints is recommended only if all candidates do. Selection biases the winner's
search estimate upward; ``mean_interval`` and ``paired_difference`` are for cells evaluated later.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

import numpy as np

from convergence_core.evidence import Member
from convergence_core.gate.intervals import grouped, mean_ends
from convergence_core.posterior import FittedSpaceModel, SpaceModel
from convergence_core.posterior.selection_bias import N_LEADERS, SelectionBias
from convergence_core.posterior.space_model import LengthPrice
from convergence_core.posterior.warped_posterior import Bounds, WarpedPosterior
from convergence_core.records import PROBABLY, Estimate, Ranked, fields_of
from convergence_core.search.goals import FittedGoals
from convergence_core.search.sampler import SearchState
from convergence_core.space.parameters import same_params

N_DRAWS = 4_000
"""Number of joint draws behind ``probability_within``: the standard error is at most .8 %."""
CAUTIOUS_LEVEL = 0.6827
"""Level of the interval whose lower end ranks candidates: one standard deviation below the mean.
Among hundreds of candidates with few cells, the highest mean is often an error of the model. On
measured tasks this lowers the regret if cases decide and changes nothing otherwise."""
N_CONTENDERS = 200
"""Number of leading candidates compared by these draws."""
ALIKE = 1e-9
"""Reward difference that counts as rounding."""

Claims: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Means and the lower and upper ends of their intervals, (n,) each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Recommended candidate and the ranking of all candidates."""

    candidate_id: str
    mean: float
    """Posterior mean reward, in [0, 1]."""
    low: float
    high: float
    level: float
    """Posterior probability that the interval contains the mean reward."""
    delta: float
    """Reward difference that counts as small."""
    probability_within: float
    """Posterior probability that no evaluated candidate is more than ``delta`` better than this
    one, after the price of prompt length. If this one is probably feasible, only feasible ones
    count.
    """
    ranking: tuple[Ranked, ...]
    """All candidates with a reward, the probably feasible first, by decreasing cautious estimate;
    ties go to the defaults, then to the oldest. Last among them come candidates outside the
    surrogate's evidence and those whose rewards are mostly missing because a metric failed. The
    other candidates follow by decreasing probability of feasibility. The defaults replace the
    leader if they have its reward on each of its cases and no candidate beats them on another."""
    lead: "Lead | None" = None
    """Lead over the requested rival; ``None`` without a rival or if the rival has no reward."""

    @property
    def is_feasible(self) -> bool:
        """Whether the recommended candidate probably satisfies the hard constraints."""
        return self.ranking[0].is_feasible

    @property
    def passed_over(self) -> Ranked | None:
        """Infeasible candidate with the highest mean above this one's, or ``None``."""
        if not self.is_feasible:
            return None
        higher = (r for r in self.ranking if not r.is_feasible and r.mean > self.mean)
        return max(higher, key=lambda ranked: ranked.mean, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Lead of the recommended candidate over a rival, after the price of prompt length."""

    mean: float
    """Posterior mean of the difference; 0 if the rival is the recommended candidate."""
    probability: float
    """Posterior probability that it is positive; 0 if the rival is the recommended candidate."""
    rival_is_feasible: bool = True
    """Whether the rival probably satisfies the hard constraints."""


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
    """Return the recommendation from the evidence; ``None`` if no candidate has a reward.

    Args:
        state: State of the search.
        rng: Generator for the draws behind ``probability_within``; the choice uses none.
        surrogate: Model of the rewards.
        level: Level of the intervals, in (0, 1).
        delta: Reward difference that counts as small, at least 0.
        case_weights: Search case → positive weight; missing cases have weight 1.
        rival_id: Candidate to compare with, see ``Recommendation.lead``.
        goals: Hard constraints, fitted to the same archive; ``None`` without any.
        bounds: Range of rewards, means and intervals; ``None`` means unbounded.

    Example:
        >>> best = recommend(state, rng=rng, surrogate=SpaceModel(space=space))
        >>> best.candidate_id, best.mean, (best.low, best.high)
    """
    members = [member for member in state.archive if member.n]
    if not members:
        return None
    # The sampler's memory is not used: a repaired run recommends the same candidate.
    fitted = surrogate.fit(state.archive, case_weights=case_weights)
    candidates = [member.candidate for member in members]
    posterior = fitted.posterior(candidates)
    worth = posterior if surrogate.price is None else fitted.worth(candidates)
    cautious, _ = worth.interval(CAUTIOUS_LEVEL)
    is_last = (posterior.rows < 0) | _mostly_unmeasured(members)  # -1: no evidence
    feasible = _feasible(goals, members)
    ranks, defaults = _ranks(cautious), surrogate.space.baseline() or {}
    moves = [not same_params(candidate.params, defaults) for candidate in candidates]
    keys = [*zip(map(_doubt, feasible), is_last, ranks, moves, strict=True)]
    order = sorted(range(len(members)), key=keys.__getitem__)  # of equal ones, the oldest first
    order = _defaults_first(order, keys, members, surrogate.price)
    bias = SelectionBias.of_memory(state.memory)
    by_reward = sorted(order, key=lambda i: ranks[i])  # includes the infeasible
    leaders = sorted({*order[:N_LEADERS], *by_reward[:N_LEADERS]})
    leading = leaders, order[:N_CONTENDERS]
    claims = _claims(fitted, posterior, members, leading, level=level, bias=bias)
    claims = _with_the_unseen(claims, fitted, members, (1 - level) / 2, bounds)
    shown = np.clip((*claims, cautious), *(bounds or (-math.inf, math.inf)))
    mean, low, high, lowest = shown.tolist()
    ranking = tuple(
        Ranked(
            candidate_id=posterior.ids[i],
            mean=mean[i],
            low=low[i],
            high=high[i],
            cautious=lowest[i],
            n_cells=members[i].n,
            n_cases=len(members[i].case_ids),
            feasible=feasible[i],
        )
        for i in order
    )
    best = ranking[0]
    rivals = [i for i, ranked in zip(order, ranking, strict=True) if ranked.is_feasible] or order
    contenders = fitted.worth([members[i].candidate for i in rivals[:N_CONTENDERS]])
    return Recommendation(
        **fields_of(best, "candidate_id", "mean", "low", "high"),
        level=level,
        delta=delta,
        probability_within=contenders.probability_within(rng, N_DRAWS, index=0, delta=delta),
        ranking=ranking,
        lead=_lead(fitted, state, ranking, rival_id, rng),
    )


def _mostly_unmeasured(members: Sequence[Member]) -> np.ndarray:
    """Return which candidates mostly lack rewards because a metric failed, (n,).

    A lost reward counts if another candidate has one on that case. The threshold is half of a
    candidate's rewards, or twice the other candidates' share of lost rewards if that is higher.
    What a metric can measure may depend on the answer, so the remaining rewards represent few
    cases.
    """
    if not any(member.unmeasured for member in members):
        return np.zeros(len(members), dtype=bool)
    n_members = Counter(case for member in members for case in member.case_ids)
    lost = np.array(
        [sum(n_members[case] > (case in m.case_ids) for case, _ in m.unmeasured) for m in members]
    )
    n_cells = lost + [m.n for m in members]
    share_of_others = (lost.sum() - lost) / np.maximum(n_cells.sum() - n_cells, 1)
    least = np.maximum(0.5, 2 * share_of_others) * n_cells
    return np.asarray((lost > 0) & (lost >= least), bool)


def _ranks(estimates: np.ndarray) -> np.ndarray:
    """Return ranks, the highest estimate first, (n,); rounding differences share a rank."""
    order = np.argsort(-estimates, kind="stable")
    falls = np.diff(estimates[order], prepend=estimates[order[:1]]) < -ALIKE
    ranks = np.empty(len(order), dtype=np.intp)
    ranks[order] = np.cumsum(falls)
    return ranks


def _defaults_first(
    order: list[int],
    keys: Sequence[tuple[float, bool, int, bool]],
    members: Sequence[Member],
    price: LengthPrice | None,
) -> list[int]:
    """Return the order, with the defaults first if no reward contradicts them.

    They need the leader's reward on each of its cases, and no candidate may beat them on a case
    that the leader lacks. Estimates also depend on the candidates' places in the space, so they
    cannot show equal evidence.

    The fields of ``keys`` are doubt, ``is_last``, rank and whether a setting differs from the
    defaults.
    """
    leader, stays = order[0], next((i for i in order if not keys[i][3]), order[0])
    of_leader, of_defaults = (_mean_by_case(members[i]) for i in (leader, stays))
    gaps = [abs(r - of_defaults.get(case, math.inf)) for case, r in of_leader.items()]
    lengths = [
        price.of_params(members[i].candidate.params) if price else 0.0 for i in (leader, stays)
    ]
    is_alike = max(gaps, default=math.inf) <= ALIKE and lengths[1] <= lengths[0]
    if leader == stays or keys[leader][:2] != keys[stays][:2] or not is_alike:
        return order
    # The leader may owe its rank to neighbours with more cases.
    others = {case: r + ALIKE for case, r in of_defaults.items() if case not in of_leader}
    if any(
        r > others.get(case, math.inf)
        for member in (members if others else ())
        for case, r in _mean_by_case(member).items()
    ):
        return order
    return [stays, *(i for i in order if i != stays)]


def _mean_by_case(member: Member) -> dict[str, float]:
    rewards: dict[str, list[float]] = {}
    for (case_id, _), reward in member.rewards.items():
        rewards.setdefault(case_id, []).append(reward)
    return {case_id: fmean(of_case) for case_id, of_case in rewards.items()}


def _claims(
    fitted: FittedSpaceModel,
    posterior: WarpedPosterior,
    members: Sequence[Member],
    leading: tuple[list[int], list[int]],
    *,
    level: float,
    bias: SelectionBias,
) -> Claims:
    """Return means and interval ends.

    Leaders use the separate posterior ``FittedSpaceModel.claimed``, lowered and widened by the
    selection bias. Until a repeat shows whether cases reproduce their rewards, their intervals
    cover both readings. Followers, including the baseline, keep the posterior means. Intervals in
    the second list of ``leading`` include the uncertainty of the overall mean.
    """
    mean, (low, high) = posterior.mean.copy(), map(np.copy, posterior.interval(level))
    leaders, followers = leading
    widening = fitted.posterior([members[i].candidate for i in followers]).widening
    low[followers] = mean[followers] - (mean - low)[followers] * widening
    high[followers] = mean[followers] + (high - mean)[followers] * widening
    candidates = [members[i].candidate for i in leaders]
    of_leaders, widening = fitted.claimed(candidates)
    lowest, highest = of_leaders.interval(level)
    mean[leaders] = of_leaders.mean - bias.zeta * posterior.sd[leaders]
    low[leaders] = mean[leaders] - (of_leaders.mean - lowest) * widening * bias.widening
    high[leaders] = mean[leaders] + (highest - of_leaders.mean) * widening * bias.widening
    recorded = fitted.as_recorded()
    if recorded is not None:
        lowest, highest = recorded.posterior(candidates).interval(level)
        low[leaders] = np.minimum(low[leaders], lowest)
        high[leaders] = np.maximum(high[leaders], highest)
    return mean, low, high


def _with_the_unseen(
    claims: Claims,
    fitted: FittedSpaceModel,
    members: Sequence[Member],
    tail: float,
    bounds: Bounds,
) -> Claims:
    """Return claims whose intervals leave room for rewards of a kind not seen yet.

    With probability ``tail``, n rewards miss a kind with share 1 - tail^(1/n), about three of n.
    So equal rewards never shrink an interval to a point. If all rewards are equal, cases without
    any reward may differ, too. If cases reproduce their rewards, evaluated cases need no room.
    """
    learned = fitted.learned
    if learned is None or bounds is None:
        return claims
    evidence = learned.evidence
    are_alike = np.ptp(evidence.mean[evidence.count > 0]) < ALIKE
    if len(evidence.case_ids) == 1 and (fitted.is_exact or not are_alike):
        return claims  # the process knows or learns the noise
    weight = dict(zip(evidence.case_ids, evidence.case_weight.tolist(), strict=True))
    share = np.ones(len(members))
    if fitted.is_exact:
        share -= [sum(weight.get(case, 0.0) for case in m.case_ids) for m in members]
    unseen = share * (1 - tail ** (1 / sum(m.n for m in members)))
    if are_alike:
        was_asked = evidence.count.any(axis=0)
        by_no_one = 1.0 - float(evidence.case_weight @ was_asked)
        unseen += by_no_one * (1 - tail ** (1 / np.count_nonzero(was_asked)))
    mean, low, high = claims
    low = np.minimum(low, mean - unseen * (mean - bounds[0]))
    return mean, low, np.maximum(high, mean + unseen * (bounds[1] - mean))


def _feasible(goals: FittedGoals | None, members: Sequence[Member]) -> list[float | None]:
    """Return each member's probability of feasibility, or ``None`` without any violation."""
    if goals is None or not goals.is_constrained:
        return [None] * len(members)
    return [float(p) for p in goals.feasible([member.candidate for member in members])]


def _doubt(feasible: float | None) -> float:
    """Return the first sort key: -1 if probably feasible, else minus the probability."""
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
        members = [state.archive.members[ranked.candidate_id] for ranked in (ranking[0], rival)]
        pair = fitted.worth([member.candidate for member in members])
        drawn = pair.draws(rng, N_DRAWS)
        mean = float(pair.mean[0] - pair.mean[1])
        probability = float(np.mean(drawn[:, 0] - drawn[:, 1] > 0))
    return Lead(mean=mean, probability=probability, rival_is_feasible=rival.is_feasible)


def mean_interval(
    value_by_case: Mapping[str, float],
    *,
    lowest: float = 0.0,
    level: float = 0.95,
    weights: Mapping[str, float] | None = None,
    groups: Mapping[str, str] | None = None,
) -> Estimate | None:
    """Return the mean over cases with a confidence interval; ``None`` without cases.

    Cases, or groups of them, count as a random sample; the interval assumes nothing else, see
    ``convergence_core.gate.intervals``. Its width is never zero.

    Args:
        value_by_case: Case → reward, in [``lowest``, 1].
        lowest: Lowest possible value.
        level: Confidence level, in (0, 1).
        weights: Case → positive weight; missing cases have weight 1.
        groups: Case → group of similar cases; missing cases are independent.

    Example:
        >>> interval = mean_interval({"a": 0.9, "b": 0.7, "c": 0.8})
        >>> interval.low < interval.mean < interval.high
        True
    """
    if not value_by_case:
        return None
    cases = sorted(value_by_case)
    values, shares = grouped(
        [value_by_case[case] for case in cases],
        [(weights or {}).get(case, 1.0) for case in cases],
        [(groups or {}).get(case) for case in cases],
    )
    low, high = mean_ends(values, weights=shares, tail=(1 - level) / 2, lowest=lowest)
    mean = float(np.clip(np.average(values, weights=shares), lowest, 1.0))
    n_groups = len(values)
    return Estimate(
        mean=mean,
        low=min(low, mean),
        high=max(high, mean),
        level=level,
        n_cases=len(cases),
        n_groups=n_groups if n_groups < len(cases) else None,
    )


def paired_difference(
    a_by_case: Mapping[str, float],
    b_by_case: Mapping[str, float],
    *,
    level: float = 0.95,
    weights: Mapping[str, float] | None = None,
    groups: Mapping[str, str] | None = None,
) -> Estimate | None:
    """Return the mean of a - b over the common cases; ``None`` if there are none.

    Equals ``mean_interval`` of the differences, which lie in [-1, 1].
    """
    gaps = {case: a - b_by_case[case] for case, a in a_by_case.items() if case in b_by_case}
    return mean_interval(gaps, lowest=-1.0, level=level, weights=weights, groups=groups)
