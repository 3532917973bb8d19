"""Constraints and fronts: what they change, what they leave alone, and what they are worth."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from convergence_core.config import parse_mapping
from convergence_core.config.optimization import Algorithm
from convergence_core.evidence import METRIC
from convergence_core.explanation.explain import discards
from convergence_core.objective import RewardModel, best_first
from convergence_core.posterior import SpaceModel
from convergence_core.posterior.selection_bias import N_LEADERS, SelectionBias
from convergence_core.records import PROBABLY, canonical_json
from convergence_core.search.goals import MEMORY_KEY, UCB_SDS, Goals
from convergence_core.search.racing import Competitors, Rules
from convergence_core.search.recommend import Recommendation, recommend
from convergence_core.search.sampler import AskRequest, Plan, Sampler, SearchState
from convergence_core.search.samplers import ThompsonSampler, make_sampler
from convergence_core.space import Space
from convergence_core.space.arrays import Encoding
from convergence_core.space.builder import build_space
from tests.support.goals_problem import (
    GoalsProblem,
    constrained,
    effort_seconds,
    effort_space,
    effort_value,
    share_late,
    two_metrics,
)
from tests.support.mixed_problem import mixed_space

ALGORITHMS = get_args(Algorithm)

SPACE, EFFORT = mixed_space(), effort_space()
PLAIN = ThompsonSampler(name="mab_evolution", space=SPACE, surrogate=SpaceModel(space=SPACE))
REWARDS, CONSTRAINED = constrained()
PAIR, PARETO = two_metrics()
"""Highest true value of 40,000 random configurations of which at most a tenth is late."""


def thompson(space: Space, goals: Goals | None) -> ThompsonSampler:
    return replace(PLAIN, space=space, surrogate=SpaceModel(space=space), goals=goals)


def effort_problem(seed: int) -> GoalsProblem:
    return GoalsProblem(PAIR, seed=seed, space=EFFORT, value=effort_value, seconds=effort_seconds)


def handed_over(state: SearchState, goals: Goals | None, space: Space = SPACE) -> Recommendation:
    found = recommend(
        state,
        rng=np.random.default_rng(0),
        surrogate=SpaceModel(space=space),
        goals=None if goals is None else goals.fit(state.archive, space),
    )
    assert found is not None
    return found


def plan(sampler: Sampler, state: SearchState, generation: int = 3) -> Plan:
    case_ids = tuple(f"case-{j:03d}" for j in range(20))
    request = AskRequest(
        generation=generation, n_generations=8, n_candidates=16, n_cells=60, case_ids=case_ids
    )
    return sampler.ask(state, np.random.default_rng(4), request)


@pytest.fixture(scope="module")
def searched() -> SearchState:
    """Four constrained generations."""
    sampler = thompson(SPACE, CONSTRAINED)
    return GoalsProblem(REWARDS, seed=2).run(sampler, seed=2, n_generations=4, n_cells=80)


@pytest.fixture(scope="module")
def fronted() -> SearchState:
    """Four generations of a Pareto run."""
    sampler = thompson(EFFORT, PARETO)
    return effort_problem(1).run(sampler, seed=1, n_generations=4, n_cells=60)


# -- left alone --------------------------------------------------------------------------------


def test_a_constraint_that_no_cell_breaks_changes_no_plan():
    """Bit by bit the plans of a sampler that knows of no constraint."""
    seconds = REWARDS.metrics["seconds"].model_copy(update={"max": 1e9})
    loose = RewardModel({**REWARDS.metrics, "seconds": seconds})
    goals = replace(CONSTRAINED, measures=replace(CONSTRAINED.measures, rewards=loose))
    found = [
        GoalsProblem(loose, seed=3).run(thompson(SPACE, own), seed=3, n_generations=4, n_cells=60)
        for own in (goals, None)
    ]
    with_goals, without = ([(m.candidate, m.rewards) for m in s.archive] for s in found)
    assert with_goals == without
    assert all(member.tallies for member in found[0].archive)
    assert not any(member.tallies for member in found[1].archive)


def test_without_constraints_and_objective_there_are_no_goals():
    def goals(metrics: dict[str, object], **evaluation: object) -> Goals | None:
        section = {"test_cases": {"path": "c.json"}, "metrics": metrics, **evaluation}
        cfg = parse_mapping(
            {
                "api": {"name": "x", "function": "m:f"},
                "search_space": {"parameters": {"x": {"type": "float", "min": 0, "max": 1}}},
                "evaluation": section,
            }
        )
        sampler = make_sampler(cfg, build_space(cfg.search_space, {}))
        assert sampler.goals == Goals.of(cfg)  # type: ignore[attr-defined]
        return Goals.of(cfg)

    both: dict[str, object] = {"exact_match": {}, "latency_ms": {"weight": 0.5}}
    assert goals(both) is None
    late = goals({"exact_match": {}, "latency_ms": {"weight": 0, "max": 900}}, max_broken=0.2)
    assert late is not None
    assert (late.tolerance, late.measures.constraints, late.measures.metrics) == (0.2, True, ())
    front = goals(both, objective="pareto")
    assert front is not None
    assert front.measures.metrics == ("exact_match", "latency_ms")
    assert not front.measures.constraints


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_sampler_tallies_what_its_goals_need(algorithm):
    cfg = parse_mapping(
        {
            "api": {"name": "x", "function": "m:f"},
            "search_space": {"parameters": {"x": {"type": "float", "min": 0, "max": 1}}},
            "evaluation": {
                "test_cases": {"path": "c.json"},
                "metrics": {
                    "quality": {"type": "numeric"},
                    "seconds": {"type": "numeric", "weight": 0, "max": 1.0},
                },
            },
            "optimization": {"algorithm": algorithm},
        }
    )
    space = build_space(cfg.search_space, {})
    problem = GoalsProblem(
        REWARDS,
        space=space,
        value=lambda params: float(params["x"]),
        seconds=lambda params: 0.2 + float(params["x"]),
    )
    state = problem.run(make_sampler(cfg, space), seed=0, n_generations=2, n_cells=40)
    assert all(member.tallies for member in state.archive if member.n)


# -- constraints -------------------------------------------------------------------------------


def test_the_probability_of_being_feasible_follows_the_truth(searched):
    """Of configurations nobody asked the fast get a higher one than the late, nine times of ten."""
    fitted = CONSTRAINED.fit(searched.archive, SPACE)
    rng = np.random.default_rng(0)
    points = [SPACE.candidate(SPACE.sample(rng)) for _ in range(400)]
    probability = fitted.feasible(points)
    shares = np.array([share_late(point.params) for point in points])
    assert np.all((probability >= 0) & (probability <= 1))
    fast, late = probability[shares < 0.02], probability[shares > 0.3]
    assert float(np.mean(fast[:, None] > late)) > 0.9


def test_draws_put_every_infeasible_one_behind_every_feasible_one(searched):
    fitted = CONSTRAINED.fit(searched.archive, SPACE)
    members = [member.candidate for member in searched.archive]
    ids = [candidate.candidate_id for candidate in members]
    places = fitted.encoding.encode([candidate.params for candidate in members])
    rewards = np.random.default_rng(1).standard_normal((50, len(ids)))
    values = fitted.values(rewards, ids, places, np.random.default_rng(7))
    violation = fitted.violations(50, ids, places, np.random.default_rng(7))
    assert violation is not None
    for row, drawn, worth in zip(violation, rewards, values, strict=True):
        kept = row <= 0
        assert np.array_equal(worth[kept], drawn[kept])
        if kept.any() and not kept.all():
            assert worth[~kept].max() < worth[kept].min()
            assert np.array_equal(np.argsort(worth[~kept]), np.argsort(-row[~kept]))


def test_the_recommended_is_feasible_and_what_was_passed_over_is_told(searched):
    found = handed_over(searched, CONSTRAINED)
    assert found.ranking[0].candidate_id == found.candidate_id
    assert found.ranking[0].feasible is not None
    assert found.ranking[0].feasible >= PROBABLY
    feasible = [ranked for ranked in found.ranking if ranked.is_feasible]
    behind = [ranked for ranked in found.ranking if not ranked.is_feasible]
    assert behind
    assert found.ranking == (*feasible, *behind)
    higher = [ranked for ranked in behind if ranked.mean > found.mean]
    assert found.passed_over == (max(higher, key=lambda r: r.mean) if higher else None)
    plain = handed_over(searched, None)
    assert {r.candidate_id for r in plain.ranking} == {r.candidate_id for r in found.ranking}
    kept = {ranked.candidate_id for ranked in feasible}
    among = [r.candidate_id for r in plain.ranking if r.candidate_id in kept]
    assert among == [ranked.candidate_id for ranked in feasible]
    assert plain.passed_over is None


def test_what_is_believed_of_those_passed_over_is_lowered_as_the_leaders_claim_is(searched):
    """Or whoever is infeasible would seem better than the leader by the leader's correction."""
    plain = handed_over(searched, CONSTRAINED)
    memory = SelectionBias(3.0, 2.0).noted(searched.memory, 1)  # by one standard deviation
    lower = handed_over(replace(searched, memory=memory), CONSTRAINED)
    assert [r.candidate_id for r in lower.ranking] == [r.candidate_id for r in plain.ranking]
    before = {r.candidate_id: r for r in plain.ranking}
    by_reward = [r.candidate_id for r in handed_over(searched, None).ranking]
    leaders = {*by_reward[:N_LEADERS], *(r.candidate_id for r in plain.ranking[:N_LEADERS])}
    assert any(not before[one].is_feasible for one in leaders)
    for said in lower.ranking:
        was = before[said.candidate_id]
        assert said.mean < was.mean if said.candidate_id in leaders else said == was


