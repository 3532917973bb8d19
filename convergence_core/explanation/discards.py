"""What was discarded and why: who left the race, by the rule that the race itself follows.

A candidate leaves when its probability of lying above the leader falls below a bound that is shared
out over all candidates (``racing.Competitors.elites``), so the error holds for all who left together.
Others wait: the race looks at the first few by posterior mean.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from convergence_core.explanation.records import Discard, Discards
from convergence_core.objective.goals import FittedGoals
from convergence_core.posterior import FittedSpaceModel
from convergence_core.search.archive import Archive
from convergence_core.search.racing import Competitors, Rules
from convergence_core.search.recommend import Ranked
from convergence_core.space import Space

MAX_DISCARDS = 20
"""Candidates told of those who left."""
CHUNK = 100
"""Candidates compared with the leader at once: the cost grows with the square."""


def discards(
    fitted: FittedSpaceModel,
    archive: Archive,
    standing: Mapping[str, Ranked],
    *,
    space: Space,
    rules: Rules,
    goals: FittedGoals | None = None,
) -> Discards | None:
    """Return who competes no more; ``None`` where no candidate has a reward, or a front is sought.

    Args:
        fitted: the surrogate with the evidence.
        archive: the evidence.
        standing: of each candidate with a reward, for means and intervals.
        space: for labels.
        rules: of the race.
        goals: what counts besides the mean reward, as the same archive tells it; ``None``: nothing.
    """
    field = Competitors(rules, fitted.model.encoding, archive, fitted, goals)
    if not field.members or (goals is not None and goals.objectives):
        return None
    above = _above_leader(field)
    error = 1.0 - rules.confidence_level
    bound = error / len(above)
    left = [i for i in range(len(above)) if above[i] < bound]
    closest = sorted(left, key=lambda i: -above[i])[:MAX_DISCARDS]
    ranking = [field.members[i] for i in field.ranking]
    counts = Counter(standing[ranking[i].candidate_id].n_cells for i in left)
    told = []
    for i in closest:
        candidate = ranking[i]
        ranked = standing[candidate.candidate_id]
        told.append(
            Discard(
                candidate_id=candidate.candidate_id,
                label=space.label(candidate.params),
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
        closest=tuple(told),
    )


def _above_leader(field: Competitors) -> np.ndarray:
    """Return the probabilities of lying above the leader, by ``field.ranking``, (n,)."""
    ranking = field.ranking
    above = np.ones(len(ranking))
    for start in range(1, len(ranking), CHUNK):
        rows = np.concatenate([ranking[:1], ranking[start : start + CHUNK]])
        beliefs = field.beliefs(field.genes[rows], field.rows[rows])
        above[start : start + CHUNK] = beliefs.probability_above(0)[1:]
    return above
