"""``evolution``: version 0.1's search, kept as a baseline, on posterior means.

The population of a generation is the elites of all earlier ones and the new candidates of the last.
Elites stay with their evidence without being asked again; the rest goes to children by uniform
crossover or mutation of parents that won a tournament. Ranks are those of posterior means, not of
lucky observations, and no candidate is ever evaluated twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from convergence_core.posterior import SpaceModel
from convergence_core.records import Candidate, Trial
from convergence_core.search.evolution import Breeder
from convergence_core.search.goals import Goals
from convergence_core.search.racing.plan_builder import PlanBuilder
from convergence_core.search.sampler import AskRequest, Plan, SearchState
from convergence_core.search.samplers.uniform import equal_shares
from convergence_core.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionSampler:
    """Elitism, tournament, uniform crossover, mutation by kind of parameter."""

    space: Space
    breeder: Breeder
    surrogate: SpaceModel
    elite_size: int = 2
    cases_per_candidate: int | None = None
    """Cases of each candidate; ``None``: all."""
    case_weights: Mapping[str, float] = field(default_factory=dict)
    """Case → weight in the mean reward; absent ones weigh 1."""
    goals: Goals | None = None
    """What is tallied for the recommendation and the report; it changes no plan."""
    name: str = "evolution"

    def start(self) -> SearchState:
        """Return the state before any evidence."""
        return SearchState()

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

    def tell(self, state: SearchState, trials: Sequence[Trial]) -> SearchState:
        """Return the state with these trials."""
        return state.tell(trials, None if self.goals is None else self.goals.measures)

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