def test_who_left_the_race_is_compared_with_the_feasible_leader(searched):
    goals = CONSTRAINED.fit(searched.archive, SPACE)
    fitted = SpaceModel(space=SPACE).fit(searched.archive)
    standing = {r.candidate_id: r for r in handed_over(searched, CONSTRAINED).ranking}
    rules = Rules(confidence_level=0.5)  # so that somebody has left by now
    found = discards(
        fitted,
        searched.archive,
        standing,
        names=dict.fromkeys(standing, ""),
        rules=rules,
        goals=goals,
    )
    assert found is not None
    assert found.closest
    field = Competitors(rules, SpaceModel(space=SPACE).encoding, searched.archive, fitted, goals)
    leader = field.members[field.ranking[0]]
    assert standing[leader.candidate_id].is_feasible
    for one in found.closest:
        candidate = searched.archive.members[one.candidate_id].candidate
        pair = fitted.posterior([leader, candidate])
        assert one.probability == pytest.approx(pair.probability_above(0)[1])


def test_nobody_leaves_the_race_for_a_front(fronted):
    fitted = SpaceModel(space=EFFORT).fit(fronted.archive)
    standing = {r.candidate_id: r for r in handed_over(fronted, PARETO, EFFORT).ranking}
    goals = PARETO.fit(fronted.archive, EFFORT)
    rules = Rules(confidence_level=0.5)
    found = discards(fitted, fronted.archive, standing, names={}, rules=rules, goals=goals)
    assert found is None


