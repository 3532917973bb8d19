"""Allocation of a generation's cells, by draws of the posterior or to finalists.

A generation is a row of slots, each worth one chunk of cells. For every slot one joint draw of
the posterior is taken over known candidates and a pool of new ones (Thompson 1933; Chapelle & Li
2011, Alg. 1); the highest gets the slot: a new candidate its first chunk, a known one a further
chunk. The last generations, the end game, ask known candidates only: large ones ever fewer finalists,
by sequential halving (Karnin, Koren & Somekh 2013, Alg. 1),

    n_g = n_last ratio^(generations left),    ratio = min(FINALIST_RATIO, (slots / n_last)^(1 / steps))  (1)

An expert's posterior is the base's, on the same evidence, with pseudo-observations at the points
whose reward it predicted. However many these are, together they count for five trials at most:

    z_i = warp(mu_i),   variance_i = max(slope_i^2 var_i, a trial's) / w_i,   w_i = nu_i / n       (1)

nu_i in [1, 5] as in ``rlp.experts``, so that sum_i w_i <= 5. The base's draws are taken from the
plan's own stream before any expert is asked, and the experts' from one of their own: without an
expert of positive weight no draw is another one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from convergence_core.posterior.gaussian_process import GaussianProcess
from convergence_core.posterior.space_model import FittedSpaceModel
from convergence_core.records import Candidate, sha256_hex
from convergence_core.rlp.experts import EDGE, strength
from convergence_core.rlp.statistical import trial_variance
from convergence_core.search.evolution import Pool, PoolBreeder
from convergence_core.search.racing.competitors import Competitors, PosteriorDraws
from convergence_core.search.racing.plan_builder import PlanBuilder
from convergence_core.search.sampler import Expert

MAX_PROPOSALS = 40
"""Proposed points among the pool of a generation, if experts had all the weight."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpertMixture:
    """Experts that may fill slots, with the points they propose."""

    experts: tuple[Expert, ...]
    competitors: Competitors
    proposals: Pool
    """Rows that no one has asked; as many of each expert as its weight says."""
    rng: np.random.Generator

    @classmethod
    def of(
        cls, experts: Sequence[Expert], competitors: Competitors, rng: np.random.Generator
    ) -> "ExpertMixture | None":
        """Return the mixture; ``None`` if no expert has a weight, or there is no evidence.

        Args:
            experts: as advised; those without weight are left out.
            competitors: of the generation.
            rng: of the plan; not moved.
        """
        weighted = tuple(expert for expert in experts if expert.weight > 0.0)
        if not weighted or competitors.fitted.learned is None:
            return None
        seed = int(sha256_hex(repr(rng.bit_generator.state))[:16], 16)
        stream = np.random.default_rng(seed)  # noqa: TID251 - a function of the plan's stream
        points = [
            point
            for expert in weighted
            for point in expert.proposals[: round(MAX_PROPOSALS * expert.weight)]
        ]
        genes = competitors.encoding.genes(points)
        proposals = competitors.only_new(Pool.without_parents(genes))
        return cls(weighted, competitors, proposals, stream)

    def values(
        self, values: np.ndarray, n_reserved: int, known: np.ndarray, new: np.ndarray
    ) -> np.ndarray:
        """Return the draws of all slots, those of proposed points last.

        Args:
            values: the base's draws, (n_slots, n_known + n_new).
            n_reserved: first slots, which stay the base's.
            known: members that compete, (n_known,).
            new: genes of the other competitors without the proposed points, (n_new, n_dims).

        Returns:
            (n_slots, n_known + n_new + n_proposals); minus infinity where a proposed point may
            not be chosen.
        """
        n_slots, n_proposals = len(values), len(self.proposals)
        drawn = np.hstack([values, np.full((n_slots, n_proposals), -np.inf)])
        weights = [expert.weight for expert in self.experts]
        chances = [max(0.0, 1.0 - sum(weights)), *weights]
        p = np.array(chances) / sum(chances)
        turns = self.rng.choice(len(p), size=n_slots, p=p) - 1  # -1: the base's
        turns[:n_reserved] = -1
        all_new = np.concatenate([new, self.proposals.genes])
        for k, expert in enumerate(self.experts):
            slots = np.flatnonzero(turns == k)
            if len(slots):
                process = with_expert(self.competitors.fitted, expert)
                drawn[slots] = self.competitors.draws(
                    known, all_new, self.rng, len(slots), process
                )
        return drawn


