"""``evolution``: version 0.1's search, kept as a baseline, on honest estimates.

The population of a generation is the elites of all earlier ones and the newcomers of the last.
Elites keep their seats and their evidence without being asked again; the other seats go to
children by uniform crossover or mutation of parents that won a tournament. Ranks are those of
posterior means, not of lucky observations, and no candidate is ever evaluated twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from convergence_core.objective.goals import Goals
from convergence_core.posterior import Surrogate
from convergence_core.records import Candidate, Trial
from convergence_core.search.evolution import Breeder
from convergence_core.search.racing.plan_builder import PlanBuilder, first_in
from convergence_core.search.sampler import AskRequest, Plan, SearchState
from convergence_core.search.samplers.search_update import generation_of, tell
from convergence_core.search.samplers.uniform import n_newcomers, seat, top_up
from convergence_core.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionSampler:
    """Elitism, tournament, uniform crossover, mutation by type of parameter."""

    space: Space
    breeder: Breeder
    surrogate: Surrogate
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
        draft = PlanBuilder(self.space, state.archive, request, rng)
        draft.retry_missing()
        population = self.population(state)
        elites = min(self.elite_size, len(population), request.n_candidates - 1)
        seats = min(n_newcomers(draft, self.cases_per_candidate), request.n_candidates - elites)
        newcomers = first_in(self.space, request, state.archive)[:seats]
        seen = {*state.archive.members, *(c.candidate_id for c in newcomers)}
        newcomers += self.breeder.brood(population, rng, seen, seats - len(newcomers))
        seat(draft, newcomers, self.cases_per_candidate)
        if len(newcomers) < seats:
            top_up(draft, [member.candidate for member in state.archive], rng)
        return draft.plan()

    def tell(self, state: SearchState, trials: Sequence[Trial]) -> SearchState:
        """Return the state with these trials."""
        return tell(state, trials, self.goals)

    def population(self, state: SearchState) -> list[Candidate]:
        """Return elites and the last generation's newcomers, best posterior mean first."""
        members = [member for member in state.archive if member.n]
        posterior = self.surrogate.fit(state.archive, case_weights=self.case_weights)
        joint = posterior.posterior([member.candidate for member in members])
        order = np.argsort(-joint.mean, kind="stable")
        last = generation_of(state) - 1
        return [
            members[i].candidate
            for rank, i in enumerate(order)
            if rank < self.elite_size or members[i].generation == last
        ]
