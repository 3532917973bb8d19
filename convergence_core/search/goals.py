"""Goals besides a high mean reward: hard constraints, a Pareto front.

**Constraints.** A cell that violates a metric's ``min`` or ``max`` gets reward 0, but a candidate
that violates it in one cell of three may still have the highest mean. So a candidate counts as
feasible if at most ``tolerance`` of its cells violate a constraint (1). A separate surrogate
estimates the probability of that. Draws follow constrained Thompson sampling (Eriksson & Poloczek
2021, SCBO, §3.2): reward and share are drawn together. The highest drawn reward wins among
candidates whose drawn share is feasible; if there are none, the smallest drawn violation wins (2).

**Pareto runs.** Each metric has a surrogate. Each slot of a generation draws a direction uniformly
and goes to the candidate whose joint draw reaches furthest along it (Paria, Kandasamy & Póczos
2020, Alg. 1, with the scalarization of Golovin & Zhang 2020). The draws of different metrics are
independent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from convergence_core.evidence import KEPT, METRIC, Archive, Measures
from convergence_core.objective import RewardModel, best_first, on_front, scalarize
from convergence_core.posterior.mean_model import FittedMeans, Means
from convergence_core.posterior.warped_posterior import WarpedPosterior
from convergence_core.records import PROBABLY, Candidate, Json
from convergence_core.space import Space
from convergence_core.space.arrays import Encoding, Points

if TYPE_CHECKING:
    from convergence_core.config import Configuration

TOLERANCE = 0.1
"""Maximum share of a candidate's cells that may violate a hard constraint."""
MEMORY_KEY = "goals"
"""Key of these surrogates' hyper-parameters in a sampler's memory."""
N_STEPS = 8
"""Optimizer iterations per surrogate after each generation except the first."""
UCB_SDS = 2.0
"""Standard deviations above the mean in a new candidate's upper confidence bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """Goals of a run besides the mean reward."""

    measures: Measures
    tolerance: float = TOLERANCE
    """Maximum share of cells that may violate a constraint, in [0, 1)."""

    @classmethod
    def of(cls, configuration: "Configuration") -> "Goals | None":
        """Return the goals of a configuration; ``None`` if only the mean reward counts."""
        evaluation = configuration.evaluation
        rewards = RewardModel(evaluation.metrics)
        is_pareto = evaluation.objective == "pareto"
        if not is_pareto and not rewards.has_constraints:
            return None
        objectives = tuple(name for name, metric in rewards.metrics.items() if metric.weight > 0)
        return cls(
            measures=Measures(
                rewards=rewards,
                constraints=rewards.has_constraints,
                metrics=objectives if is_pareto else (),
            ),
            tolerance=evaluation.max_broken,
        )

    @property
    def _quantities(self) -> list[str]:
        """Names of the quantities that have a surrogate."""
        kept = [KEPT] if self.measures.constraints else []
        return kept + [METRIC + metric for metric in self.measures.metrics]

    def fit(
        self,
        archive: Archive,
        space: Space | Encoding,
        *,
        memory: Mapping[str, Json] | None = None,
        start_steps: int = 0,
    ) -> "FittedGoals":
        """Fit the surrogates that an archive has evidence for.

        Until a cell violates a constraint, every candidate counts as feasible.

        Args:
            archive: Evidence tallied with ``measures``.
            space: Search space of the candidates, or its encoding.
            memory: Memory of a ``SearchState`` with initial hyper-parameters.
            start_steps: Optimizer iterations from these.
        """
        encoding = space if isinstance(space, Encoding) else Encoding.of(space)
        kept = (memory or {}).get(MEMORY_KEY)
        starts = kept if isinstance(kept, dict) else {}
        fitted: dict[str, FittedMeans] = {}
        for name in self._quantities:
            means = Means.gather(archive, name)
            if not len(means) or (name == KEPT and means.mean.min() >= 1.0):
                continue
            start = starts.get(name)
            fitted[name] = FittedMeans.fit(
                encoding,
                means,
                start=[float(x) for x in start if isinstance(x, int | float)]
                if isinstance(start, list)
                else None,
                start_steps=start_steps,
            )
        return FittedGoals(goals=self, encoding=encoding, fitted=fitted)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FittedGoals:
    """Fitted surrogates."""

    goals: Goals
    encoding: Encoding
    fitted: Mapping[str, FittedMeans]
    """Quantity → surrogate; quantities without a measurement are absent."""

    @property
    def memory(self) -> dict[str, Json]:
        """Hyper-parameters, the starting point of the next fit."""
        return {name: list(map(float, f.process.log_params)) for name, f in self.fitted.items()}

    @property
    def objectives(self) -> tuple[str, ...]:
        """Metrics of the front; empty if the run seeks no front or a metric has no evidence."""
        metrics = self.goals.measures.metrics
        return metrics if all(METRIC + metric in self.fitted for metric in metrics) else ()

    @property
    def is_constrained(self) -> bool:
        """Whether a cell has violated a constraint, so that feasibility is uncertain."""
        return KEPT in self.fitted

    def probability_feasible(self, ids: Sequence[str], points: Points) -> np.ndarray:
        """Return each candidate's posterior probability of feasibility, (n,)."""
        if not self.is_constrained:
            return np.ones(len(ids))
        mean, sd = self.fitted[KEPT].posterior_at(ids, points).marginals
        return np.asarray(ndtr((mean - self._threshold) / sd), np.float64)

    def feasible(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """Return ``probability_feasible`` of these candidates, (n,)."""
        ids = [candidate.candidate_id for candidate in candidates]
        return self.probability_feasible(
            ids, self.encoding.encode([candidate.params for candidate in candidates])
        )

    def ranking(self, mean: np.ndarray, ids: Sequence[str], points: Points) -> np.ndarray:
        """Return the candidates' indices in order of preference as parents, (n,).

        Probably feasible candidates come first, by mean reward, or by front and crowding on it.
        The others follow by decreasing probability of feasibility.

        Args:
            mean: Mean rewards on any monotone scale, (n,).
            ids: Candidate ids.
            points: Encoded candidates.
        """
        rank = _ranks(self.means(ids, points)) if self.objectives else -mean
        probability = self.probability_feasible(ids, points)
        doubt = np.where(probability >= PROBABLY, -1.0, -probability)
        return np.lexsort((rank, doubt))

    def promising(
        self,
        mean: np.ndarray,
        sd: np.ndarray,
        ids: Sequence[str],
        points: Points,
    ) -> np.ndarray:
        """Return the candidates' indices by decreasing upper confidence bound, (n,).

        Args:
            mean: Means of the warped rewards, (n,).
            sd: Standard deviations of the warped rewards, (n,).
            ids: Candidate ids.
            points: Encoded candidates.
        """
        if self.objectives:
            rank = _ranks(self._upper_bounds(ids, points))
        else:
            rank = -(mean + UCB_SDS * sd)
        violation = np.zeros(len(ids))
        if self.is_constrained:
            share, error = self.fitted[KEPT].posterior_at(ids, points).marginals
            violation = np.maximum(self._threshold - (share + UCB_SDS * error), 0.0)
        return np.lexsort((rank, violation))

    def values(
        self,
        rewards: np.ndarray,
        ids: Sequence[str],
        points: Points,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Return the values of joint draws under all goals; the highest of a row wins.

        Args:
            rewards: Joint draws of warped rewards, (n_draws, n).
            ids: Ids of the n candidates.
            points: Encoded candidates.
            rng: Generator for the draws of the other surrogates.
        """
        values = rewards
        if self.objectives:
            values = self._scalarized(len(rewards), ids, points, rng)
        violation = self.violations(len(rewards), ids, points, rng)
        if violation is None:
            return values
        least = values.min(axis=1, keepdims=True)
        return np.where(violation > 0, least - 1.0 - violation, values)  # (eq. 2)

    def violations(
        self, n: int, ids: Sequence[str], points: Points, rng: np.random.Generator
    ) -> np.ndarray | None:
        """Return the violations of n joint draws in warped units, (n, n_candidates).

        A violation of at most 0 is feasible. ``None`` if no cell violated a constraint.
        """
        if not self.is_constrained:
            return None
        drawn = self.fitted[KEPT].posterior_at(ids, points).warped_draws(rng, n)
        return np.asarray(self._threshold - drawn, np.float64)

    def means(self, ids: Sequence[str], points: Points) -> np.ndarray:
        """Return posterior means of the objectives, (n, n_objectives)."""
        return np.stack([posterior.mean for posterior in self._posteriors(ids, points)], axis=1)

    def intervals(
        self, ids: Sequence[str], points: Points, level: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the objectives' credible intervals, (n, n_objectives) each."""
        ends = [posterior.interval(level) for posterior in self._posteriors(ids, points)]
        return np.stack([low for low, _ in ends], 1), np.stack([high for _, high in ends], 1)

    @property
    def _threshold(self) -> float:
        """Minimum share of satisfied cells of a feasible candidate, warped."""
        least = np.array([1.0 - self.goals.tolerance])  # (eq. 1)
        return float(self.fitted[KEPT].warp.forward(least)[0])

    def _posteriors(self, ids: Sequence[str], points: Points) -> list[WarpedPosterior]:
        return [self.fitted[METRIC + name].posterior_at(ids, points) for name in self.objectives]

    def _upper_bounds(self, ids: Sequence[str], points: Points) -> np.ndarray:
        """Return upper confidence bounds of the objectives, (n, n_objectives)."""
        posteriors = self._posteriors(ids, points)
        moments = [posterior.marginals for posterior in posteriors]
        pairs = zip(posteriors, moments, strict=True)
        return np.stack([p.rewards(mean + UCB_SDS * sd) for p, (mean, sd) in pairs], axis=1)

    def _scalarized(
        self, n: int, ids: Sequence[str], points: Points, rng: np.random.Generator
    ) -> np.ndarray:
        """Return n scalarized joint draws, each along its random direction, (n, n_candidates)."""
        posteriors = self._posteriors(ids, points)
        drawn = np.stack([posterior.draws(rng, n) for posterior in posteriors], axis=2)
        directions = np.abs(rng.standard_normal((n, drawn.shape[2])))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        # Each draw uses its front: the front of the means shrinks to a point while noise hides a
        # metric.
        return np.stack(
            [scalarize(on_front(row), d) for row, d in zip(drawn, directions, strict=True)]
        )


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return each row's rank in ``best_first``, (n,)."""
    rank = np.empty(len(values))
    rank[best_first(values)] = np.arange(len(values))
    return rank
