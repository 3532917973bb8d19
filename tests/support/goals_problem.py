"""Problems with several metrics per cell and a known truth: constraints and trade-offs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr

from convergence_core.evidence import Measures
from convergence_core.objective import RewardModel
from convergence_core.records import Cell, Evaluation, Params, Trial
from convergence_core.search.goals import Goals
from convergence_core.search.sampler import AskRequest, Plan, Sampler, SearchState
from convergence_core.space import Choice, Float, Space
from tests.support.mixed_problem import _noise, mixed_space, mixed_value
from tests.support.single_metrics import metric

SLOW = {"mini": 0.25, "base": 0.45, "large": 0.7, "turbo": 0.68}
"""Median seconds of an answer."""
LATENCY_SD = 0.3
"""Of the logarithm of seconds."""

Truth = Callable[[Params], float]


def steep_value(params: Params) -> float:
    """True value in [0, 1]; what is fast enough reaches .7."""
    return mixed_value(params) ** 2


def seconds(params: Params) -> float:
    """Median latency: slow models, thinking prompts and much context take longer."""
    found = SLOW[str(params["model"])]
    found *= {"cot": 1.5, "fewshot": 1.2}.get(str(params["prompt"]), 1.0)
    return found * (1.0 + 0.02 * float(params["k"]) if params["rag"] else 1.0)


def share_late(params: Params) -> float:
    """Probability that an answer takes more than a second."""
    return float(ndtr(math.log(seconds(params)) / LATENCY_SD))


@dataclass
class GoalsProblem:
    """Quality by ``steep_value`` and seconds by ``seconds``, asked case by case."""

    rewards: RewardModel
    n_cases: int = 20
    seed: int = 0
    space: Space = field(default_factory=mixed_space)
    value: Truth = steep_value
    """True value, in [0, 1]."""
    seconds: Truth = seconds
    """Median seconds."""
    n_asked: int = 0
    n_late: int = 0

    @property
    def case_ids(self) -> tuple[str, ...]:
        return tuple(f"case-{j:03d}" for j in range(self.n_cases))

    def metrics(self, params: Params, cell: Cell) -> dict[str, float]:
        effect = 0.15 * _noise(self.seed, cell.case_id).standard_normal()
        g = _noise(self.seed, cell.candidate_id, cell.case_id, cell.repeat)
        quality = 0.15 + 0.7 * self.value(params) + effect + 0.15 * g.standard_normal()
        late = self.seconds(params) * math.exp(LATENCY_SD * g.standard_normal())
        return {"quality": min(1.0, max(0.0, quality)), "seconds": late}

    def evaluate(self, plan: Plan, generation: int) -> list[Trial]:
        trials = []
        for assignment in plan.assignments:
            found = []
            for cell in assignment.cells:
                metrics = self.metrics(assignment.candidate.params, cell)
                scored = self.rewards.score(metrics)
                self.n_asked += 1
                self.n_late += metrics["seconds"] > 1.0
                found.append(
                    Evaluation(
                        eval_id=f"{cell.candidate_id}-{cell.case_id}-{cell.repeat}",
                        cell=cell,
                        generation=generation,
                        status="ok",
                        fault=scored.fault,
                        reward=scored.reward,
                        metrics=metrics,
                    )
                )
            trials.append(Trial(candidate=assignment.candidate, evaluations=tuple(found)))
        return trials

    def run(self, sampler: Sampler, *, seed: int, n_generations: int, n_cells: int) -> SearchState:
        """Search with as many cells in each generation."""
        rng, state = np.random.default_rng(seed), sampler.start()
        for generation in range(n_generations):
            request = AskRequest(
                generation=generation,
                n_generations=n_generations,
                n_candidates=16,
                n_cells=n_cells,
                case_ids=self.case_ids,
            )
            plan = sampler.ask(state, rng, request)
            state = sampler.tell(state, self.evaluate(plan, generation))
        return state


def constrained() -> tuple[RewardModel, Goals]:
    """Quality is the reward; answers after a second are worth nothing."""
    rewards = RewardModel(
        {
            "quality": metric(),
            "seconds": metric(
                weight=0.0, direction="lower", scale={"good": 0.0, "bad": 2.0}, max=1.0
            ),
        }
    )
    return rewards, Goals(measures=Measures(rewards=rewards, constraints=True))


def two_metrics(weight_of_seconds: float = 1.0) -> tuple[RewardModel, Goals]:
    """Quality against seconds, of which none is worth 1 and two are worth nothing."""
    rewards = RewardModel(
        {
            "quality": metric(),
            "seconds": metric(
                weight=weight_of_seconds, direction="lower", scale={"good": 0.0, "bad": 2.0}
            ),
        }
    )
    measures = Measures(rewards=rewards, constraints=False, metrics=("quality", "seconds"))
    return rewards, Goals(measures=measures)


def effort_space() -> Space:
    """How long a model may think, and settings whose best values depend on it."""
    return Space(
        parameters={
            "effort": Float(min=0.0, max=1.0),
            "temperature": Float(min=0.0, max=1.0),
            "top_p": Float(min=0.0, max=1.0),
            "style": Choice(kind="categorical", choices=("terse", "plain", "long", "steps")),
        }
    )


def effort_value(params: Params) -> float:
    """True value in [0, 1]: more effort is better, if the other settings follow."""
    effort = float(params["effort"])
    loss = 1.5 * (float(params["temperature"]) - 0.2 - 0.6 * effort) ** 2
    loss += 1.0 * (float(params["top_p"]) - 0.8 + 0.5 * effort) ** 2
    at_best = {"terse": 0.0, "plain": 0.35, "long": 0.7, "steps": 1.0}[str(params["style"])]
    loss += 0.4 * abs(effort - at_best)
    return math.sqrt(effort) * max(0.0, 1.0 - loss)


def effort_seconds(params: Params) -> float:
    """Median seconds: from a tenth to nearly two."""
    return 0.1 + 1.7 * float(params["effort"])
