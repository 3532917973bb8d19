"""``evolution``: version 0.1's search, kept as a baseline, on posterior means.

The population of a generation is the elites of all earlier ones and the new candidates of the last.
Elites stay with their evidence without being asked again; the rest goes to children by uniform
crossover or mutation of parents that won a tournament. Ranks are those of posterior means, not of
lucky observations, and no candidate is ever evaluated twice.
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
    """Cases of each candidate; ``None`` means all."""
    goals: Goals | None = None
    """What is tallied for the recommendation and the report; it changes no plan."""

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
        """Plan new candidates; when the space holds no more, open cells of known ones."""
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
    """Return a plan of new candidates with the same cells each, all repeats included.

    One is asked in part rather than none at all; when the space holds no more, the rest goes to
    open cells of known candidates, in random order.

    Args:
        builder: with retried cells.
        rng: source of chance.
        cases_per_candidate: ``None`` means all.
        max_new: candidates at most.
        propose: from the ids seen and a number, returns up to so many new candidates.
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
    """Elitism, tournament, uniform crossover, mutation by kind of parameter."""

    breeder: Breeder
    surrogate: SpaceModel
    elite_size: int = 2
    case_weights: Mapping[str, float] = field(default_factory=dict)
    """Case → weight in the mean reward; absent ones weigh 1."""
    name: str = "evolution"

    def ask(self, state: SearchState, rng: np.random.Generator, request: AskRequest) -> Plan:
        """Plan the children; when the space holds no more, open cells of known candidates."""
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
