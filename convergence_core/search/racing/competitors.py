"""Competitors for a generation's cells: known candidates and a pool of new ones.

A known candidate is eliminated if its probability of beating the leader is below

    (1 - confidence_level) / n                                                                     (1)

of n candidates (Bonferroni). So with probability ``confidence_level``, no eliminated candidate is
better. A new candidate competes by mean + ``POOL_SDS`` sd (2).
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
"""Minimum number of parents, if there are as many members."""
N_CLOSE = 4
"""Best candidates around which a quarter of the pool is bred."""
POOL_SDS = 2.0
"""Standard deviations above the mean in the screening score of new candidates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings of a race, shared by the racing samplers."""

    breeds: bool = True
    """Whether the pool is bred; otherwise it is drawn uniformly from the space."""
    confidence_level: float = 0.95
    """Probability that no eliminated candidate is better than the leader."""
    pool_size: int = 500
    """New candidates considered per generation."""
    n_kept: int = 160
    """Considered candidates that compete, see (eq. 2)."""
    n_elites: int = 25
    """Known candidates with the highest posterior means, which compete."""
    max_chunks: int = 4
    """Maximum chunks of a known candidate per generation before the end game, with several
    cases."""
    max_repeats: int = 2
    """Maximum repeats of a known candidate per generation before the end game, with one case."""
    least_together: int = 5
    """Minimum new candidates per group, which share the same first cases."""
    groups_from: int = 40
    """Minimum slots for groups of new candidates with different cases."""
    halving_from: int = 40
    """Minimum slots for an end game with ever fewer finalists."""
    end_share: float = 0.3
    """Share of the last cells, reserved for known candidates, with several cases. Large
    generations round it to whole generations if it exceeds one."""
    end_share_without_cases: float = 0.1
    """Share of the last cells, reserved for known candidates, with one case."""
    n_probes: int = 4
    """Number of early repeats of leaders with one case, to separate noise from merit."""
    min_noise: float = 0.02
    """Minimum noise, in units of the candidates' spread, for an end game with one case."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PosteriorDraws:
    """New candidates of one search, and draws of all competitors."""

    pool: Pool
    values: np.ndarray
    """Draws of the elites, then of the pool, (n_draws, n_elites + n_pool); read-only."""
    rng_state: Mapping[str, Any]
    """Generator state after both."""
    candidates: dict[int, Candidate] = field(default_factory=dict)
    """Row of the pool → its candidate, if chosen."""


@dataclass(frozen=True, eq=False)
class Competitors:
    """Known candidates under the posterior."""

    rules: Rules
    encoding: Encoding
    archive: Archive
    fitted: FittedSpaceModel
    goals: FittedGoals | None = None
    """Goals besides the mean reward; ``None`` if there are none."""
    _kept_draws: dict[str, PosteriorDraws] = field(default_factory=dict, repr=False)

    def posterior_draws(
        self, breeder: PoolBreeder, rng: np.random.Generator, n: int
    ) -> PosteriorDraws:
        """Return a new pool and n draws of the values of elites and pool.

        A generation with hypotheses calls this twice with the same generator state; the second
        call returns the draws of the first.
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
        """Candidates in the posterior's training data, in order of first evaluation.

        With very many candidates, the training data omit the worst, which then do not compete.
        """
        learned = self.fitted.learned
        ids = () if learned is None else learned.evidence.ids
        return [self.archive.members[candidate_id].candidate for candidate_id in ids]

    @cached_property
    def genes(self) -> np.ndarray:
        """Genes of the members, (n, n_dims)."""
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
        """Members by decreasing posterior mean, or by ``FittedGoals.ranking`` with goals, (n,)."""
        if self.goals is not None:
            points = self.encoding.places(self.genes)
            return self.goals.ranking(self.marginals[0], self._ids(range(len(self.rows))), points)
        return np.argsort(-self.marginals[0], kind="stable")

    @cached_property
    def elites(self) -> np.ndarray:
        """Competing members, best first, without the eliminated.

        A front eliminates none: its ends do not lead by mean.
        """
        elites = self.ranking[: self.rules.n_elites]
        if self.goals is not None and self.goals.objectives:
            return elites
        posterior = self.posterior_at(self.genes[elites], self.rows[elites])
        error = (1.0 - self.rules.confidence_level) / len(self.ranking)  # (eq. 1)
        return np.asarray(elites[posterior.probability_above(0) >= error], np.intp)

    @cached_property
    def elites_first(self) -> np.ndarray:
        """Members in order: elites, then the others, each best first, (n,)."""
        rest = self.ranking[~np.isin(self.ranking, self.elites)]
        return np.concatenate([self.elites, rest])

    def posterior_at(self, genes: np.ndarray, rows: np.ndarray) -> WarpedPosterior:
        """Return the joint posterior of n rows of genes; ``rows`` are training rows or -1."""
        return self.fitted.worth_at(("",) * len(genes), self.encoding.places(genes), rows)

    def levels(self, n_levels: int) -> Mapping[str, int]:
        """Return free numbers → grid steps finer than the evidence resolves; absent ones are free.

        Steps start at ``n_levels`` and halve until half a step around the leaders changes the
        surface by less than its uncertainty.
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
        """Return the competing new rows; ``parents`` of a row index ``ranking``."""
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
        """Return a quantile of the best considered candidate's lead over the leader.

        Considers elites and a pool of new candidates, each with its possible individual effect.
        ``None`` if there is no leader, because the run seeks a front or no evaluated candidate is
        feasible.
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
        # The warp is monotone, so it preserves the maximum.
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
        """Return n joint draws of candidate values, (n, n_known + n_new).

        Args:
            known: Members, (n_known,).
            new: Genes of unevaluated candidates, (n_new, n_dims).
            rng: Random generator.
            n: Number of draws.
            process: Expert's process; ``None`` means the fitted one.
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
        """Whether the run seeks a front or no member is feasible."""
        if self.goals is None:
            return False
        first = [self.members[self.ranking[0]]]
        return bool(self.goals.objectives) or self.goals.feasible(first)[0] < PROBABLY

    def _ids(self, members: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.members[i].candidate_id for i in members)

    def only_new(self, pool: Pool) -> Pool:
        """Return the distinct rows that no member has."""
        known = set(_keys(self.genes))
        keep = []
        for i, key in enumerate(_keys(pool.genes)):
            if key not in known:
                known.add(key)
                keep.append(i)
        return pool.take(np.array(keep, dtype=np.intp))


def unseen(n: int) -> np.ndarray:
    """Return the training rows of n unevaluated candidates, all -1, (n,)."""
    return np.full(n, -1, dtype=np.intp)


def _keys(genes: np.ndarray) -> Sequence[bytes]:
    """Return the key of each row: canonical values differ by the seventh digit at the latest."""
    rounded = np.where(np.isnan(genes), -1.0, np.round(genes, 7)) + 0.0
    return [row.tobytes() for row in rounded]
