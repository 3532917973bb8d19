"""Searches whose breeding operators are chosen, and outcomes of their generations."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from convergence_core.search.meta_optimizer import META_KEY, GenerationGains, OperatorCredit
from convergence_core.search.racing import Competitors
from convergence_core.search.sampler import Plan, SearchState
from convergence_core.search.samplers import ThompsonSampler, make_sampler
from tests.support import problems


def memory_of(entry: Any) -> Any:
    """Return a sampler's memory in which a meta-optimizer has left something."""
    return {META_KEY: entry}


def sampler(name: str) -> ThompsonSampler:
    """Return the default sampler with a meta-optimizer."""
    made = make_sampler(problems.configuration("mab_evolution"), problems.space())
    assert isinstance(made, ThompsonSampler)
    return replace(made, meta_optimizer=OperatorCredit() if name == "credit" else None)


def ids_of(plans: Iterable[Plan]) -> list[str]:
    return [one.candidate.candidate_id for plan in plans for one in plan.assignments]


@cache
def whole_search(name: str) -> tuple[list[SearchState], list[str]]:
    """Return a search of six generations."""
    return searched(sampler(name))


def searched(made: ThompsonSampler, n: int = 6) -> tuple[list[SearchState], list[str]]:
    """Run a search; return its states, the first before any evidence, and the candidates asked."""
    world, rng = problems.World(3), np.random.default_rng([3, 2])
    states, plans = [made.start()], []
    for generation in range(n):
        request = problems.request(world, generation, n, 300)
        plan = made.ask(states[-1], rng, request)
        plans.append(plan)
        states.append(made.tell(states[-1], world.trials(plan, generation)))
    return states, ids_of(plans)


@cache
def after_a_search(n: int) -> Competitors:
    """Return those who compete after n generations."""
    made = sampler("fixed")
    states, _ = searched(made, n)
    fitted = made.surrogate.fit(states[-1].archive)
    return made.competitors(states[-1].archive, fitted, {}, n_steps=0)


def outcome(operators: list[int], gains: list[float]) -> GenerationGains:
    """Return an outcome whose competitors are those of a small search."""
    competitors = after_a_search(2)
    n = len(competitors.members)
    filled = [*operators, *[-1] * (n - len(operators))]
    return GenerationGains(
        competitors=competitors,
        generation=1,
        leader=0,
        operators=np.array(filled),
        gains=np.array([*gains, *[0.0] * (n - len(gains))]),
        n_cells=300,
    )
