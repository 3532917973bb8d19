"""The front of a Pareto run and what constraints did, as the report tells them."""

from dataclasses import replace

import numpy as np
import pytest

from convergence_core.objective import RewardModel, dominated
from convergence_core.posterior import SpaceModel
from convergence_core.result import Front
from convergence_core.search.goals import Goals
from convergence_core.search.recommend import Recommendation, recommend
from convergence_core.search.sampler import SearchState
from convergence_core.search.samplers import RandomSampler
from convergence_core.space import Space
from tasks.report.front import pareto_front
from tasks.report.markdown import report_markdown
from tasks.report.phrases import constraint_reason
from tests.support.goals_problem import GoalsProblem, constrained, two_metrics
from tests.support.mixed_problem import mixed_space
from tests.support.results import made_up_result

SPACE = mixed_space()
REWARDS, PARETO = two_metrics()


def searched(goals: Goals, n_generations: int = 3) -> SearchState:
    problem = GoalsProblem(goals.measures.rewards, seed=1)
    sampler = RandomSampler(space=SPACE, cases_per_candidate=5, goals=goals)
    return problem.run(sampler, seed=1, n_generations=n_generations, n_cells=60)


def names_of(state: SearchState, space: Space = SPACE) -> dict[str, str]:
    return space.names({m.candidate.candidate_id: m.candidate.params for m in state.archive})


@pytest.fixture(scope="module")
def state() -> SearchState:
    return searched(PARETO)


@pytest.fixture(scope="module")
def front(state: SearchState) -> Front:
    found = pareto_front(PARETO.fit(state.archive, SPACE), state, names_of(state), level=0.9)
    assert found is not None
    return found


def test_no_point_of_the_front_is_dominated_and_all_others_are(front, state):
    rows = [[p.means[name] for name in front.objectives] for p in front.points]
    others = [[p.means[name] for name in front.objectives] for p in front.dominated]
    assert rows
    assert others
    assert dominated(np.array(rows + others)).tolist() == [False] * len(rows) + [True] * len(
        others
    )
    assert front.n_dominated == len(others)
    assert len(rows) + len(others) == len(state.archive)


def test_intervals_hold_the_means(front):
    for point in (*front.points, *front.dominated):
        for name in front.objectives:
            assert 0 <= point.lows[name] <= point.means[name] <= point.highs[name] <= 1


def test_infeasible_candidates_are_left_out_and_counted():
    _, constraint = constrained()
    both = replace(
        constraint,
        measures=replace(
            constraint.measures,
            rewards=RewardModel(
                {
                    name: metric.model_copy(update={"weight": 1.0})
                    for name, metric in constraint.measures.rewards.metrics.items()
                }
            ),
            metrics=("quality", "seconds"),
        ),
    )
    state = searched(both)
    found = pareto_front(both.fit(state.archive, SPACE), state, names_of(state), level=0.9)
    assert found is not None
    assert found.n_infeasible > 0
    n = len(found.points) + found.n_dominated + found.n_infeasible
    assert n == len(state.archive)
    text = report_markdown(replace(made_up_result(), front=found))
    assert "a hard constraint too often" in text


# -- constraints -------------------------------------------------------------------------------


def reason(recommendation: Recommendation, space: Space, state: SearchState) -> str:
    return constraint_reason(recommendation, names_of(state, space), 0.1)


@pytest.fixture(scope="module")
def constrained_state() -> tuple[SearchState, Recommendation]:
    _, goals = constrained()
    state = searched(goals)
    found = recommend(
        state,
        rng=np.random.default_rng(0),
        surrogate=SpaceModel(space=SPACE),
        goals=goals.fit(state.archive, SPACE),
    )
    assert found is not None
    return state, found


def test_who_was_passed_over_is_named_with_its_probability(constrained_state):
    state, found = constrained_state
    mean = found.mean + 0.125
    other = next(ranked for ranked in found.ranking if not ranked.is_feasible)
    raised = replace(other, mean=mean, feasible=0.2)
    ranking = tuple(raised if r == other else r for r in found.ranking)
    said = reason(replace(found, ranking=ranking), SPACE, state)
    assert f"{mean:.3f}" in said
    assert "but breaks a hard constraint in more than 10 % of its answers" in said
    assert "with a probability of 80 %" in said


def test_nothing_is_said_where_constraints_had_no_part(constrained_state):
    state, found = constrained_state
    ranking = tuple(replace(r, feasible=None) for r in found.ranking)
    assert reason(replace(found, ranking=ranking), SPACE, state) == ""
