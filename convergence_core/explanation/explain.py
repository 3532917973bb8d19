"""Explanation of a run's choice, from its evidence alone."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from convergence_core.evidence.archive import Archive
from convergence_core.explanation.discards import discards
from convergence_core.explanation.effects import cut
from convergence_core.explanation.records import Effect, Explanation
from convergence_core.posterior import SpaceModel
from convergence_core.search.goals import FittedGoals
from convergence_core.search.racing import Rules
from convergence_core.search.recommend import Recommendation


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Effects of single parameters, and the rest of the explanation."""

    effects: tuple[Effect, ...]
    explanation: Explanation


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
) -> Explained:
    """Explain a recommendation.

    Args:
        surrogate: the model that made it.
        archive: the evidence; at least one candidate has a reward.
        recommendation: of this evidence.
        rng: for the sample of the space and the draws of the surface.
        names: candidate → name for people.
        case_weights: search case → positive weight; absent ones weigh 1.
        rules: of the race; ``None``: the algorithm eliminates no candidate.
        goals: what counts besides the mean reward, fitted to the same archive; ``None``: nothing.
    """
    fitted = surrogate.fit(archive, case_weights=case_weights)
    standing = {ranked.candidate_id: ranked for ranked in recommendation.ranking}
    ranking = tuple(standing)
    found = cut(fitted, [archive.members[name].candidate.params for name in ranking], rng)
    return Explained(
        effects=() if found is None else found.effects,
        explanation=Explanation(
            surface=None if found is None else found.surface,
            discards=None
            if rules is None
            else discards(fitted, archive, standing, names=names, rules=rules, goals=goals),
        ),
    )
