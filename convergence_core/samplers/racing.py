"""``thompson`` and ``mab_evolution``: draws of the posterior decide who is asked, and how much.

A generation is a row of places, each worth one chunk of cells. For every place one joint draw of
the posterior is taken (Thompson 1933; Chapelle & Li 2011, Alg. 1): if an unseen candidate of the
pool has the highest value, it is asked its first chunk; if a known one has, that one is asked a
further chunk. If everything is known already of the candidate that a draw favours, the place goes
to an unseen one while the generation has seats for newcomers, then to the next known one still in
the race; when nobody else could be the best, it asks nothing, so easy searches end under their
capacity.

``thompson`` draws its pool uniformly from the space. ``mab_evolution`` breeds it from the best,
three quarters from the best quarter and one from the elites, and its draws know that children
lean on their parents.

Departures from plain Thompson sampling, each for a reason: the pool is dealt out among the
places, since the maximum of hundreds of draws would drown every known candidate; a share of
newcomers is uniformly random (``exploration_rate``), against a model that is wrong; candidates
whose interval (``confidence_level``) lies below that of the best are out of the race; the last
fifth of the generations asks known candidates only, which is best-arm identification.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from convergence_core.evolution import Breeder, fresh
from convergence_core.posterior import CaseModel, Fitted, Surrogate
from convergence_core.records import Candidate, Trial
from convergence_core.sampler import AskRequest, Plan, SearchState
from convergence_core.samplers.learning import tell
from convergence_core.samplers.planning import Draft, default_chunk, first_in
from convergence_core.space import Space

Field: TypeAlias = tuple[Fitted, Sequence[Candidate]]
"""The posterior, and the unseen candidates that race against the known ones."""

END_GAME = 0.2
"""Share of the generations, the last ones, that ask known candidates only."""
_DEALT = 3
"""Unseen candidates that compete for one place."""
_FIRST_CHUNKS = 2
"""Chunks of a newcomer in the first generation, where no draw can tell candidates apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RacingSampler:
    """Settings of both samplers."""

    name: str
    space: Space
    breeder: Breeder | None = None
    """``None``: the pool is drawn uniformly from the space."""
    elite_size: int = 2
    """Best candidates around which a quarter of the pool is bred."""
    exploration_rate: float = 0.1
    """Share of newcomers that are uniformly random, whatever the posterior says."""
    confidence_level: float = 0.95
    """Level of the intervals by which candidates leave the race."""
    cases_per_candidate: int | None = None
    """Cases of one chunk; ``None``: see ``default_chunk``."""
    pool_size: int = 500
    """Children bred for one generation at most."""
    draws: bool = True
    """``False``: places are filled at random; only to show what the draws are worth."""
    surrogate: Surrogate = field(default_factory=CaseModel)
    """What is believed of candidates; one that knows the space can take its place."""
    case_weights: Mapping[str, float] = field(default_factory=dict)
    """Case → weight in the mean reward; absent ones weigh 1."""

    def start(self) -> SearchState:
        """Return the state before any evidence."""
        return SearchState()

    def ask(self, state: SearchState, rng: np.random.Generator, request: AskRequest) -> Plan:
        """Plan a generation."""
        draft = Draft(self.space, state.archive, request, rng)
        chunk = self._chunk(request)
        draft.pair_with(chunk)
        if not len(state.archive):
            self._open(draft, rng, chunk)
            return draft.plan()
        posterior = self.surrogate.fit(
            state.archive, case_ids=request.case_ids, case_weights=self.case_weights
        )
        if _is_end_game(request):
            self._race(draft, rng, chunk, (posterior, ()))
            if draft.n_left < request.n_cells:
                return draft.plan()
        for candidate in first_in(self.space, request, state.archive)[: request.n_candidates]:
            draft.add(candidate, draft.open_cells(candidate.candidate_id)[:chunk])
        self._explore(draft, rng, chunk)
        pool = self._pool(draft, rng, chunk, posterior)
        self._race(draft, rng, chunk, (posterior, pool))
        if draft.n_left == request.n_cells:
            self._fill(draft, chunk, posterior)
        return draft.plan()

    def tell(self, state: SearchState, trials: Sequence[Trial]) -> SearchState:
        """Return the state with these trials."""
        return tell(state, trials)

    def _chunk(self, request: AskRequest) -> int:
        n_cases = len(request.case_ids)
        return min(self.cases_per_candidate or default_chunk(n_cases), n_cases)

    def _open(self, draft: Draft, rng: np.random.Generator, chunk: int) -> None:
        """Ask the first generation: all newcomers one chunk, then all a second one."""
        request = draft.request
        seats = min(request.n_candidates, max(1, request.n_cells // max(1, chunk)))
        newcomers = first_in(self.space, request, draft.archive)[:seats]
        seen = {candidate.candidate_id for candidate in newcomers}
        newcomers += fresh(self.space, rng, seen, seats - len(newcomers))
        for _ in range(_FIRST_CHUNKS):
            for candidate in newcomers:
                draft.add(candidate, draft.open_cells(candidate.candidate_id)[:chunk])

    def _explore(self, draft: Draft, rng: np.random.Generator, chunk: int) -> None:
        """Ask uniformly random newcomers: ``exploration_rate`` of the seats, in expectation."""
        seats = self._seats(draft, chunk) * self.exploration_rate
        n = int(seats) + int(rng.random() < seats - int(seats))
        for candidate in fresh(self.space, rng, draft.seen(), n):
            draft.add(candidate, draft.open_cells(candidate.candidate_id)[:chunk])

    def _seats(self, draft: Draft, chunk: int) -> int:
        """Return how many more newcomers the plan can hold."""
        return min(draft.request.n_candidates - draft.n_new, -(-draft.n_left // max(1, chunk)))

    def _pool(
        self, draft: Draft, rng: np.random.Generator, chunk: int, posterior: Fitted
    ) -> list[Candidate]:
        """Return unseen candidates in random order, all different: as many as can compete."""
        if self._seats(draft, chunk) <= 0:
            return []
        n = min(self.pool_size, _DEALT * -(-draft.n_left // chunk))
        seen = draft.seen()
        members = [member for member in draft.archive if member.n]
        if self.breeder is None or not members:
            return fresh(self.space, rng, seen, min(n, draft.request.n_candidates))
        joint = posterior.posterior([member.candidate for member in members])
        ranked = [members[i].candidate for i in np.argsort(-joint.mean, kind="stable")]
        parents = ranked[: max(2, self.elite_size, len(ranked) // 4)]
        n_around_elites = n // 4 if self.elite_size else 0
        pool = self.breeder.brood(parents, rng, seen, n - n_around_elites)
        seen |= {candidate.candidate_id for candidate in pool}
        pool += self.breeder.brood(ranked[: self.elite_size], rng, seen, n_around_elites)
        return [pool[i] for i in rng.permutation(len(pool))]

    def _race(self, draft: Draft, rng: np.random.Generator, chunk: int, field_: Field) -> None:
        """Fill places by draws; see the module."""
        if draft.n_left == 0:
            return
        posterior, pool = field_
        known = self._in_race(draft, posterior)
        everyone = [*known, *pool]
        joint = posterior.posterior(everyone)
        n_places = -(-draft.n_left // chunk)
        values = joint.draws(rng, n_places)
        if not self.draws:
            values = rng.random(values.shape)
        n_blocks = max(1, min(n_places, self._seats(draft, chunk)))
        n_blocks = max(n_blocks, len(pool) // _DEALT)
        blocks = np.array_split(np.arange(len(known), len(known) + len(pool)), n_blocks)
        for place in range(n_places):
            block = blocks[place] if place < n_blocks else blocks[0][:0]
            if draft.n_new >= draft.request.n_candidates:
                block = block[:0]
            choices = np.concatenate([np.arange(len(known)), block]).astype(int)
            ranked = choices[np.argsort(-values[place, choices], kind="stable")]
            best = int(ranked[0])
            if best < len(known) and not draft.open_cells(known[best].candidate_id):
                # Nothing is left to ask of the favourite: search on rather than look again.
                ranked = np.concatenate(
                    [ranked[ranked >= len(known)], ranked[ranked < len(known)]]
                )
            self._take(draft, chunk, [everyone[i] for i in ranked])

    def _take(self, draft: Draft, chunk: int, ranked: Sequence[Candidate]) -> None:
        """Give the place to the first candidate that has open cells."""
        for candidate in ranked:
            if draft.add(candidate, draft.open_cells(candidate.candidate_id)[:chunk]):
                return

    def _in_race(self, draft: Draft, posterior: Fitted) -> list[Candidate]:
        """Return known candidates whose interval reaches that of the best."""
        candidates = [member.candidate for member in draft.archive]
        joint = posterior.posterior(candidates)
        lower, upper = joint.interval(self.confidence_level)
        floor = lower[int(np.argmax(joint.mean))]
        return [c for c, bound in zip(candidates, upper, strict=True) if bound >= floor]

    def _fill(self, draft: Draft, chunk: int, posterior: Fitted) -> None:
        """Ask those who left the race, when there is nobody else to ask anything of."""
        candidates = [member.candidate for member in draft.archive]
        joint = posterior.posterior(candidates)
        for i in np.argsort(-joint.mean, kind="stable"):
            name = candidates[i].candidate_id
            draft.add(candidates[i], draft.open_cells(name)[:chunk])


def _is_end_game(request: AskRequest) -> bool:
    n_last = round(END_GAME * request.n_generations)
    if request.n_generations >= 3:
        n_last = max(1, n_last)
    return request.generation >= request.n_generations - n_last
