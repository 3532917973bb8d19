"""Cost-aware draws: what is predicted, what it changes, what it leaves alone."""

from dataclasses import replace

import numpy as np
import pytest

from convergence_core.config import parse_mapping
from convergence_core.records import Cell, canonical_json
from convergence_core.search.goals import CostAwareSettings, Goals, log_costs, per_cost
from convergence_core.search.sampler import AskRequest, SearchState
from convergence_core.search.samplers import ThompsonSampler, make_sampler
from convergence_core.space.builder import build_space
from tests.support.mixed_problem import CaseProblem, mixed_value
from tests.support.priced_problem import (
    N_CELLS,
    N_GENERATIONS,
    SPACE,
    Priced,
    sampler_with,
    search,
)

USD = CostAwareSettings(per="usd")


def goals_of(sampler: ThompsonSampler) -> Goals:
    assert sampler.goals is not None
    return sampler.goals


@pytest.fixture(scope="module")
def searched() -> tuple[SearchState, Priced]:
    return search(USD, 3, budget=4.0)


# -- arithmetic --------------------------------------------------------------------------------


def test_gains_are_divided_by_relative_costs():
    values = np.array([[1.0, 2.0, 2.0, 0.5, 0.0]])
    costs = np.array([0.01, 0.04, 0.01, 0.01, 0.0025])
    found = per_cost(values, values[:, 0], costs, 1.0)
    assert found[0].tolist() == pytest.approx([0.0, 0.25, 1.0, -0.5, -1.0])
    assert per_cost(values, values[:, 0], costs, 0.5)[0, 1] == pytest.approx(0.5)


def test_a_cost_far_from_the_median_counts_a_hundredfold_at_most():
    values, costs = np.array([0.0, 1.0, 1.0]), np.array([1.0, 1e-9, 1e9])
    found = per_cost(values, np.array(0.0), costs, 1.0)
    assert found.tolist() == pytest.approx([0.0, 100.0, 0.01])


def test_when_all_is_spent_cost_changes_no_order():
    rng = np.random.default_rng(0)
    values, costs = rng.standard_normal((20, 30)), rng.lognormal(0, 2, 30)
    found = per_cost(values, values[:, 0], costs, 0.0)
    assert np.array_equal(np.argsort(found, axis=1), np.argsort(values, axis=1))


def test_cost_counts_less_the_more_is_spent(searched):
    """Whichever is further: the generations, or the money for the search."""
    state, world = searched
    assert USD.exponent(state.archive, 0, 10) == 1.0
    assert USD.exponent(state.archive, 4, 10) == pytest.approx(0.6)
    rich = replace(USD, budget=4 * world.spent)
    assert rich.exponent(state.archive, 0, 10) == pytest.approx(0.75)
    assert rich.exponent(state.archive, 9, 10) == pytest.approx(0.1)
    assert replace(USD, budget=0.5 * world.spent).exponent(state.archive, 0, 10) == 0.0


# -- prediction --------------------------------------------------------------------------------


def test_costs_of_candidates_nobody_asked_are_foretold(searched):
    """Of 200 candidates, within a factor of two nine times of ten; costs differ hundredfold."""
    state, world = searched
    goals = goals_of(sampler_with(USD))
    rng = np.random.default_rng(9)
    some = [SPACE.candidate(SPACE.sample(rng)) for _ in range(200)]
    fitted = goals.fit(state.archive, SPACE)
    costs = fitted.costs([""] * 200, fitted.encoding.encode([one.params for one in some]))
    assert costs is not None
    of_cells = [
        [
            world.usd(one.params, Cell(candidate_id=one.candidate_id, case_id=str(j)))
            for j in range(9)
        ]
        for one in some
    ]
    ratio = costs / np.median(of_cells, axis=1)
    assert np.mean((ratio > 0.5) & (ratio < 2.0)) > 0.9, np.quantile(ratio, [0.05, 0.5, 0.95])


def test_the_mean_of_logarithms_has_the_relative_error_of_a_cell(searched):
    """Cells lie lognormally around their candidate's cost, with sd .3."""
    means = log_costs(searched[0].archive)
    assert means.variance == pytest.approx(np.expm1(0.3**2), rel=0.25)
    assert len(means) == len(searched[0].archive)


# -- what changes, and what does not -----------------------------------------------------------


def test_where_no_cost_is_known_every_plan_is_that_of_a_search_without():
    def told(sampler: ThompsonSampler) -> list[object]:
        problem = CaseProblem(space=SPACE, value=mixed_value, n_cases=20)
        rng, state, plans = np.random.default_rng(1), sampler.start(), []
        for generation in range(3):
            request = AskRequest(
                generation=generation,
                n_generations=3,
                n_candidates=16,
                n_cells=60,
                case_ids=problem.case_ids,
            )
            plans.append(sampler.ask(state, rng, request))
            state = sampler.tell(state, problem.evaluate(plans[-1], generation))
        return [*plans, state.regret_upper_bound]

    assert told(sampler_with(USD)) == told(sampler_with(None))


def test_what_is_left_to_gain_does_not_ask_what_it_would_cost(searched):
    """Prices a thousandfold apart leave it as it is, for the pool is screened by promise alone."""
    state, _ = searched
    sampler = sampler_with(USD)
    blind = replace(sampler, goals=replace(goals_of(sampler), costs=None))
    again = sampler.tell(state, [])
    assert again.regret_upper_bound == blind.tell(state, []).regret_upper_bound


def test_a_state_with_costs_plans_the_same_after_json(searched):
    state, _ = searched
    again = SearchState.from_json(state.to_json())
    assert canonical_json(again.to_json()) == canonical_json(state.to_json())
    request = AskRequest(
        generation=3,
        n_generations=N_GENERATIONS,
        n_candidates=16,
        n_cells=N_CELLS,
        case_ids=tuple(f"case-{j:03d}" for j in range(20)),
    )
    plans = [
        sampler_with(USD).ask(one, np.random.default_rng(4), request) for one in (state, again)
    ]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("per", ["usd", "seconds"])
def test_the_configuration_switches_it_on(per):
    sections = {
        "api": {"name": "x", "function": "m:f"},
        "search_space": {"parameters": {"x": {"type": "float", "min": 0, "max": 1}}},
        "evaluation": {"test_cases": {"path": "c.json"}, "metrics": {"exact_match": {}}},
    }
    plain = parse_mapping(sections)
    assert Goals.of(plain) is None
    cfg = parse_mapping({**sections, "optimization": {"cost_aware": per}})
    sampler = make_sampler(cfg, build_space(cfg.search_space, {}))
    assert isinstance(sampler, ThompsonSampler)
    assert goals_of(sampler).costs == CostAwareSettings(per=per)
    capped = {**sections, "optimization": {"cost_aware": per}, "budget": {"max_usd": 10}}
    with_limit = CostAwareSettings.of(parse_mapping(capped))
    assert with_limit is not None
    # Three tenths of the money are kept for the final test.
    assert with_limit.budget == (pytest.approx(7.0) if per == "usd" else None)
    assert goals_of(sampler).measures.cost == per


# -- worth -------------------------------------------------------------------------------------
