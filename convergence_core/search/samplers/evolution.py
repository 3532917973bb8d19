"""``evolution``: the search of version 0.1 on posterior means, kept as a baseline.

The population consists of the elites so far and the last generation's new candidates. Elites keep
their evidence without further cells. The other cells go to children by uniform crossover or
mutation of tournament winners. Ranks use posterior means, not lucky observations, and no cell is
evaluated twice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from convergence_core.posterior import SpaceModel
from convergence_core.records import Candidate, Trial
from convergence_core.search.evolution import Breeder, fresh
from convergence_core.search.goals import Goals
from convergence_core.search.racing.plan_builder import PlanBuilder
from convergence_core.search.sampler import AskRequest, Plan, SearchState
from convergence_core.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class _EqualShares:
    """Sampler that gives each candidate the same number of cells."""

    space: Space
    cases_per_candidate: int | None = None
    """Cases per candidate; ``None`` means all."""
    goals: Goals | None = None
    """Quantities tallied for the recommendation and the report; they do not change a plan."""

    def start(self) -> SearchState:
        """Return the state before any evidence."""
        return SearchState()

    def tell(self, state: SearchState, trials: Sequence[Trial]) -> SearchState:
        """Return the state with these trials."""
        return state.tell(trials, None if self.goals is None else self.goals.measures)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSampler(_EqualShares):
    """Uniform search; each candidate gets the same number of cells."""

    name: str = "random"

    def ask(self, state: SearchState, rng: np.random.Generator, request: AskRequest) -> Plan:
        """Plan new candidates, then open cells of known ones if the space has no more."""
        builder = PlanBuilder(self.space, state.archive, request, rng)
        builder.retry_missing()
        return equal_shares(
            builder,
            rng,
            self.cases_per_candidate,
            request.n_candidates,
            lambda seen, n: fresh(self.space, rng, seen, n),
        )


def equal_shares(
    builder: PlanBuilder,
    rng: np.random.Generator,
    cases_per_candidate: int | None,
    max_new: int,
    propose: Callable[[set[str], int], list[Candidate]],
) -> Plan:
    """Return a plan with the same cells for each new candidate, including all repeats.

    If no candidate fits completely, one gets part of its cells. If the space has no more
    candidates, open cells of known ones fill the rest, in random order.

    Args:
        builder: Plan builder, after cells to retry.
        rng: Random generator.
        cases_per_candidate: Cases per candidate; ``None`` means all.
        max_new: Maximum number of candidates.
        propose: Function from seen ids and n to up to n new candidates.
    """
    cases = builder.fresh_cases[:cases_per_candidate]
    keys = [(case, repeat) for repeat in range(builder.request.repeats) for case in cases]
    n = min(max_new, max(1, builder.n_left // len(keys))) if keys and builder.n_left else 0
    chosen = builder.priority_candidates()[:n]
    seen = {*builder.archive.members, *(candidate.candidate_id for candidate in chosen)}
    chosen += propose(seen, n - len(chosen))
    for candidate in chosen:
        builder.add(candidate, keys)
    if len(chosen) < n:
        members = list(builder.archive)
        for i in rng.permutation(len(members)):
            keys = builder.open_cells(members[i].candidate.candidate_id)
            builder.add(members[i].candidate, [k for k in keys if k not in members[i].missing])
    return builder.plan()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionSampler(_EqualShares):
    """Genetic search: elitism, tournaments, uniform crossover, mutation by parameter kind."""

    breeder: Breeder
    surrogate: SpaceModel
    elite_size: int = 2
    case_weights: Mapping[str, float] = field(default_factory=dict)
    """Case → weight in the mean reward; missing cases have weight 1."""
    name: str = "evolution"

    def ask(self, state: SearchState, rng: np.random.Generator, request: AskRequest) -> Plan:
        """Plan children, then open cells of known candidates if the space has no more."""
        builder = PlanBuilder(self.space, state.archive, request, rng)
        builder.retry_missing()
        population = self.population(state)
        elites = min(self.elite_size, len(population), request.n_candidates - 1)
        return equal_shares(
            builder,
            rng,
            self.cases_per_candidate,
            request.n_candidates - elites,
            lambda seen, n: self.breeder.brood(population, rng, seen, n),
        )

    def population(self, state: SearchState) -> list[Candidate]:
        """Return elites and the last generation's new candidates, best posterior mean first."""
        members = [member for member in state.archive if member.n]
        fitted = self.surrogate.fit(state.archive, case_weights=self.case_weights)
        mean = fitted.worth([member.candidate for member in members]).mean
        last = state.generation - 1
        return [
            members[i].candidate
            for rank, i in enumerate(np.argsort(-mean, kind="stable"))
            if rank < self.elite_size or members[i].generation == last
        ]
