"""Competitors for the cells of a generation: known candidates, and a new pool.

Known candidates are eliminated when their probability of being better than the leader is so small
that all who left together hold a better one with less than ``1 - confidence_level``: each at less than

    (1 - confidence_level) / n                                                                     (1)

of n candidates (Bonferroni). A new candidate competes by mean + ``POOL_SDS`` sd (2).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from convergence_core.evidence import Archive
from convergence_core.posterior.gaussian_process import GaussianProcess
from convergence_core.posterior.space_model import FittedSpaceModel
from convergence_core.posterior.warped_posterior import WarpedPosterior
from convergence_core.records import PROBABLY, Candidate
from convergence_core.search.evolution import Pool, PoolBreeder
from convergence_core.search.evolution.pool import FINEST
from convergence_core.search.goals import FittedGoals
from convergence_core.space.arrays import Encoding

MIN_PARENTS = 10
"""Parents that breed at least, if there are so many."""
N_CLOSE = 4
"""Best candidates around which a quarter of the pool is bred."""
POOL_SDS = 2.0
"""Standard deviations above the mean by which new candidates are screened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings of a race; shared by the samplers that race."""

    breeds: bool = True
    """``False``: the pool is drawn uniformly from the space."""
    confidence_level: float = 0.95
    """Probability that no eliminated candidate is better than the leader."""
    pool_size: int = 500
    """New candidates considered for one generation."""
    n_kept: int = 160
    """Of these, those that compete, see (eq. 2)."""
    n_elites: int = 25
    """Known candidates that compete, those of the highest posterior means."""
    max_chunks: int = 4
    """Chunks that a known candidate may win in one generation before the end game, where there are
    cases."""
    max_repeats: int = 2
    """The same where every cell is the whole evaluation, and a chunk a repeat of it."""
    least_together: int = 5
    """New candidates of a generation that are asked the same cases before others are asked other
    ones."""
    groups_from: int = 40
    """Slots from which on new candidates are asked different cases at all."""
    halving_from: int = 40
    """Slots from which on the end game asks ever fewer finalists."""
    end_share: float = 0.3
    """Share of the cells, the last, that only known candidates get, where there are cases; of large
    generations whole ones, if it is more than one."""
    end_share_without_cases: float = 0.1
    """Share of the cells, the last, where every cell is the whole evaluation."""
    n_probes: int = 4
    """Leaders that are asked again early, where every cell is the whole evaluation: they tell noise
    from what is a candidate's own."""
    min_noise: float = 0.02
    """Noise, in units of the spread of candidates' rewards, from which on that share is kept."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PosteriorDraws:
    """New candidates of one search, and draws of all who compete."""

    pool: Pool
    values: np.ndarray
    """Of the elites, then the pool, (n_draws, n_elites + n_pool); read-only."""
    rng_state: Mapping[str, Any]
    """Of the generator, after both."""
    candidates: dict[int, Candidate] = field(default_factory=dict)
    """Row of the pool → its candidate, once it was chosen."""


@dataclass(frozen=True, eq=False)
class Competitors:
    """Known candidates, as the posterior sees them."""

    rules: Rules
    encoding: Encoding
    archive: Archive
    fitted: FittedSpaceModel
    goals: FittedGoals | None = None
    """What counts besides the mean reward; ``None``: nothing."""
    _kept_draws: dict[str, PosteriorDraws] = field(default_factory=dict, repr=False)

    def posterior_draws(
        self, breeder: PoolBreeder, rng: np.random.Generator, n: int
    ) -> PosteriorDraws:
        """Return a new pool and n draws of what elites and pool are worth.

        A generation that thinks asks twice from one state of the generator; the second time it gets
        the draws of the first.
        """
        key = f"{rng.bit_generator.state} {breeder.levels} {n}"
        draws = self._kept_draws.get(key)
        if draws is None:
            pool = self.pool(breeder, rng)
            while len(pool) < n and (finer := breeder.finer) is not None:
                breeder = finer
                pool = self.pool(breeder, rng)
            values = self.draws(self.elites, pool.genes, rng, n)
            values.setflags(write=False)
            draws = PosteriorDraws(pool=pool, values=values, rng_state=rng.bit_generator.state)
            self._kept_draws[key] = draws
        rng.bit_generator.state = draws.rng_state
        return draws

    @cached_property
    def members(self) -> list[Candidate]:
        """Candidates that the posterior was trained on, in the order they were first asked.

        Of very many candidates the worst are left out there, and need not compete.
        """
        learned = self.fitted.learned
        ids = () if learned is None else learned.evidence.ids
        return [self.archive.members[candidate_id].candidate for candidate_id in ids]

    @cached_property
    def genes(self) -> np.ndarray:
        """Of the members, (n, n_dims)."""
        return self.encoding.genes([candidate.params for candidate in self.members])

    @cached_property
    def rows(self) -> np.ndarray:
        """Training row of each member, -1 for none, (n,)."""
        return self.fitted.rows([candidate.candidate_id for candidate in self.members])

    @cached_property
    def marginals(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of the members' warped rewards, (n,) each."""
        return self.posterior_at(self.genes, self.rows).marginals

    @cached_property
    def ranking(self) -> np.ndarray:
        """Members, best posterior mean first, (n,); see ``FittedGoals.ranking`` for other goals."""
        if self.goals is not None:
            points = self.encoding.places(self.genes)
            return self.goals.ranking(self.marginals[0], self._ids(range(len(self.rows))), points)
        return np.argsort(-self.marginals[0], kind="stable")

    @cached_property
    def elites(self) -> np.ndarray:
        """Members that compete, best first: none that was eliminated.

        From a front none is: its ends are not the leaders of the mean.
        """
        elites = self.ranking[: self.rules.n_elites]
        if self.goals is not None and self.goals.objectives:
            return elites
        posterior = self.posterior_at(self.genes[elites], self.rows[elites])
        error = (1.0 - self.rules.confidence_level) / len(self.ranking)  # (eq. 1)
        return np.asarray(elites[posterior.probability_above(0) >= error], np.intp)

    @cached_property
    def elites_first(self) -> np.ndarray:
        """Members, the elites first, best first; the others after them, best first, (n,)."""
        rest = self.ranking[~np.isin(self.ranking, self.elites)]
        return np.concatenate([self.elites, rest])

    def posterior_at(self, genes: np.ndarray, rows: np.ndarray) -> WarpedPosterior:
        """Return the joint posterior of worths at these genes, (n, n_dims), of training rows or -1, (n,)."""
        return self.fitted.worth_at(("",) * len(genes), self.encoding.places(genes), rows)

    def levels(self, n_levels: int) -> Mapping[str, int]:
        """Return free numbers → steps between which the evidence sees nothing; absent ones are free.

        From ``n_levels`` on steps are halved until over half a step, to either side of the leaders,
        the surface changes less than is unknown about them.
        """
        free = self.encoding.free_columns
        half = 0.5 / (n_levels * 2.0 ** np.arange(math.ceil(math.log2(FINEST / n_levels))))
        is_visible = np.zeros((len(free), len(half)), dtype=bool)
        for leader in self.ranking[:N_CLOSE]:
            moved = np.tile(self.genes[leader], (len(free), len(half), 2, 1))
            for i, j in enumerate(free):
                sides = self.genes[leader, j] + np.stack([-half, half], axis=1)
                moved[i, :, :, j] = np.clip(sides, 0.0, 1.0)
            genes = np.concatenate([self.genes[[leader]], moved.reshape(-1, moved.shape[-1])])
            posterior = self.posterior_at(genes, unseen(len(genes)))
            changes = posterior.changes_from(0)[1:].reshape(len(free), len(half), 2)
            is_visible |= changes.max(axis=2) > self.marginals[1][leader]
        return {
            self.encoding.names[j]: n_levels << int(seen.argmin())
            for j, seen in zip(free, is_visible, strict=True)
            if not seen.all()
        }

    def pool(self, breeder: PoolBreeder, rng: np.random.Generator) -> Pool:
        """Return new rows that compete, known to no member; their parents count by ``ranking``."""
        size = self.rules.pool_size
        parents = self.genes[self.ranking[: max(MIN_PARENTS, len(self.ranking) // 4)]]
        if self.rules.breeds:
            pool = breeder.breed(parents, size // 2, rng)
            pool = pool.join(breeder.breed(parents[:N_CLOSE], size // 4, rng))
            pool = pool.join(breeder.sample(size - size // 2 - size // 4, rng))
        else:
            pool = breeder.sample(size, rng)
        pool = self.only_new(pool)
        if len(pool) <= self.rules.n_kept:
            return pool
        mean, sd = self.posterior_at(pool.genes, unseen(len(pool))).marginals
        order = np.argsort(-(mean + POOL_SDS * sd), kind="stable")  # (eq. 2)
        if self.goals is not None:
            points = self.encoding.places(pool.genes)
            order = self.goals.promising(mean, sd, ("",) * len(pool), points)
        return pool.take(np.sort(order[: self.rules.n_kept]))

    def parent_ids(self, pool: Pool, row: int) -> tuple[str, ...]:
        """Return the ids of a pool row's parents."""
        return tuple(
            self.members[self.ranking[parent]].candidate_id
            for parent in pool.parents[row]
            if parent >= 0
        )

    def regret_upper_bound(
        self, breeder: PoolBreeder, rng: np.random.Generator, *, n_draws: int, level: float
    ) -> float | None:
        """Return a quantile of how far the best candidate considered lies above the leader.

        Over elites and a pool of new candidates, each with what may be its own effect. ``None``:
        a front is sought, or no one asked is feasible, so that there is no leader.
        """
        if self._is_leaderless:
            return None
        known = self.ranking[: self.rules.n_elites]
        pool = self.pool(breeder, rng)
        rows = np.concatenate([self.rows[known], unseen(len(pool))])
        posterior = self.posterior_at(np.concatenate([self.genes[known], pool.genes]), rows)
        drawn = posterior.warped_draws(rng, n_draws)
        if self.fitted.learned is not None:
            sd = math.sqrt(self.fitted.learned.process.nugget_variance)
            drawn = drawn + sd * (rows < 0) * rng.standard_normal(drawn.shape)
        if self.goals is not None:
            genes = np.concatenate([self.genes[known], pool.genes])
            ids = (*self._ids(known), *("",) * len(pool))
            violation = self.goals.violations(n_draws, ids, self.encoding.places(genes), rng)
            if violation is not None:
                drawn[:, 1:][violation[:, 1:] > 0] = -np.inf
        # The warp keeps which is the highest.
        gap = posterior.rewards(drawn.max(axis=1)) - posterior.rewards(drawn[:, 0])
        return float(np.quantile(gap, level))

    def draws(
        self,
        known: np.ndarray,
        new: np.ndarray,
        rng: np.random.Generator,
        n: int,
        process: GaussianProcess | None = None,
    ) -> np.ndarray:
        """Return n joint draws of what candidates are worth, (n, n_known + n_new).

        Args:
            known: members, (n_known,).
            new: genes of candidates no one has asked, (n_new, n_dims).
            rng: source of chance.
            n: draws.
            process: of an expert, in place of the fitted one.
        """
        genes = np.concatenate([self.genes[known], new])
        posterior = self.posterior_at(genes, np.concatenate([self.rows[known], unseen(len(new))]))
        if process is not None:
            posterior = replace(posterior, process=process)
        drawn = posterior.warped_draws(rng, n)
        if self.goals is None:
            return drawn
        ids = (*self._ids(known), *("",) * len(new))
        return self.goals.values(drawn, ids, self.encoding.places(genes), rng)

    @property
    def _is_leaderless(self) -> bool:
        """Whether a front is sought or no member is feasible."""
        if self.goals is None:
            return False
        first = [self.members[self.ranking[0]]]
        return bool(self.goals.objectives) or self.goals.feasible(first)[0] < PROBABLY

    def _ids(self, members: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.members[i].candidate_id for i in members)

    def only_new(self, pool: Pool) -> Pool:
        """Return the rows that no member has, each once."""
        known = set(_keys(self.genes))
        keep = []
        for i, key in enumerate(_keys(pool.genes)):
            if key not in known:
                known.add(key)
                keep.append(i)
        return pool.take(np.array(keep, dtype=np.intp))


def unseen(n: int) -> np.ndarray:
    """Return the training rows of n candidates that no one has asked, (n,)."""
    return np.full(n, -1, dtype=np.intp)


def _keys(genes: np.ndarray) -> Sequence[bytes]:
    """Return the identity of each row: canonical values differ in the seventh digit at least."""
    rounded = np.where(np.isnan(genes), -1.0, np.round(genes, 7)) + 0.0
    return [row.tobytes() for row in rounded]
