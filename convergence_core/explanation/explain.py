"""Explanation of a run's choice, from its evidence alone.

A candidate is eliminated when its probability of lying above the leader falls below a bound that is
shared out over all candidates (``racing.Competitors.elites``), so the error holds for all of them
together. Others wait: the race considers the first few by posterior mean.
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
"""Eliminated candidates that are listed."""
CHUNK = 100
"""Candidates compared with the leader at once: the cost grows with the square."""


def discards(
    fitted: FittedSpaceModel,
    archive: Archive,
    standing: Mapping[str, Ranked],
    *,
    names: Mapping[str, str],
    rules: Rules,
    goals: FittedGoals | None = None,
) -> Discards | None:
    """Return the eliminated candidates; ``None`` if none has a reward, or a front is sought.

    Args:
        fitted: the surrogate with the evidence.
        archive: the evidence.
        standing: of each candidate with a reward, for means and intervals.
        names: candidate → name for people.
        rules: of the race.
        goals: what counts besides the mean reward, fitted to the same archive; ``None``: nothing.
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
    # Of very many candidates the posterior is not trained on all: the others wait too.
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
    """Return the probabilities of lying above the leader, by ``ranking``, (n,)."""
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
    """Return the effects of single parameters on a recommendation, and the rest of its explanation.

    Args:
        surrogate: the model that made it.
        archive: the evidence; at least one candidate has a reward.
        recommendation: of this evidence.
        rng: for the sample of the space and the draws of the surface.
        names: candidate → name for people.
        case_weights: search case → positive weight; absent ones weigh 1.
        rules: of the race; ``None`` if the algorithm eliminates no candidate.
        goals: what counts besides the mean reward, fitted to the same archive; ``None``: nothing.
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
