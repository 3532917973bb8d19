"""A problem whose candidates cost fifty times one another, searched until its money is spent."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from convergence_core.evidence import Measures
from convergence_core.objective import MetricRule, RewardModel
from convergence_core.posterior import SpaceModel
from convergence_core.records import Candidate, Cell, Evaluation, Params, Trial
from convergence_core.search.goals import CostAwareSettings, Goals
from convergence_core.search.recommend import recommend
from convergence_core.search.sampler import AskRequest, Plan, SearchState
from convergence_core.search.samplers import ThompsonSampler
from tests.support.mixed_problem import CaseProblem, _noise, mixed_space, mixed_value

SPACE = mixed_space()
MODEL = SpaceModel(space=SPACE)
N_GENERATIONS, N_CELLS = 10, 80
USD_SD = 0.3
"""Of the logarithm of a cell's cost around its candidate's."""


def prices(seed: int) -> dict[str, float]:
    """Median dollars of a cell by model: the dearest costs fifty times the cheapest."""
    rng = np.random.default_rng([seed, 4])
    names = list(rng.permutation(["mini", "base", "large", "turbo"]))
    return dict(zip(names, np.geomspace(0.001, 0.05, 4).tolist(), strict=True))


@dataclass
class Priced:
    """A problem that bills each cell, and answers no more when the money is spent."""

    problem: CaseProblem
    prices: Mapping[str, float]
    budget: float
    spent: float = 0.0

    def usd(self, params: Params, cell: Cell) -> float:
        """Dollars of a cell: by model, twice as much for thinking prompts, and some luck."""
        g = _noise(self.problem.seed, "usd", cell.candidate_id, cell.case_id, cell.repeat)
        median = self.prices[str(params["model"])] * (2.0 if params["prompt"] == "cot" else 1.0)
        return float(median * math.exp(USD_SD * g.standard_normal()))

    def trials(self, plan: Plan, generation: int) -> list[Trial]:
        """Answer the plan's cells in turn; what the money does not buy is not answered."""
        found: dict[str, tuple[Candidate, list[Evaluation]]] = {}
        for assignment in plan.assignments:
            for cell in assignment.cells:
                usd = self.usd(assignment.candidate.params, cell)
                if self.spent + usd > self.budget:
                    continue
                self.spent += usd
                own = found.setdefault(cell.candidate_id, (assignment.candidate, []))
                own[1].append(
                    Evaluation(
                        eval_id=f"{cell.candidate_id}-{cell.case_id}-{cell.repeat}",
                        cell=cell,
                        generation=generation,
                        status="ok",
                        reward=self.problem.reward(assignment.candidate.params, cell),
                        latency_ms=1000.0 * usd,
                        cost_usd=usd,
                    )
                )
        return [Trial(candidate=c, evaluations=tuple(own)) for c, own in found.values()]


def sampler_with(costs: CostAwareSettings | None) -> ThompsonSampler:
    """The default sampler, with cost-aware draws or without."""
    goals = None
    if costs is not None:
        rewards = RewardModel(rules=(MetricRule(name="quality"),))
        measures = Measures(rewards=rewards, constraints=False, cost=costs.per)
        goals = Goals(measures=measures, costs=costs)
    return ThompsonSampler(
        name="mab_evolution", space=SPACE, surrogate=MODEL, exploration_rate=0.1, goals=goals
    )


def search(
    costs: CostAwareSettings | None,
    seed: int,
    *,
    value: Callable[[Params], float] = mixed_value,
    budget: float,
    n_cases: int = 20,
) -> tuple[SearchState, Priced]:
    """Search until all generations were run or the money is spent."""
    problem = CaseProblem(space=SPACE, value=value, n_cases=n_cases, seed=seed)
    world = Priced(problem=problem, prices=prices(seed), budget=budget)
    sampler = sampler_with(None if costs is None else replace(costs, budget=budget))
    rng, state = np.random.default_rng(seed), sampler.start()
    for generation in range(N_GENERATIONS):
        request = AskRequest(
            generation=generation,
            n_generations=N_GENERATIONS,
            n_candidates=16,
            n_cells=N_CELLS,
            case_ids=problem.case_ids,
        )
        trials = world.trials(sampler.ask(state, rng, request), generation)
        if not trials:
            break
        state = sampler.tell(state, trials)
    return state, world


def handed_over(state: SearchState) -> Params:
    """Whom the evidence would hand over."""
    found = recommend(state, rng=np.random.default_rng(0), surrogate=MODEL)
    assert found is not None
    return state.archive.members[found.candidate_id].candidate.params
