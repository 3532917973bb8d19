"""``thompson`` and ``mab_evolution``: draws of the posterior decide who is asked, and how much.

For every place of a generation a joint draw over candidates asked before and a pool of new ones
says who gets it (``racing``). So the draws decide between searching and making sure, and a batch is
diverse because its draws are. ``thompson`` draws its pool uniformly from the space;
``mab_evolution`` breeds it: half from the best quarter, a quarter around the four best, a quarter
random.

Departures from plain Thompson sampling, each for a reason:

* A known candidate gets a few chunks of a generation at most, so a lucky draw decides little.
* The last share of the cells goes to known candidates only: best-arm identification rather than
  search. Without cases that share is small, and none where rewards hold no noise.
* ``exploration_rate`` of the places go to uniformly random newcomers, against a model that is wrong.
* Where there are hard constraints, or a front is sought, ``goals`` says what a draw is worth.
* Whoever is surely not the best leaves the race (``Rules.confidence_level``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from convergence_core.objective.goals import MEMORY_KEY as GOALS_KEY, Goals
from convergence_core.posterior.selection_bias import SelectionBias
from convergence_core.posterior.space_model import MEMORY_KEY, FittedSpaceModel, SpaceModel
from convergence_core.records import Json, Trial
from convergence_core.search.archive import Archive
from convergence_core.search.evolution import PoolBreeder
from convergence_core.search.racing import CellAllocation, Competitors, Rules
from convergence_core.search.racing.plan_builder import PlanBuilder, first_in, informative_chunk
from convergence_core.search.sampler import LEFT_TO_GAIN, SETTLED, AskRequest, Plan, SearchState
from convergence_core.search.samplers.search_update import generation_of, tell
from convergence_core.space import Space

N_STEPS = 8
"""Iterations of the optimizer of hyper-parameters after each generation but the first."""
N_DRAWS = 400
"""Draws behind what is left to gain."""


@dataclass(frozen=True, kw_only=True)
class ThompsonSampler:
    """Settings of both samplers; see the module."""

    name: str
    space: Space
    surrogate: SpaceModel
    rules: Rules = field(default_factory=Rules)
    races: bool = True
    """``False``: a newcomer is asked all its cells at once; to show what racing is worth."""
    exploration_rate: float = 0.0
    """Share of places for uniformly random newcomers, whatever the posterior says."""
    cases_per_candidate: int | None = None
    """Cases of one chunk; ``None``: see ``informative_chunk``."""
    case_weights: Mapping[str, float] = field(default_factory=dict)
    """Case → weight in the mean reward; absent ones weigh 1."""
    goals: Goals | None = None
    """What counts besides the mean reward; ``None``: nothing."""
    n_levels: int | None = 20
    """Steps that free numbers are snapped to where there are cases; ``None``: none."""

    def start(self) -> SearchState:
        """Return the state before any evidence."""
        return SearchState()

    def ask(self, state: SearchState, rng: np.random.Generator, request: AskRequest) -> Plan:
        """Plan a generation."""
        fitted = self.surrogate.warm(state.memory).fit(
            state.archive, case_ids=request.case_ids, case_weights=self.case_weights
        )
        if fitted.is_exact:
            request = replace(request, repeats=1, n_again=0)
        draft = PlanBuilder(self.space, state.archive, request, rng)
        if fitted.learned is None:
            draft.retry_missing()
            self._open(draft, rng)
            return draft.plan()
        chunk = self._chunk(request, fitted.cells_worth_the_prior)
        field = self._contested(state, fitted, request)
        self._share_out(draft, chunk, field.telling)
        race = CellAllocation(
            field=field,
            draft=draft,
            rng=rng,
            breeder=self._breeder(request),
            chunk=chunk,
            n_seats=_n_seats(request, chunk),
            n_places=request.n_cells // self._chunk(request),
        )
        race.run(self.exploration_rate)
        return draft.plan()

    def tell(self, state: SearchState, trials: Sequence[Trial]) -> SearchState:
        """Return the state with these trials, and with hyper-parameters that fit them."""
        told = tell(state, trials, self.goals)
        fitted = self.surrogate.warm(told.memory, n_steps=N_STEPS).fit(
            told.archive, case_weights=self.case_weights
        )
        if fitted.log_params is None:
            return told
        # A stream of its own, a function of the state: looking changes nothing drawn for plans.
        rng = np.random.default_rng([generation_of(told), len(told.archive)])  # noqa: TID251
        competitors = self._field(told.archive, fitted, told.memory, n_steps=N_STEPS)
        memory: dict[str, Json] = {
            **self._shown(state, fitted, told.archive).noted(told.memory, generation_of(state)),
            MEMORY_KEY: fitted.log_params.tolist(),
            LEFT_TO_GAIN: competitors.regret_upper_bound(
                self._free, rng, n_draws=N_DRAWS, level=SETTLED
            ),
        }
        if competitors.goals is not None:
            memory[GOALS_KEY] = competitors.goals.memory
        return SearchState(archive=told.archive, memory=memory)

    def _shown(self, state: SearchState, after: FittedSpaceModel, told: Archive) -> SelectionBias:
        """Return what a generation showed of those who led before it."""
        before = self.surrogate.warm(state.memory).fit(
            state.archive, case_ids=after.case_ids, case_weights=self.case_weights
        )
        return SelectionBias.shown(before, state.archive, after, told)

    def _contested(
        self, state: SearchState, fitted: FittedSpaceModel, request: AskRequest
    ) -> Competitors:
        """Return who competes in a generation: the last answer again, if it was asked of this fit."""
        last = self._last.get("field")
        if last is not None and last.fitted is fitted and last.archive is state.archive:
            return last
        found = replace(
            self._field(state.archive, fitted, state.memory, n_steps=0),
            exponent=self._exponent(state.archive, request),
        )
        if self.goals is None:  # they depend on more than the fit
            self._last["field"] = found
        return found

    @cached_property
    def _last(self) -> dict[str, Competitors]:
        return {}

    def _field(
        self,
        archive: Archive,
        fitted: FittedSpaceModel,
        memory: Mapping[str, Json],
        *,
        n_steps: int,
    ) -> Competitors:
        """Return who competes; surrogates of further goals begin where ``memory`` says."""
        encoding, goals = self.surrogate.encoding, None
        if self.goals is not None:
            goals = self.goals.fit(archive, encoding, memory=memory, start_steps=n_steps)
        return Competitors(self.rules, encoding, archive, fitted, goals)

    def _exponent(self, archive: Archive, request: AskRequest) -> float:
        """Return how much predicted costs count in this generation."""
        costs = None if self.goals is None else self.goals.costs
        if costs is None:
            return 0.0
        return costs.exponent(archive, request.generation, request.n_generations)

    def _chunk(self, request: AskRequest, worth_the_prior: float | None = None) -> int:
        n_cases = len(request.case_ids)
        affordable = min(n_cases, max(1, request.n_cells // request.n_candidates))
        wanted = self.cases_per_candidate or (
            informative_chunk(affordable, worth_the_prior) if self.races else affordable
        )
        return max(1, min(wanted, n_cases))

    def _share_out(
        self, draft: PlanBuilder, chunk: int, telling: Mapping[str, float] | None = None
    ) -> None:
        rules = self.rules
        draft.share_out(
            chunk,
            least_together=rules.least_together,
            large_from=rules.large_from,
            telling=telling,
            case_weights=self.case_weights,
        )

    def _breeder(self, request: AskRequest) -> PoolBreeder:
        return self._stepped if len(request.case_ids) > 1 else self._free

    @cached_property
    def _free(self) -> PoolBreeder:
        return PoolBreeder(encoding=self.surrogate.encoding)

    @cached_property
    def _stepped(self) -> PoolBreeder:
        return PoolBreeder(encoding=self.surrogate.encoding, levels=self.n_levels)

    def _open(self, draft: PlanBuilder, rng: np.random.Generator) -> None:
        """Ask the first generation: candidates spread over the space, a chunk each."""
        breeder = self._breeder(draft.request)
        chunk = self._chunk(draft.request)
        self._share_out(draft, chunk)
        n = min(_n_seats(draft.request, chunk), -(-draft.n_left // chunk))
        newcomers = first_in(self.space, draft.request, draft.archive)[:n]
        seen = {*draft.seen(), *(candidate.candidate_id for candidate in newcomers)}
        for pool in (breeder.design(n, rng), breeder.sample(4 * n, rng)):
            for row in range(len(pool)):
                if len(newcomers) >= n:
                    break
                candidate = breeder.candidate(pool, row, ())
                if candidate.candidate_id not in seen:
                    seen.add(candidate.candidate_id)
                    newcomers.append(candidate)
        n_rounds = -(-len(draft.request.case_ids) * draft.request.repeats // chunk)
        for _ in range(n_rounds):
            for candidate in newcomers:
                if not draft.n_left:
                    return
                draft.add(candidate, draft.open_cells(candidate.candidate_id)[:chunk])


def _n_seats(request: AskRequest, chunk: int) -> int:
    """Return how many candidates may be new: as many as the cells hold chunks.

    A population that is asked all its cases is spent on more candidates with fewer cases.
    """
    return max(request.n_candidates, request.n_cells // chunk)
