"""What every sampler promises; parametrized over the registry, so none can skip it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from convergence_core.config import parse_mapping
from convergence_core.config.optimization import Algorithm
from convergence_core.records import Evaluation, Params, Trial, canonical_json
from convergence_core.search.sampler import Advice, Plan, Sampler, SearchState
from convergence_core.search.samplers import ThompsonSampler, make_sampler
from convergence_core.space.builder import build_space
from tests.support.problems import World, configuration, request, search, space

ALGORITHMS = get_args(Algorithm)

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=sorted(ALGORITHMS))
def sampler(request: pytest.FixtureRequest) -> Sampler:
    return make_sampler(configuration(request.param), space())


def told(sampler: Sampler, world: World, n: int) -> tuple[SearchState, np.random.Generator]:
    """Return the state after some generations, and the generator as it is then."""
    rng = np.random.default_rng(5)
    state = sampler.start()
    for generation in range(n):
        plan = sampler.ask(state, rng, request(world, generation, 6, 200))
        state = sampler.tell(state, world.trials(plan, generation))
    return state, rng


def test_it_is_a_sampler_and_bears_the_name_that_selects_it(sampler: Sampler):
    assert isinstance(sampler, Sampler)
    assert sampler.name in ALGORITHMS
    assert set(ALGORITHMS) == {"mab_evolution", "thompson", "evolution", "random"}


def test_plans_keep_their_limits_and_repeat_nothing(sampler: Sampler):
    """Samplers that race spread a population's cells over more new candidates, five each here."""
    points = space()
    state, plans = search(sampler, seed=1)
    most = 12 if sampler.name in {"random", "evolution"} else 300 // 5
    asked = set()
    for generation, plan in enumerate(plans):
        assert plan.n_cells <= 300
        members = [state.archive.members[a.candidate.candidate_id] for a in plan.assignments]
        assert sum(member.generation == generation for member in members) <= most
        ids = [assignment.candidate.candidate_id for assignment in plan.assignments]
        assert len(ids) == len(set(ids))
        for assignment in plan.assignments:
            assert assignment.cells
            assert not points.validate(assignment.candidate.params)
            assert (
                points.candidate_id(assignment.candidate.params)
                == assignment.cells[0].candidate_id
            )
            for cell in assignment.cells:
                assert cell.candidate_id == assignment.candidate.candidate_id
                assert cell.role == "search"
                assert cell not in asked
                asked.add(cell)
    assert asked


def test_the_same_seed_gives_the_same_search_and_another_another(sampler: Sampler):
    plans = search(sampler, seed=3, n_generations=4)[1]
    assert search(sampler, seed=3, n_generations=4)[1] == plans
    assert search(sampler, seed=4, n_generations=2)[1] != plans[:2]


@pytest.mark.slow
def test_another_process_with_another_hash_seed_makes_the_same_plans():
    code = (
        "from tests.support.problems import configuration, search, space\n"
        "from convergence_core.search.samplers import make_sampler\n"
        f"for name in {ALGORITHMS!r}:\n"
        "    sampler = make_sampler(configuration(name), space())\n"
        "    for plan in search(sampler, 3, n_generations=3)[1]:\n"
        "        for a in plan.assignments: print(a.candidate.candidate_id, len(a.cells))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    samplers = [make_sampler(configuration(name), space()) for name in ALGORITHMS]
    assert output.splitlines() == [
        f"{a.candidate.candidate_id} {len(a.cells)}"
        for sampler in samplers
        for plan in search(sampler, 3, n_generations=3)[1]
        for a in plan.assignments
    ]


def test_a_state_that_went_through_json_plans_the_same(sampler: Sampler):
    world = World(7)
    state, rng = told(sampler, world, 3)
    assert state.canonical_json == canonical_json(state.to_json())
    again = SearchState.from_json(json.loads(state.canonical_json))
    assert again == state
    saved = json.loads(json.dumps(rng.bit_generator.state))
    other = np.random.default_rng()
    other.bit_generator.state = saved
    ask = request(world, 3, 6, 200)
    assert sampler.ask(again, other, ask) == sampler.ask(state, rng, ask)


def test_the_order_of_trials_does_not_matter(sampler: Sampler):
    world = World(8)
    state, rng = told(sampler, world, 2)
    trials = world.trials(sampler.ask(state, rng, request(world, 2, 6, 200)), 2)
    assert sampler.tell(state, trials) == sampler.tell(state, trials[::-1])


def test_the_baseline_is_asked_first(sampler: Sampler):
    world = World(1)
    params: Params = {"model": "base", "prompt": "plain", "temperature": 1.0}
    ask = replace(request(world, 0, 6, 200), baseline=params)
    plan = sampler.ask(sampler.start(), np.random.default_rng(0), ask)
    (default,) = [a for a in plan.assignments if a.candidate.origin == "default"]
    assert dict(default.candidate.params) == params


def test_advice_becomes_candidates(sampler: Sampler):
    world = World(1)
    params: Params = {"model": "large", "prompt": "plain", "temperature": 0.9}
    ask = replace(request(world, 0, 6, 200), advice=Advice(proposals=(params,)))
    plan = sampler.ask(sampler.start(), np.random.default_rng(0), ask)
    advised = [dict(a.candidate.params) for a in plan.assignments if a.candidate.origin == "rlp"]
    has_posterior = isinstance(sampler, ThompsonSampler)
    assert advised == ([params] if has_posterior else []), "only a posterior weighs advice"


def test_repeats_are_asked_when_everything_else_is_known(sampler: Sampler):
    """With one case and three repeats, no cell is asked twice and repeats stay in range."""
    world = World(1, n_cases=1)
    rng = np.random.default_rng(0)
    state, seen = sampler.start(), set()
    for generation in range(4):
        plan = sampler.ask(state, rng, request(world, generation, 4, 30, repeats=3))
        for assignment in plan.assignments:
            for cell in assignment.cells:
                assert 0 <= cell.repeat < 3
                assert cell not in seen
                seen.add(cell)
        state = sampler.tell(state, world.trials(plan, generation))


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_an_exhausted_space_ends_in_an_empty_plan(name: str):
    cfg = parse_mapping(
        {
            "api": {"name": "tiny", "function": "m:f"},
            "search_space": {"parameters": {"on": {"type": "boolean"}}},
            "evaluation": {
                "test_cases": {"path": "c.json"},
                "metrics": {"exact_match": {"weight": 1}},
            },
            "optimization": {"algorithm": name},
        }
    )
    sampler = make_sampler(cfg, build_space(cfg.search_space, {}))
    rng, state = np.random.default_rng(0), sampler.start()
    world = World(1, n_cases=4)
    n_cells = 0
    for generation in range(12):
        plan = sampler.ask(state, rng, request(world, generation, 12, 100))
        if not plan.assignments:
            break
        n_cells += plan.n_cells
        rewarded = [
            replace(t, evaluations=tuple(replace(e, reward=0.5) for e in t.evaluations))
            for t in _constant(plan, generation)
        ]
        state = sampler.tell(state, rewarded)
    else:
        pytest.fail("the search never ended")
    assert n_cells <= 8


def _constant(plan: Plan, generation: int) -> list[Trial]:
    return [
        Trial(
            candidate=a.candidate,
            evaluations=tuple(
                Evaluation(eval_id=str(i), cell=cell, generation=generation, status="ok", reward=0)
                for i, cell in enumerate(a.cells)
            ),
        )
        for a in plan.assignments
    ]
