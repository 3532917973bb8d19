"""``random``: every generation draws its candidates uniformly from the space."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.objective.goals import Goals
from convergence_core.records import Candidate, Trial
from convergence_core.search.evolution import fresh
from convergence_core.search.racing.plan_builder import CellKey, PlanBuilder, first_in
from convergence_core.search.sampler import AskRequest, Plan, SearchState
from convergence_core.search.samplers.search_update import tell
from convergence_core.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSampler:
    """Uniform search; each candidate gets the same number of cells."""

    space: Space
    cases_per_candidate: int | None = None
    """Cases of each candidate; ``None``: all."""
    goals: Goals | None = None
    """What is tallied for the recommendation and the report; it changes no plan."""
    name: str = "random"

    def start(self) -> SearchState:
        """Return the state before any evidence."""
        return SearchState()

    def ask(self, state: SearchState, rng: np.random.Generator, request: AskRequest) -> Plan:
        """Plan newcomers; when the space holds no more, the open cells of known candidates."""
        draft = PlanBuilder(self.space, state.archive, request, rng)
        draft.retry_missing()
        seats = n_newcomers(draft, self.cases_per_candidate)
        newcomers = first_in(self.space, request, state.archive)[:seats]
        seen = {*state.archive.members, *(c.candidate_id for c in newcomers)}
        newcomers += fresh(self.space, rng, seen, seats - len(newcomers))
        seat(draft, newcomers, self.cases_per_candidate)
        if len(newcomers) < seats:
            top_up(draft, [member.candidate for member in state.archive], rng)
        return draft.plan()

    def tell(self, state: SearchState, trials: Sequence[Trial]) -> SearchState:
        """Return the state with these trials."""
        return tell(state, trials, self.goals)


def cells_of_newcomer(draft: PlanBuilder, cases_per_candidate: int | None) -> list[CellKey]:
    """Return the cells each newcomer gets: the same cases for all, with all repeats."""
    cases = draft.fresh_cases[:cases_per_candidate]
    return [(case, repeat) for repeat in range(draft.request.repeats) for case in cases]


def n_newcomers(draft: PlanBuilder, cases_per_candidate: int | None) -> int:
    """Return how many newcomers fit; one is asked in part rather than none at all."""
    n_cells = len(cells_of_newcomer(draft, cases_per_candidate))
    if not n_cells or not draft.n_left:
        return 0
    return min(draft.request.n_candidates, max(1, draft.n_left // n_cells))


def seat(
    draft: PlanBuilder, newcomers: Sequence[Candidate], cases_per_candidate: int | None
) -> None:
    """Plan the newcomers' cells."""
    keys = cells_of_newcomer(draft, cases_per_candidate)
    for candidate in newcomers:
        draft.add(candidate, keys)


def top_up(draft: PlanBuilder, candidates: Sequence[Candidate], rng: np.random.Generator) -> None:
    """Spend what is left on open cells of known candidates, in random order."""
    for i in rng.permutation(len(candidates)):
        name = candidates[i].candidate_id
        member = draft.archive.members[name]
        draft.add(
            candidates[i], [key for key in draft.open_cells(name) if key not in member.missing]
        )
