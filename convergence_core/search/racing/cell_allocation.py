"""One generation's cells: first to those whom draws favour, at the end to those worth making sure of.

A generation is a row of places, each worth one chunk of cells. For every place one joint draw of
the posterior is taken over known candidates and a pool of new ones (Thompson 1933; Chapelle & Li
2011, Alg. 1); whoever is highest gets the place: a new candidate its first chunk, a known one a
further chunk.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from convergence_core.records import Candidate
from convergence_core.search.evolution import Pool, PoolBreeder
from convergence_core.search.racing.competitors import Competitors, PosteriorDraws
from convergence_core.search.racing.expert_mixture import ExpertMixture
from convergence_core.search.racing.plan_builder import PlanBuilder, first_in

MIN_FINALISTS = 2
"""Known candidates that the last generation of the end game compares at least."""
N_CONTENDERS = 100
"""Known candidates among whom finalists are chosen."""
N_DRAWS = 1_000
"""Joint draws that choose them."""
PROBED_PART = 5
"""Of so many cells of a generation one may be asked of a leader again, to tell the noise."""
FINALIST_RATIO = 3
"""Finalists of one generation for each of the next, at most."""


@dataclass(slots=True, kw_only=True)
class CellAllocation:
    """Fills a draft; used within one ``ask`` and never kept."""

    field: Competitors
    draft: PlanBuilder
    rng: np.random.Generator
    breeder: PoolBreeder
    chunk: int
    """Cells of one place."""
    n_seats: int
    """Candidates that may be new."""
    n_places: int
    """Places of the generation, were all of the least chunk."""

    def run(self, exploration_rate: float) -> None:
        """Fill all places.

        Args:
            exploration_rate: share of places for uniformly random newcomers.
        """
        draft = self.draft
        draft.retry_missing()
        self._probe()
        n_last = round(self._end_part() * draft.n_left)
        for candidate in first_in(draft.space, draft.request, draft.archive):
            self._ask(candidate)
        self._explore(draft.n_left - n_last, exploration_rate)
        self._search(draft.n_left - n_last)
        self._make_sure(draft.n_left)
        self._search(draft.n_left)

    def _end_part(self) -> float:
        """Return which part of this generation belongs to the end game."""
        rules, request, learned = self.field.rules, self.draft.request, self.field.fitted.learned
        if self.field.goals is not None and self.field.goals.objectives:
            share = 0.0  # a front has no single best to make sure of; draws ask its members again
        elif len(request.case_ids) > 1:
            share = rules.end_share
        elif self.field.fitted.is_exact or (
            learned is not None and learned.process.noise < rules.min_noise
        ):
            share = 0.0
        else:
            share = rules.end_share_without_cases
        begins = request.n_generations - self._n_last(share)
        return min(1.0, max(0.0, request.generation + 1 - begins))

    def _n_last(self, share: float) -> float:
        """Return how many generations the end game has, if it has this share of them."""
        n_last = self.draft.request.n_generations * share
        if self._narrows and n_last > 1.0:
            return math.floor(n_last + 0.5)  # finalists are chosen between generations
        return n_last

    def _probe(self) -> None:
        """Ask leaders again where nothing else tells noise from merit; a fifth of the cells at most."""
        draft, field, learned = self.draft, self.field, self.field.fitted.learned
        if learned is None or len(draft.request.case_ids) > 1:
            return
        if field.goals is not None and field.goals.objectives:
            return  # the metrics' own surrogates read no repeats
        n_wanted = field.rules.n_probes - learned.evidence.repeat_dof
        for i in field.ranking[: max(0, min(n_wanted, draft.n_left // PROBED_PART))]:
            candidate = field.members[i]
            draft.add(candidate, draft.open_cells(candidate.candidate_id, again=True)[:1])

    # -- searching -----------------------------------------------------------------------------

    def _explore(self, n_cells: int, rate: float) -> None:
        seats = max(0, n_cells) * rate / self.chunk
        n = int(seats) + int(self.rng.random() < seats - int(seats))
        if not n:
            return
        pool = self.breeder.sample(n, self.rng)
        for row in range(len(pool)):
            self._ask(self.breeder.candidate(pool, row, ()))

    def _search(self, n_cells: int) -> None:
        """Spend so many cells by draws over elites and the pool."""
        if n_cells <= 0:
            return
        field, rules = self.field, self.field.rules
        stop = self.draft.n_left - n_cells
        contest = field.contest(self.breeder, self.rng, -(-n_cells // self.chunk))
        elites, values = field.elites, contest.values
        advice = self.draft.request.advice
        panel = ExpertMixture.of(advice.experts, field, self.rng)
        n_reserved = -(-len(values) // 2) if advice.reserves else len(values) * (panel is None)
        if panel is not None:
            values = panel.values(values, n_reserved, elites, contest.pool.genes)
        has_cases = len(self.draft.request.case_ids) > 1
        most_wins = rules.max_chunks if has_cases else rules.max_repeats
        n_wins = np.zeros(values.shape[1], dtype=np.intp)
        for place, value in enumerate(values):
            self.draft.is_touched |= place >= n_reserved
            for i in np.argsort(-value, kind="stable"):
                if value[i] == -np.inf:  # only experts may choose it
                    break
                if n_wins[i] >= (most_wins if i < len(elites) else 1):
                    continue
                n_wins[i] += 1
                if self._ask(self._competitor(int(i), elites, contest, panel)):
                    break
            if self.draft.n_left <= stop:
                return

    def _competitor(
        self, i: int, elites: np.ndarray, contest: PosteriorDraws, panel: ExpertMixture | None
    ) -> Candidate:
        """Return who competes under an index: an elite, a row of the pool, or an expert's proposal."""
        if i < len(elites):
            member: Candidate = self.field.members[elites[i]]
            return member
        row = i - len(elites)
        if panel is not None and row >= len(contest.pool):
            place = row - len(contest.pool)
            return replace(self._newcomer(panel.proposals, place), origin="rlp")
        if row not in contest.newcomers:
            contest.newcomers[row] = self._newcomer(contest.pool, row)
        return contest.newcomers[row]

    def _newcomer(self, pool: Pool, row: int) -> Candidate:
        return self.breeder.candidate(pool, row, self.field.parent_ids(pool, row))

    # -- making sure ---------------------------------------------------------------------------

    @property
    def _narrows(self) -> bool:
        """Whether the end game asks ever fewer finalists."""
        rules, has_cases = self.field.rules, len(self.draft.request.case_ids) > 1
        return rules.narrows and has_cases and self.n_places >= rules.large_from

    def _make_sure(self, n_cells: int) -> None:
        """Spend so many cells on those still in the race, then on all others."""
        if n_cells <= 0:
            return
        if self._narrows:
            self._narrow(n_cells)
        else:
            self._draw(n_cells)

    def _narrow(self, n_cells: int) -> None:
        """Share so many cells out equally among finalists, those likeliest to be the best.

        The last generation has as many as it can ask every cell that tells, and each one before it up to
        ``FINALIST_RATIO`` times as many: sequential halving (Karnin, Koren & Somekh 2013, Alg. 1).
        What finalists leave, because they have no cell left, goes to more of them.
        """
        draft, members = self.draft, self.field.members
        order, n = self._likeliest_first(), self._n_finalists()
        stop = draft.n_left - n_cells
        while draft.n_left > stop:
            asked = [
                (members[i], keys)
                for i in order[:n]
                if (keys := draft.open_cells(members[i].candidate_id))
            ]
            if not asked and n >= len(order):
                return
            if not asked:
                n *= 2
                continue
            share = max(1, (draft.n_left - stop) // len(asked))
            for candidate, keys in asked:
                draft.add(candidate, keys[: min(share, draft.n_left - stop)])

    def _likeliest_first(self) -> np.ndarray:
        """Return the members, those first that joint draws find best most often, (n,).

        By means alone, finalists would all be of one kind: that of the leader.
        """
        field = self.field
        order = field.by_standing
        contenders = order[:N_CONTENDERS]
        values = field.draws(contenders, field.genes[:0], self.rng, N_DRAWS)
        n_best = np.bincount(values.argmax(axis=1), minlength=len(contenders))
        likeliest = contenders[np.argsort(-n_best, kind="stable")]
        return np.concatenate([likeliest, order[N_CONTENDERS:]])

    def _n_finalists(self) -> int:
        """Return how many compete in this generation of the end game, where there are cases.

        Where it is long, fewer leave at a time: the first one has a place for each at most.
        """
        request = self.draft.request
        n_whole = round(request.n_cells / (self.draft.n_telling * request.repeats))
        last = max(MIN_FINALISTS, n_whole)
        n_steps = self._n_last(self.field.rules.end_share) - 1.0
        n_left = request.n_generations - request.generation - 1
        rate = math.exp(math.log(max(1.0, self.n_places / last)) / max(1.0, n_steps))
        n = round(last * math.pow(min(FINALIST_RATIO, rate), max(0, n_left)))
        return min(len(self.field.ranking), n)

    def _draw(self, n_cells: int) -> None:
        """Spend so many cells by draws over those still in the race, then on all others."""
        field, stop = self.field, self.draft.n_left - n_cells
        nobody = field.genes[:0]
        values = field.draws(field.elites, nobody, self.rng, -(-n_cells // self.chunk))
        rest = field.by_standing[len(field.elites) :]
        for value in values:
            favoured = field.elites[np.argsort(-value, kind="stable")]
            if not any(self._ask(field.members[i], again=True) for i in favoured) and not any(
                self._ask(field.members[i]) for i in rest
            ):
                return
            if self.draft.n_left <= stop:
                return

    # -- cells ---------------------------------------------------------------------------------

    def _ask(self, candidate: Candidate, *, again: bool = False) -> bool:
        """Give a candidate a chunk of cells; return whether it had any open, see ``open_cells``."""
        draft = self.draft
        if candidate.candidate_id not in draft.archive and draft.n_new >= self.n_seats:
            return False
        return bool(
            draft.add(
                candidate, draft.open_cells(candidate.candidate_id, again=again)[: self.chunk]
            )
        )
