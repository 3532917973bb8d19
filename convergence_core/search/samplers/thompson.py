"""``thompson``, ``mab_evolution``: posterior draws choose candidates and cells.

Each slot of a generation goes to the highest of a joint draw over known candidates and a pool of
new ones (``racing``). So draws decide between search and confirmation, and a batch is as diverse
as its draws. ``thompson`` draws its pool uniformly from the space. ``mab_evolution`` breeds it:
half from the best quarter, a quarter around the four best, a quarter random.

Departures from plain Thompson sampling, with reasons:

* A known candidate gets a few chunks of a generation at most, so a lucky draw decides little.
* The last share of the cells goes to known candidates only: best-arm identification rather than
  search. With one case that share is small, and 0 if rewards have no noise.
* ``exploration_rate`` of the slots goes to uniformly random candidates, in case the model is
  wrong.
* With hard constraints or a front, ``goals`` determine the value of a draw.
* Candidates almost certainly worse than the leader are eliminated (``Rules.confidence_level``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from convergence_core.evidence import Archive
from convergence_core.posterior.selection_bias import SelectionBias
from convergence_core.posterior.space_model import MEMORY_KEY, FittedSpaceModel, SpaceModel
from convergence_core.records import Json, Trial
from convergence_core.search.evolution import PoolBreeder
from convergence_core.search.goals import MEMORY_KEY as GOALS_KEY, Goals
from convergence_core.search.racing import CellAllocation, Competitors, Rules
from convergence_core.search.racing.plan_builder import PlanBuilder, informative_chunk
from convergence_core.search.sampler import REGRET_KEY, SETTLED, AskRequest, Plan, SearchState
from convergence_core.space import Space

N_STEPS = 8
"""Hyper-parameter optimizer iterations after each generation except the first."""
GROWTH = 1.1
"""Growth factor of the number of rewards that triggers the next optimization."""
LEARNED_KEY = "n_learned"
"""Key of the number of rewards at the last optimization, in a sampler's memory."""
N_DRAWS = 400
"""Draws behind ``SearchState.regret_upper_bound``."""


