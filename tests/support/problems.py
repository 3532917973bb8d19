"""A problem whose optimum is known: mixed parameters, cases of differing difficulty, noise."""

from collections.abc import Mapping

import numpy as np

from convergence_core.config import Configuration, parse_mapping
from convergence_core.records import Candidate, Evaluation, Params, Trial, eval_id_of
from convergence_core.search.sampler import AskRequest, Plan, Sampler, SearchState
from convergence_core.space import Space
from convergence_core.space.builder import build_space

MODELS: Mapping[str, tuple[float, float]] = {
    "mini": (0.45, 0.3),
    "base": (0.60, 0.5),
    "large": (0.70, 0.9),
    "turbo": (0.65, 0.2),
}
"""Model → its height and its temperature of highest reward."""
PROMPTS: Mapping[str, float] = {"plain": 0.0, "cot": 0.10, "fewshot": 0.07}


def configuration(algorithm: str, **optimization: object) -> Configuration:
    """Return a configuration of the problem."""
    return parse_mapping(
        {
            "api": {"name": "mixed", "function": "m:f"},
            "search_space": {
                "parameters": {
                    "model": {"type": "categorical", "choices": list(MODELS)},
                    "prompt": {"type": "categorical", "choices": list(PROMPTS)},
                    "temperature": {"type": "float", "min": 0.0, "max": 1.5},
                    "top_p": {"type": "float", "min": 0.1, "max": 1.0, "when": {"prompt": "cot"}},
                }
            },
            "evaluation": {
                "test_cases": {"path": "cases.json"},
                "metrics": {"exact_match": {"weight": 1}},
            },
            "optimization": {"algorithm": algorithm, **optimization},
        }
    )


def space() -> Space:
    """Return the problem's search space."""
    return build_space(configuration("random").search_space, {})


def worth(params: Params) -> float:
    """Return the true mean reward of a point, in [0, .8]."""
    height, warm = MODELS[str(params["model"])]
    loss = 0.35 * (float(params["temperature"]) - warm) ** 2
    if "top_p" in params:
        loss += 0.25 * (float(params["top_p"]) - 0.85) ** 2
    return max(0.0, height + PROMPTS[str(params["prompt"])] - loss)


class World:
    """Answers cells of the problem; a cell asked twice gets the same answer."""

    def __init__(self, seed: int, n_cases: int = 60) -> None:
        self.seed = seed
        rng = np.random.default_rng([seed, 1])
        self.case_to_ease = {f"c{i:03d}": float(rng.normal(0, 0.2)) for i in range(n_cases)}

    @property
    def case_ids(self) -> tuple[str, ...]:
        return tuple(self.case_to_ease)

    def reward(self, candidate: Candidate, case_id: str, repeat: int) -> float:
        key = [self.seed, int(candidate.candidate_id, 16) % 2**32, int(case_id[1:]), repeat]
        noise = np.random.default_rng(key).normal(0, 0.15)
        return float(np.clip(worth(candidate.params) + self.case_to_ease[case_id] + noise, 0, 1))

    def trials(self, plan: Plan, generation: int) -> list[Trial]:
        return [
            Trial(
                candidate=assignment.candidate,
                evaluations=tuple(
                    Evaluation(
                        eval_id=eval_id_of("run", generation, cell),
                        cell=cell,
                        generation=generation,
                        status="ok",
                        reward=self.reward(assignment.candidate, cell.case_id, cell.repeat),
                    )
                    for cell in assignment.cells
                ),
            )
            for assignment in plan.assignments
        ]


def search(
    sampler: Sampler, seed: int, *, n_generations: int = 8, n_cells: int = 300, n_cases: int = 60
) -> tuple[SearchState, list[Plan]]:
    """Run a whole search and return its last state and its plans."""
    world = World(seed, n_cases)
    rng = np.random.default_rng([seed, 2])
    state, plans = sampler.start(), []
    for generation in range(n_generations):
        plan = sampler.ask(state, rng, request(world, generation, n_generations, n_cells))
        plans.append(plan)
        state = sampler.tell(state, world.trials(plan, generation))
    return state, plans


def request(
    world: World, generation: int, n_generations: int, n_cells: int, repeats: int = 1
) -> AskRequest:
    """Return the request of one generation."""
    return AskRequest(
        generation=generation,
        n_generations=n_generations,
        n_candidates=12,
        n_cells=n_cells,
        case_ids=world.case_ids,
        repeats=repeats,
    )
