"""Allocation of a generation's cells, by posterior draws or to finalists.

A generation consists of slots, each of one chunk of cells. Each slot takes one joint posterior
draw over known candidates and a pool of new ones (Thompson 1933; Chapelle & Li 2011, Alg. 1). The
highest draw gets the slot: a new candidate its first chunk, a known one another chunk. The last
generations, the end game, evaluate known candidates only. Large ones use ever fewer finalists, by
sequential halving (Karnin, Koren & Somekh 2013, Alg. 1),

    n_g = n_last ratio^(generations left),    ratio = min(FINALIST_RATIO, (slots / n_last)^(1 / steps))  (1)

An expert's posterior adds pseudo-observations at the expert's predicted points to the base's.
Their total weight is at most five trials:

    z_i = warp(mu_i),   variance_i = max(slope_i^2 var_i, a trial's) / w_i,   w_i = nu_i / n       (2)

nu_i in [1, 5] as in ``rlp.experts``, so that sum_i w_i <= 5. The base draws from the plan's stream
before any expert, and experts draw from a separate stream. So without an expert of positive
weight, all draws stay the same.
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
"""Proposed points in a generation's pool if experts had all the weight."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpertMixture:
    """Experts that may fill slots, with their proposed points."""

    experts: tuple[Expert, ...]
    competitors: Competitors
    proposals: Pool
    """Unevaluated rows, as many of each expert as its weight allows."""
    rng: np.random.Generator

    @classmethod
    def of(
        cls, experts: Sequence[Expert], competitors: Competitors, rng: np.random.Generator
    ) -> "ExpertMixture | None":
        """Return the mixture; ``None`` if no expert has weight or there is no evidence.

        Args:
            experts: Advised experts; those without weight are ignored.
            competitors: Competitors of the generation.
            rng: Generator of the plan; not advanced.
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
        """Return the draws of all slots, with the proposed points in the last columns.

        Args:
            values: Draws of the base, (n_slots, n_known + n_new).
            n_reserved: Number of first slots, which remain the base's.
            known: Competing members, (n_known,).
            new: Genes of the other competitors except proposed points, (n_new, n_dims).

        Returns:
            Draws, (n_slots, n_known + n_new + n_proposals); minus infinity if the slot must not
            choose a proposed point.
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
    """Return the process with an expert's pseudo-observations (eq. 2).

    Args:
        fitted: Model of the base, with evidence.
        expert: Expert whose predictions are added.
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
"""Minimum number of known candidates in the last generation of the end game."""
N_CONTENDERS = 100
"""Known candidates from which finalists are chosen."""
N_DRAWS = 1_000
"""Joint draws that choose the finalists."""
PROBED_PART = 5
"""Cells of a generation per cell that repeats a leader to estimate the noise."""
FINALIST_RATIO = 3
"""Maximum ratio of finalists between consecutive generations."""


@dataclass(slots=True, kw_only=True)
class CellAllocation:
    """Allocator that fills one plan; lives for one ``ask``."""

    competitors: Competitors
    builder: PlanBuilder
    rng: np.random.Generator
    breeder: PoolBreeder
    chunk: int
    """Cells per slot."""
    max_new: int
    """Maximum number of new candidates."""
    n_slots: int
    """Slots of the generation if all chunks had the minimum size."""

    def fill(self, exploration_rate: float) -> None:
        """Fill all slots.

        Args:
            exploration_rate: Share of slots for uniformly random new candidates.
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
        """Whether a cell is only part of an evaluation."""
        return len(self.builder.request.case_ids) > 1

    @property
    def _seeks_front(self) -> bool:
        goals = self.competitors.goals
        return goals is not None and bool(goals.objectives)

    @property
    def _is_halving(self) -> bool:
        """Whether the end game uses ever fewer finalists."""
        return self._has_cases and self.n_slots >= self.competitors.rules.halving_from

    def _end_part(self) -> float:
        """Return the share of this generation that belongs to the end game."""
        rules, request = self.competitors.rules, self.builder.request
        fitted = self.competitors.fitted
        learned = fitted.learned
        is_quiet = learned is not None and learned.process.noise < rules.min_noise
        if self._seeks_front:
            share = 0.0  # a front has no single best candidate; draws repeat its members
        elif self._has_cases:
            share = rules.end_share
        else:
            share = 0.0 if fitted.is_exact or is_quiet else rules.end_share_without_cases
        begins = request.n_generations - self._n_end_generations(share)
        ends = request.generation + (request.batch + 1) / request.n_batches
        return min(1.0, max(0.0, (ends - begins) * request.n_batches))

    def _n_end_generations(self, share: float) -> float:
        """Return the number of end game generations, given their share of all."""
        n = self.builder.request.n_generations * share
        # Finalists are chosen between generations.
        return math.floor(n + 0.5) if self._is_halving and n > 1.0 else n

    def _probe(self) -> None:
        """Repeat leaders, in at most a fifth of the cells, if only that shows the noise."""
        builder, competitors = self.builder, self.competitors
        learned = competitors.fitted.learned
        # The surrogates of a front's metrics read no repeats.
        if learned is None or self._has_cases or self._seeks_front:
            return
        n_wanted = competitors.rules.n_probes - learned.evidence.repeat_dof
        for i in competitors.ranking[: max(0, min(n_wanted, builder.n_left // PROBED_PART))]:
            candidate = competitors.members[i]
            builder.add(candidate, builder.open_cells(candidate.candidate_id, again=True)[:1])

    # -- search --------------------------------------------------------------------------------

    def _explore(self, n_cells: int, rate: float) -> None:
        """Give this share of ``n_cells`` cells to uniformly random new candidates."""
        expected = max(0, n_cells) * rate / self.chunk
        n = int(expected) + int(self.rng.random() < expected - int(expected))
        if not n:
            return
        pool = self.breeder.sample(n, self.rng)
        for row in range(len(pool)):
            self._add_chunk(self.breeder.candidate(pool, row, ()))

    def _search(self, n_cells: int) -> None:
        """Spend ``n_cells`` cells by draws over the elites and the pool."""
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
            if not (is_open and proposed and self._add_chunk(proposed.pop(0))):
                order = np.argsort(-value, kind="stable")
                for i in order[value[order] > -np.inf]:  # excludes proposals in slots of the base
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
        """Return the competitor at an index: an elite, a pool row, or an expert's proposal."""
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
        """Distribute ``n_cells`` cells equally among the finalists, the likeliest best candidates.

        The last generation has as many as it can evaluate completely, and each earlier one up to
        ``FINALIST_RATIO`` times as many. If the finalists run out of cells, their number doubles.
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
        """Return the members by how often they have the highest joint draw, (n,).

        Ranking by means alone would choose finalists that all resemble the leader.
        """
        competitors = self.competitors
        order = competitors.elites_first
        contenders = order[:N_CONTENDERS]
        values = competitors.draws(contenders, competitors.genes[:0], self.rng, N_DRAWS)
        n_best = np.bincount(values.argmax(axis=1), minlength=len(contenders))
        likeliest = contenders[np.argsort(-n_best, kind="stable")]
        return np.concatenate([likeliest, order[N_CONTENDERS:]])

    def _n_finalists(self) -> int:
        """Return the number of finalists in this generation of the end game.

        In a long end game, fewer leave at a time: its first generation has at most one per slot.
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
        """Spend ``n_cells`` cells by draws over the elites, then on all others."""
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

    def _add_chunk(self, candidate: Candidate, *, again: bool = False) -> bool:
        """Give a candidate a chunk of its open cells; return whether it took any."""
        builder = self.builder
        if candidate.candidate_id not in builder.archive and builder.n_new >= self.max_new:
            return False
        keys = builder.open_cells(candidate.candidate_id, again=again)[: self.chunk]
        return bool(builder.add(candidate, keys))