@dataclass(frozen=True, kw_only=True)
class ThompsonSampler:
    """Settings of both samplers; see the module."""

    name: str
    space: Space
    surrogate: SpaceModel
    rules: Rules = field(default_factory=Rules)
    exploration_rate: float = 0.0
    """Share of slots for uniformly random new candidates, independent of the posterior."""
    cases_per_candidate: int | None = None
    """Cases per chunk; ``None`` means ``informative_chunk``."""
    case_weights: Mapping[str, float] = field(default_factory=dict)
    """Case → weight in the mean reward; missing cases have weight 1."""
    goals: Goals | None = None
    """Goals besides the mean reward; ``None`` if there are none."""
    n_levels: int | None = 20
    """Initial grid steps of free numbers with several cases; ``None`` means no grid. Steps halve
    as evidence grows (``Competitors.levels``), and if the grid has too few new candidates."""

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
        builder = PlanBuilder(self.space, state.archive, request, rng)
        if fitted.learned is None:
            builder.retry_missing()
            self._open(builder, rng)
            return builder.plan()
        chunk = self.chunk(request, fitted.cells_worth_the_prior)
        competitors = self._competing(state, fitted)
        self._group_cases(builder, chunk)
        CellAllocation(
            competitors=competitors,
            builder=builder,
            rng=rng,
            breeder=self._breeder(request, competitors),
            chunk=chunk,
            max_new=_max_new(request, chunk),
            n_slots=request.n_cells // self.chunk(request),
        ).fill(self.exploration_rate)
        return builder.plan()

    def tell(self, state: SearchState, trials: Sequence[Trial]) -> SearchState:
        """Return the state with these trials and with hyper-parameters that fit them."""
        updated = state.tell(trials, None if self.goals is None else self.goals.measures)
        n_rewards = sum(member.n for member in updated.archive)
        n_learned = updated.memory.get(LEARNED_KEY)
        is_due = not isinstance(n_learned, int) or n_rewards >= GROWTH * n_learned
        n_steps = N_STEPS if is_due else 0
        fitted = self.surrogate.warm(updated.memory, n_steps=n_steps).fit(
            updated.archive, case_weights=self.case_weights
        )
        if fitted.log_params is None:
            return updated
        # A separate stream, derived from the state: computing the bound changes no draw of a plan.
        rng = np.random.default_rng([updated.generation, len(updated.archive)])  # noqa: TID251
        competitors = self.competitors(updated.archive, fitted, updated.memory, n_steps=n_steps)
        bias = self._selection_bias(state, fitted, updated.archive)
        memory: dict[str, Json] = {
            **bias.noted(updated.memory, state.generation),
            MEMORY_KEY: fitted.log_params.tolist(),
            LEARNED_KEY: n_rewards if is_due else n_learned,
            REGRET_KEY: competitors.regret_upper_bound(
                self._free, rng, n_draws=N_DRAWS, level=SETTLED
            ),
        }
        if competitors.goals is not None:
            memory[GOALS_KEY] = competitors.goals.memory
        return SearchState(archive=updated.archive, memory=memory)

    # -- parts that benchmarks replace

    def competitors(
        self,
        archive: Archive,
        fitted: FittedSpaceModel,
        memory: Mapping[str, Json],
        *,
        n_steps: int,
    ) -> Competitors:
        """Return the competitors; surrogates of other goals start from ``memory``."""
        encoding, goals = self.surrogate.encoding, None
        if self.goals is not None:
            goals = self.goals.fit(archive, encoding, memory=memory, start_steps=n_steps)
        return Competitors(self.rules, encoding, archive, fitted, goals)

    def chunk(self, request: AskRequest, worth_the_prior: float | None = None) -> int:
        """Return the cases per slot; see ``informative_chunk``."""
        n_cases = len(request.case_ids)
        affordable = min(n_cases, max(1, request.n_cells // request.n_candidates))
        wanted = self.cases_per_candidate or informative_chunk(affordable, worth_the_prior)
        return max(1, min(wanted, n_cases))

    # -- planning --------------------------------------------------------------------------------

    def _selection_bias(
        self, state: SearchState, after: FittedSpaceModel, archive: Archive
    ) -> SelectionBias:
        """Return the selection bias of the earlier leaders that a generation revealed."""
        before = self.surrogate.warm(state.memory).fit(
            state.archive, case_ids=after.case_ids, case_weights=self.case_weights
        )
        return SelectionBias.of_generation(before, state.archive, after, archive)

    def _competing(self, state: SearchState, fitted: FittedSpaceModel) -> Competitors:
        """Return the competitors of a generation, reused if they belong to this fit."""
        last = self._last.get("competitors")
        if last is not None and last.fitted is fitted and last.archive is state.archive:
            return last
        competitors = self.competitors(state.archive, fitted, state.memory, n_steps=0)
        if self.goals is None:  # goals add dependencies beyond the fit
            self._last["competitors"] = competitors
        return competitors

    @cached_property
    def _last(self) -> dict[str, Competitors]:
        return {}

    def _group_cases(self, builder: PlanBuilder, chunk: int) -> None:
        rules = self.rules
        builder.group_cases(
            chunk, least_together=rules.least_together, groups_from=rules.groups_from
        )

    def _breeder(self, request: AskRequest, competitors: Competitors | None = None) -> PoolBreeder:
        """Return the breeder of a generation; without competitors, that of the first."""
        encoding, n = self.surrogate.encoding, self.n_levels
        if n is None or len(request.case_ids) < 2 or not encoding.free_columns:
            return self._free
        if competitors is not None:
            return replace(self._free, levels=competitors.levels(n))
        names = [encoding.names[j] for j in encoding.free_columns]
        return replace(self._free, levels=dict.fromkeys(names, n))

    @cached_property
    def _free(self) -> PoolBreeder:
        return PoolBreeder(encoding=self.surrogate.encoding)

    def _open(self, builder: PlanBuilder, rng: np.random.Generator) -> None:
        """Plan the first generation: candidates spread over the space, one chunk each."""
        request = builder.request
        breeder, chunk = self._breeder(request), self.chunk(request)
        self._group_cases(builder, chunk)
        n = min(_max_new(request, chunk), -(-builder.n_left // chunk))
        chosen = builder.priority_candidates()[:n]
        builder.n_advisable = (n - len(chosen)) // 2
        known = {candidate.candidate_id for candidate in chosen}
        offered = builder.proposed_candidates(request.advice.proposals)
        proposed = [c for c in offered if c.candidate_id not in known]
        chosen += proposed[: builder.n_advisable]
        seen = {*builder.seen(), *(candidate.candidate_id for candidate in chosen)}
        pools = [breeder.design(n, rng), breeder.sample(4 * n, rng)]
        while pools:
            pool = pools.pop(0)
            for row in range(len(pool)):
                if len(chosen) >= n:
                    break
                candidate = breeder.candidate(pool, row, ())
                if candidate.candidate_id not in seen:
                    seen.add(candidate.candidate_id)
                    chosen.append(candidate)
            if not pools and len(chosen) < n and (finer := breeder.finer) is not None:
                breeder = finer
                pools.append(breeder.sample(4 * n, rng))
        n_rounds = -(-len(request.case_ids) * request.repeats // chunk)
        for _ in range(n_rounds):
            for candidate in chosen:
                if not builder.n_left:
                    return
                builder.add(candidate, builder.open_cells(candidate.candidate_id)[:chunk])


def _max_new(request: AskRequest, chunk: int) -> int:
    """Return the maximum number of new candidates: the number of chunks in the cells.

    It may exceed the population: more candidates then get fewer cases each.
    """
    return max(request.n_candidates, request.n_cells // chunk)
