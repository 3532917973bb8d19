"""Eliminated candidates, by the rule that the race itself follows.

A candidate is eliminated when its probability of lying above the leader falls below a bound that is
shared out over all candidates (``racing.Competitors.elites``), so the error holds for all of them
together. Others wait: the race considers the first few by posterior mean.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from convergence_core.evidence.archive import Archive
from convergence_core.explanation.records import Discard, Discards
from convergence_core.posterior import FittedSpaceModel
from convergence_core.search.goals import FittedGoals
from convergence_core.search.racing import Competitors, Rules
from convergence_core.search.recommend import Ranked

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
    """Return the eliminated candidates; ``None``: none has a reward, or a front is sought.

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
                candidate_id=ranked.candidate_id,
                label=names[ranked.candidate_id],
                mean=ranked.mean,
                low=ranked.low,
                high=ranked.high,
                n_cells=ranked.n_cells,
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
