"""Explanation of a run's choice, from its evidence alone.

A candidate is eliminated if its probability of beating the leader falls below a bound that is
divided by the number of candidates (``racing.Competitors.elites``). So the error holds for all of
them together. The others wait: the race considers only the first few by posterior mean.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from convergence_core.evidence import Archive
from convergence_core.explanation.effects import cut
from convergence_core.explanation.records import Discard, Discards, Effect, Explanation
from convergence_core.posterior import FittedSpaceModel, SpaceModel
from convergence_core.records import Ranked, fields_of
from convergence_core.search.goals import FittedGoals
from convergence_core.search.racing import Competitors, Rules
from convergence_core.search.recommend import Recommendation

MAX_DISCARDS = 20
"""Maximum eliminated candidates listed."""
CHUNK = 100
"""Candidates per comparison with the leader: the cost grows with the square."""


def discards(
    fitted: FittedSpaceModel,
    archive: Archive,
    standing: Mapping[str, Ranked],
    *,
    names: Mapping[str, str],
    rules: Rules,
    goals: FittedGoals | None = None,
) -> Discards | None:
    """Return the eliminated candidates; ``None`` without a reward or if the run seeks a front.

    Args:
        fitted: Surrogate with its evidence.
        archive: Evidence of the run.
        standing: Candidate with a reward → its ranking entry, for means and intervals.
        names: Candidate → display name.
        rules: Rules of the race.
        goals: Goals besides the mean reward, fitted to the same archive, or ``None``.
    """
    competitors = Competitors(rules, fitted.model.encoding, archive, fitted, goals)
    if not competitors.members or (goals is not None and goals.objectives):
        return None
    above = _above_leader(competitors)
    error = 1.0 - rules.confidence_level
    bound = error / len(above)
    candidates = [competitors.members[i] for i in competitors.ranking]
    left = [i for i in range(len(above)) if above[i] < bound]
    counts = Counter(standing[candidates[i].candidate_id].n_cells for i in left)
    closest = []
    for i in sorted(left, key=lambda i: -above[i])[:MAX_DISCARDS]:
        ranked = standing[candidates[i].candidate_id]
        closest.append(
            Discard(
                **fields_of(ranked, "candidate_id", "mean", "low", "high", "n_cells"),
                label=names[ranked.candidate_id],
                probability=float(above[i]),
            )
        )
    # With very many candidates, the posterior omits some: these wait as well.
    n_waiting = int((above[rules.n_elites :] >= bound).sum()) + len(standing) - len(above)
    return Discards(
        bound=bound,
        error=error,
        n_candidates=len(standing),
        n_left=len(left),
        n_waiting=n_waiting,
        n_elites=rules.n_elites,
        left_by_cells=tuple(sorted(counts.items())),
        closest=tuple(closest),
    )


def _above_leader(competitors: Competitors) -> np.ndarray:
    """Return the probabilities of beating the leader, in the order of ``ranking``, (n,)."""
    ranking = competitors.ranking
    above = np.ones(len(ranking))
    for start in range(1, len(ranking), CHUNK):
        rows = np.concatenate([ranking[:1], ranking[start : start + CHUNK]])
        posterior = competitors.posterior_at(competitors.genes[rows], competitors.rows[rows])
        above[start : start + CHUNK] = posterior.probability_above(0)[1:]
    return above


def explain(
    surrogate: SpaceModel,
    archive: Archive,
    recommendation: Recommendation,
    *,
    rng: np.random.Generator,
    names: Mapping[str, str],
    case_weights: Mapping[str, float] | None = None,
    rules: Rules | None = None,
    goals: FittedGoals | None = None,
) -> tuple[tuple[Effect, ...], Explanation]:
    """Return the effects of single parameters, and the rest of the explanation.

    Args:
        surrogate: Model behind the recommendation.
        archive: Evidence with at least one reward.
        recommendation: Recommendation from this evidence.
        rng: Generator for the sample of the space and the draws of the surface.
        names: Candidate → display name.
        case_weights: Search case → positive weight; missing cases have weight 1.
        rules: Rules of the race; ``None`` if the algorithm eliminates no candidate.
        goals: Goals besides the mean reward, fitted to the same archive, or ``None``.
    """
    fitted = surrogate.fit(archive, case_weights=case_weights)
    standing = {ranked.candidate_id: ranked for ranked in recommendation.ranking}
    ranking = tuple(standing)
    points = [archive.members[name].candidate.params for name in ranking]
    effects, surface = cut(fitted, points, rng) or ((), None)
    return effects, Explanation(
        surface=surface,
        discards=None
        if rules is None
        else discards(fitted, archive, standing, names=names, rules=rules, goals=goals),
    )