def test_where_all_are_infeasible_the_likeliest_to_be_feasible_is_handed_over():
    """Nothing answers within a millisecond."""
    seconds = REWARDS.metrics["seconds"].model_copy(update={"max": 0.001})
    strict = RewardModel({**REWARDS.metrics, "seconds": seconds})
    goals = replace(CONSTRAINED, measures=replace(CONSTRAINED.measures, rewards=strict))
    sampler = thompson(SPACE, goals)
    state = GoalsProblem(strict).run(sampler, seed=0, n_generations=2, n_cells=40)
    found = handed_over(state, goals)
    assert not found.ranking[0].is_feasible
    assert found.passed_over is None
    assert found.ranking[0].feasible == max(r.feasible or 0.0 for r in found.ranking)
    assert state.regret_upper_bound is None  # there is no leader to gain on


# -- fronts ------------------------------------------------------------------------------------


def test_intervals_of_the_objectives_hold_their_means(fronted):
    fitted = PARETO.fit(fronted.archive, EFFORT)
    assert fitted.objectives == ("quality", "seconds")
    members = [member.candidate for member in fronted.archive]
    ids = [candidate.candidate_id for candidate in members]
    places = fitted.encoding.encode([candidate.params for candidate in members])
    mean, (low, high) = fitted.means(ids, places), fitted.intervals(ids, places, 0.9)
    assert mean.shape == (len(members), 2)
    assert np.all((low <= mean) & (mean <= high))
    truth = np.array([effort_seconds(candidate.params) for candidate in members])
    assert np.corrcoef(mean[:, 1], -truth)[0, 1] > 0.9


def test_newcomers_of_a_front_are_kept_by_what_they_may_be_at_best(fronted):
    goals = PARETO.fit(fronted.archive, EFFORT)
    assert goals is not None
    rng = np.random.default_rng(0)
    encoding = Encoding.of(EFFORT)
    places = encoding.encode([EFFORT.sample(rng) for _ in range(40)])
    nobody = ("",) * 40
    at_best = []
    for name in goals.objectives:
        beliefs = goals.fitted[METRIC + name].posterior_at(nobody, places)
        mean, sd = beliefs.marginals
        at_best.append(beliefs.rewards(mean + UCB_SDS * sd))
    found = goals.promising(np.zeros(40), np.ones(40), nobody, places)
    assert found.tolist() == best_first(np.stack(at_best, axis=1)).tolist()


def test_a_pareto_run_asks_both_ends_of_the_front(fronted):
    asked = [float(member.candidate.params["effort"]) for member in fronted.archive]
    assert min(asked) < 0.15
    assert max(asked) > 0.85


@pytest.mark.parametrize("kind", ["searched", "fronted"])
def test_a_state_with_goals_plans_the_same_after_json(kind, request):
    state: SearchState = request.getfixturevalue(kind)
    sampler = thompson(*((SPACE, CONSTRAINED) if kind == "searched" else (EFFORT, PARETO)))
    assert isinstance(state.memory[MEMORY_KEY], dict)
    again = SearchState.from_json(state.to_json())
    assert again == state
    assert canonical_json(again.to_json()) == canonical_json(state.to_json())
    assert plan(sampler, again) == plan(sampler, state)


def test_the_last_generations_of_a_pareto_run_still_ask_new_candidates(fronted):
    last = plan(thompson(EFFORT, PARETO), fronted, generation=7)
    assert any(a.candidate.candidate_id not in fronted.archive for a in last.assignments)


# -- worth -------------------------------------------------------------------------------------
