"""Hollow and straight two-metric fronts: volume, and the share of evaluations at the ends.

    python -m benchmarks.fronts --seeds 5

Both are DTLZ2 (Deb et al. 2005) in four numbers, plain or with squared values. The first number gives a
point's place along the front, the others its distance from it. The best metric value is 1.
``--narrow 0.1`` makes the second metric span a tenth of its scale, where noise hides it.
Peers are Optuna's TPE (multivariate, constant liar) and NSGA-II, with the same generations of 20.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.machine import options
from benchmarks.optimizer.imports import need
from benchmarks.tables import header, row, with_error
from convergence_core.config.evaluation import BaseMetric
from convergence_core.evidence import Measures
from convergence_core.objective import RewardModel, dominated
from convergence_core.posterior import SpaceModel
from convergence_core.records import Cell, Evaluation, Params, Trial
from convergence_core.search.goals import Goals
from convergence_core.search.sampler import AskRequest
from convergence_core.search.samplers import ThompsonSampler
from convergence_core.search.schedule import N_AGAIN
from convergence_core.space import Float, Space

N_NUMBERS = 4
SPACE = Space(parameters={f"x{i}": Float(min=0.0, max=1.0) for i in range(N_NUMBERS)})
METRICS = ("a", "b")
REWARDS = RewardModel(dict.fromkeys(METRICS, BaseMetric(type="function", direction="higher")))
N_GENERATIONS, SIZE = 8, 20
POWERS = {"hollow": 1, "straight": 2}
"""Front shape → power of DTLZ2's values."""
WORST = 2.0
"""Value with metric 0, before the power."""
REFERENCE = 1.1
"""Reference value of the volume, before the power."""
NEAR = 0.03
"""Distance of the first number from 0 or 1 within which a point lies at an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One front."""

    shape: str
    noise: float = 0.0
    """Standard deviation of each metric."""
    narrow: float = 1.0
    """Factor that narrows the second metric's range."""

    def values(self, params: Params) -> np.ndarray:
        """Return the true values, lower is better, (2,)."""
        x = np.array([float(params[f"x{i}"]) for i in range(N_NUMBERS)])
        angle = 0.5 * math.pi * x[0]
        both = np.array([math.cos(angle), math.sin(angle)])
        return np.asarray(((1.0 + ((x[1:] - 0.5) ** 2).sum()) * both) ** POWERS[self.shape])

    def metrics(self, params: Params, rng: np.random.Generator) -> dict[str, float]:
        """Return one answer's noisy metrics, each in [0, 1]."""
        lacking = self.values(params) / WORST ** POWERS[self.shape]
        shown = 1.0 - lacking * (1.0, self.narrow)
        shown = np.clip(shown + self.noise * rng.standard_normal(2), 0.0, 1.0)
        return dict(zip(METRICS, shown.tolist(), strict=True))

    def volume(self, points: Sequence[Params]) -> float:
        """Return the share of the box up to ``REFERENCE`` that true values dominate."""
        highest = REFERENCE ** POWERS[self.shape]
        found = np.array([self.values(params) for params in points])
        return area(np.clip(1.0 - found / highest, 0.0, 1.0))


def area(points: np.ndarray) -> float:
    """Return the share of the unit square that points dominate (Zitzler & Thiele 1999), (n, 2)."""
    front = np.unique(points[~dominated(points)], axis=0)  # the second falls as the first rises
    return float((np.diff(front[:, 0], prepend=0.0) * front[:, 1]).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of one search."""

    volume: float
    at_ends: float
    """Share of the second half's evaluations at the ends of the front."""


def _found(problem: Problem, asked: Sequence[Params]) -> Found:
    late = np.array([float(params["x0"]) for params in asked[len(asked) // 2 :]])
    at_ends = float(np.mean((late < NEAR) | (late > 1.0 - NEAR)))
    return Found(volume=problem.volume(asked), at_ends=at_ends)


def ours(problem: Problem, seed: int) -> Found:
    """Search with ``objective: pareto`` and the default algorithm, one case, ``repeats: 1``."""
    sampler = ThompsonSampler(
        name="mab_evolution",
        space=SPACE,
        surrogate=SpaceModel(space=SPACE),
        goals=Goals(measures=Measures(rewards=REWARDS, constraints=False, metrics=METRICS)),
    )
    rng, noise = np.random.default_rng(seed), np.random.default_rng(1000 + seed)
    state, asked = sampler.start(), list[Params]()
    for generation in range(N_GENERATIONS):
        request = AskRequest(
            generation=generation,
            n_generations=N_GENERATIONS,
            n_candidates=SIZE,
            n_cells=SIZE,
            case_ids=("only",),
            n_again=N_AGAIN,
        )
        trials = []
        for assignment in sampler.ask(state, rng, request).assignments:
            params = assignment.candidate.params
            evaluations = []
            for cell in assignment.cells:
                asked.append(params)
                evaluations.append(_evaluation(cell, generation, problem.metrics(params, noise)))
            trials.append(Trial(candidate=assignment.candidate, evaluations=tuple(evaluations)))
        state = sampler.tell(state, trials)
    return _found(problem, asked)


def _evaluation(cell: Cell, generation: int, metrics: Mapping[str, float]) -> Evaluation:
    score = REWARDS.score(metrics)
    return Evaluation(
        eval_id=f"{cell.candidate_id}-{cell.repeat}",
        cell=cell,
        generation=generation,
        status="ok",
        fault=score.fault,
        reward=score.reward,
        metrics=metrics,
    )


def peer(name: str, problem: Problem, seed: int) -> Found:
    """Search with an Optuna sampler."""
    optuna = need("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = optuna.samplers
    sampler = (
        samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
        if name == "tpe"
        else samplers.NSGAIISampler(seed=seed, population_size=SIZE)
    )
    study = optuna.create_study(directions=["maximize"] * 2, sampler=sampler)
    space = {n: optuna.distributions.FloatDistribution(0.0, 1.0) for n in SPACE.parameters}
    noise, asked = np.random.default_rng(1000 + seed), list[Params]()
    for _ in range(N_GENERATIONS):
        for trial in [study.ask(space) for _ in range(SIZE)]:
            study.tell(trial, list(problem.metrics(trial.params, noise).values()))
            asked.append(trial.params)
    return _found(problem, asked)


def main() -> None:
    """Print a table."""
    args = options(__doc__, seeds=5, opts=("ours", "tpe", "nsga2"), noise=0.0, narrow=1.0)
    print(header("front", "search", "volume", "at the ends"))
    for shape in POWERS:
        problem = Problem(shape=shape, noise=args.noise, narrow=args.narrow)
        for name in args.opts:
            found = [
                ours(problem, seed) if name == "ours" else peer(name, problem, seed)
                for seed in range(args.seeds)
            ]
            at_ends = np.mean([one.at_ends for one in found])
            volume = with_error([one.volume for one in found])
            print(row(shape, name, volume, f"{at_ends:.0%}"), flush=True)


if __name__ == "__main__":
    main()