def with_expert(fitted: FittedSpaceModel, expert: Expert) -> GaussianProcess:
    """Return the process with an expert's pseudo-observations (eq. 1).

    Args:
        fitted: the base's model, with evidence.
        expert: whose predictions are added.
    """
    learned = fitted.learned
    assert learned is not None  # noqa: S101 - without evidence there is no mixture
    process, n = learned.process, len(expert.points)
    if n == 0:
        return process
    means = np.clip(np.array(expert.means), EDGE, 1.0 - EDGE)
    variances = np.array(expert.variances)
    nu = strength(means, variances)
    unit = np.maximum(learned.warp.slope(means) ** 2 * variances, trial_variance(fitted))
    points = fitted.model.encoding.encode(expert.points)
    return process.with_measurements(points, learned.warp.forward(means), unit * n / nu)


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
    """Fills a plan; used within one ``ask`` and never kept."""

    competitors: Competitors
    builder: PlanBuilder
    rng: np.random.Generator
    breeder: PoolBreeder
    chunk: int
    """Cells of one slot."""
    max_new: int
    """Candidates that may be new."""
    n_slots: int
    """Slots of the generation, were all of the least chunk."""

    def fill(self, exploration_rate: float) -> None:
        """Fill all slots.

        Args:
            exploration_rate: share of slots for uniformly random new candidates.
        """
        builder = self.builder
        builder.retry_missing()
        self._probe()
        n_last = round(self._end_part() * builder.n_left)
        for candidate in builder.priority_candidates():
            self._add_chunk(candidate)
        self._explore(builder.n_left - n_last, exploration_rate)
        self._search(builder.n_left - n_last)
        if self._is_halving:
            self._ask_finalists(builder.n_left)
        else:
            self._ask_by_draws(builder.n_left)
        self._search(builder.n_left)

    @property
    def _has_cases(self) -> bool:
        """Whether a cell is less than the whole evaluation."""
        return len(self.builder.request.case_ids) > 1

    @property
    def _seeks_front(self) -> bool:
        goals = self.competitors.goals
        return goals is not None and bool(goals.objectives)

    @property
    def _is_halving(self) -> bool:
        """Whether the end game asks ever fewer finalists."""
        return self._has_cases and self.n_slots >= self.competitors.rules.halving_from

    def _end_part(self) -> float:
        """Return which part of this generation belongs to the end game."""
        rules, request = self.competitors.rules, self.builder.request
        fitted = self.competitors.fitted
        learned = fitted.learned
        is_quiet = learned is not None and learned.process.noise < rules.min_noise
        if self._seeks_front:
            share = 0.0  # a front has no single best to be sure of; draws ask its members again
        elif self._has_cases:
            share = rules.end_share
        else:
            share = 0.0 if fitted.is_exact or is_quiet else rules.end_share_without_cases
        begins = request.n_generations - self._n_end_generations(share)
        ends = request.generation + (request.batch + 1) / request.n_batches
        return min(1.0, max(0.0, (ends - begins) * request.n_batches))

    def _n_end_generations(self, share: float) -> float:
        """Return how many generations the end game has, if it has this share of them."""
        n = self.builder.request.n_generations * share
        # Finalists are chosen between generations.
        return math.floor(n + 0.5) if self._is_halving and n > 1.0 else n

    def _probe(self) -> None:
        """Ask leaders again where nothing else tells noise from merit; a fifth of the cells at most."""
        builder, competitors = self.builder, self.competitors
        learned = competitors.fitted.learned
        # Where a front is sought, the metrics' own surrogates read no repeats.
        if learned is None or self._has_cases or self._seeks_front:
            return
        n_wanted = competitors.rules.n_probes - learned.evidence.repeat_dof
        for i in competitors.ranking[: max(0, min(n_wanted, builder.n_left // PROBED_PART))]:
            candidate = competitors.members[i]
            builder.add(candidate, builder.open_cells(candidate.candidate_id, again=True)[:1])

    # -- search --------------------------------------------------------------------------------

    def _explore(self, n_cells: int, rate: float) -> None:
        """Give this share of so many cells to uniformly random new candidates."""
        expected = max(0, n_cells) * rate / self.chunk
        n = int(expected) + int(self.rng.random() < expected - int(expected))
        if not n:
            return
        pool = self.breeder.sample(n, self.rng)
        for row in range(len(pool)):
            self._add_chunk(self.breeder.candidate(pool, row, ()))

    def _search(self, n_cells: int) -> None:
        """Spend so many cells by draws over elites and the pool."""
        if n_cells <= 0:
            return
        competitors, rules, builder = self.competitors, self.competitors.rules, self.builder
        stop = builder.n_left - n_cells
        drawn = competitors.posterior_draws(self.breeder, self.rng, -(-n_cells // self.chunk))
        elites, values = competitors.elites, drawn.values
        advice = builder.request.advice
        mixture = ExpertMixture.of(advice.experts, competitors, self.rng)
        n_reserved = -(-len(values) // 2) if advice.reserves else len(values) * (mixture is None)
        if mixture is not None:
            values = mixture.values(values, n_reserved, elites, drawn.pool.genes)
        max_wins = np.ones(values.shape[1], dtype=np.intp)
        max_wins[: len(elites)] = rules.max_chunks if self._has_cases else rules.max_repeats
        n_wins = np.zeros(values.shape[1], dtype=np.intp)
        proposed = builder.proposed_candidates(advice.proposals)
        for slot, value in enumerate(values):
            if slot == n_reserved:
                builder.is_advised = True
                builder.add_probes()
            is_open = slot >= n_reserved
            builder.n_advisable += is_open
            if not (is_open and self._add_first(proposed)):
                order = np.argsort(-value, kind="stable")
                for i in order[value[order] > -np.inf]:  # only experts may choose the others
                    if n_wins[i] >= max_wins[i]:
                        continue
                    n_wins[i] += 1
                    if self._add_chunk(self._candidate(int(i), drawn, mixture)):
                        break
            if builder.n_left <= stop:
                return

    def _candidate(
        self, i: int, drawn: PosteriorDraws, mixture: ExpertMixture | None
    ) -> Candidate:
        """Return the competitor of an index: an elite, a row of the pool, or an expert's proposal."""
        elites = self.competitors.elites
        if i < len(elites):
            member: Candidate = self.competitors.members[elites[i]]
            return member
        row = i - len(elites)
        if mixture is not None and row >= len(drawn.pool):
            proposal = self._new_candidate(mixture.proposals, row - len(drawn.pool))
            return replace(proposal, origin="rlp")
        if row not in drawn.candidates:
            drawn.candidates[row] = self._new_candidate(drawn.pool, row)
        return drawn.candidates[row]

    def _new_candidate(self, pool: Pool, row: int) -> Candidate:
        return self.breeder.candidate(pool, row, self.competitors.parent_ids(pool, row))

    # -- end game ------------------------------------------------------------------------------

    def _ask_finalists(self, n_cells: int) -> None:
        """Share so many cells out equally among finalists, those most likely to be the best.

        The last generation has as many as it can ask every cell, and each one before it up to
        ``FINALIST_RATIO`` times as many. What finalists leave, because they have no cell left, goes
        to more of them.
        """
        if n_cells <= 0:
            return
        builder, members = self.builder, self.competitors.members
        order, n = self._by_prob_best(), self._n_finalists()
        stop = builder.n_left - n_cells
        while builder.n_left > stop:
            requests = [
                (members[i], keys)
                for i in order[:n]
                if (keys := builder.open_cells(members[i].candidate_id))
            ]
            if not requests and n >= len(order):
                return
            if not requests:
                n *= 2
                continue
            share = max(1, (builder.n_left - stop) // len(requests))
            for candidate, keys in requests:
                builder.add(candidate, keys[: min(share, builder.n_left - stop)])

    def _by_prob_best(self) -> np.ndarray:
        """Return the members, those first that joint draws find best most often, (n,).

        By means alone, finalists would all be of one kind: that of the leader.
        """
        competitors = self.competitors
        order = competitors.elites_first
        contenders = order[:N_CONTENDERS]
        values = competitors.draws(contenders, competitors.genes[:0], self.rng, N_DRAWS)
        n_best = np.bincount(values.argmax(axis=1), minlength=len(contenders))
        likeliest = contenders[np.argsort(-n_best, kind="stable")]
        return np.concatenate([likeliest, order[N_CONTENDERS:]])

    def _n_finalists(self) -> int:
        """Return how many compete in this generation of the end game, where there are cases.

        Where it is long, fewer leave at a time: the first one has a slot for each at most.
        """
        request = self.builder.request
        n_whole = round(request.n_cells / (len(request.case_ids) * request.repeats))
        last = max(MIN_FINALISTS, n_whole)
        n_steps = self._n_end_generations(self.competitors.rules.end_share) - 1.0
        n_left = request.n_generations - request.generation - 1
        ratio = math.exp(math.log(max(1.0, self.n_slots / last)) / max(1.0, n_steps))
        n = round(last * math.pow(min(FINALIST_RATIO, ratio), max(0, n_left)))  # (eq. 1)
        return min(len(self.competitors.ranking), n)

    def _ask_by_draws(self, n_cells: int) -> None:
        """Spend so many cells by draws over the elites, then on all others."""
        if n_cells <= 0:
            return
        competitors, stop = self.competitors, self.builder.n_left - n_cells
        elites, members = competitors.elites, competitors.members
        n_draws = -(-n_cells // self.chunk)
        values = competitors.draws(elites, competitors.genes[:0], self.rng, n_draws)
        rest = competitors.elites_first[len(elites) :]
        for value in values:
            favoured = elites[np.argsort(-value, kind="stable")]
            if not any(self._add_chunk(members[i], again=True) for i in favoured) and not any(
                self._add_chunk(members[i]) for i in rest
            ):
                return
            if self.builder.n_left <= stop:
                return

    # -- cells ---------------------------------------------------------------------------------

    def _add_first(self, candidates: list[Candidate]) -> bool:
        """Take the first of some candidates, if there is one, and give it a chunk of cells."""
        return bool(candidates) and self._add_chunk(candidates.pop(0))

    def _add_chunk(self, candidate: Candidate, *, again: bool = False) -> bool:
        """Give a candidate a chunk of cells; return whether it had any open, see ``open_cells``."""
        builder = self.builder
        if candidate.candidate_id not in builder.archive and builder.n_new >= self.max_new:
            return False
        keys = builder.open_cells(candidate.candidate_id, again=again)[: self.chunk]
        return bool(builder.add(candidate, keys))
