"""A racing sampler on the mixed problem: requests, what it is told, and who is new in its plans."""

import numpy as np

from convergence_core.posterior import SpaceModel
from convergence_core.records import Candidate
from convergence_core.search.sampler import AskRequest, Plan, Sampler, SearchState
from convergence_core.search.samplers import ThompsonSampler
from tests.support.mixed_problem import mixed_space, mixed_value, trial

SPACE = mixed_space()
CASES = tuple(f"case-{j:02d}" for j in range(20))
RACING = ThompsonSampler(name="mab_evolution", space=SPACE, surrogate=SpaceModel(space=SPACE))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def request(generation: int = 0, **changes: object) -> AskRequest:
    settings: dict[str, object] = {
        "n_generations": 10,
        "n_candidates": 8,
        "n_cells": 160,
        "case_ids": CASES,
        **changes,
    }
    return AskRequest(generation=generation, **settings)  # type: ignore[arg-type]


def tell(
    sampler: Sampler, state: SearchState, plan: Plan, *, missing: bool = False
) -> SearchState:
    """Rewards by true value and a little luck of the cell; none at all if ``missing``."""
    trials = []
    for assignment in plan.assignments:
        value = mixed_value(assignment.candidate.params)
        rewards = {
            cell: None if missing else min(1.0, 0.8 * value + 0.01 * (int(cell.case_id[-2:]) % 5))
            for cell in assignment.cells
        }
        trials.append(trial(assignment.candidate, rewards))
    return sampler.tell(state, trials)


def told(sampler: Sampler, n_generations: int, **changes: object) -> SearchState:
    state, g = sampler.start(), rng(1)
    for generation in range(n_generations):
        plan = sampler.ask(state, g, request(generation, **changes))
        state = tell(sampler, state, plan)
    return state


def newcomers(plan: Plan, state: SearchState) -> list[Candidate]:
    candidates = [assignment.candidate for assignment in plan.assignments]
    return [c for c in candidates if c.candidate_id not in state.archive]
