"""Runs of one case: what is a candidate's own is told from noise, and claims follow."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from convergence_core.posterior import SpaceModel
from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.gaussian_process import NO_NOISE, Repeats
from convergence_core.records import Params
from convergence_core.search.recommend import Recommendation, recommend
from convergence_core.search.sampler import AskRequest, Plan, SearchState
from convergence_core.search.samplers import ThompsonSampler
from convergence_core.search.schedule import N_AGAIN, Schedule
from convergence_core.space import Float, Space
from tests.core.posterior.archives import archive
from tests.support.mixed_problem import trial

SPACE = Space(parameters={f"x{i}": Float(min=0.0, max=1.0) for i in range(3)})
CASE = "only"
N_GENERATIONS, N_CELLS = 6, 15
Reward = Callable[[Params], float]


def rugged(params: Params) -> float:
    """A bowl with waves that a smooth surface takes for noise, in [0, 1]."""
    x = np.array([8.0 * float(value) - 3.3 for value in params.values()])
    return float(1.0 - (x**2 - 10.0 * np.cos(2.0 * math.pi * x) + 10.0).mean() / 45.0)


def sampler(*, deterministic: bool = False) -> ThompsonSampler:
    surrogate = SpaceModel(space=SPACE, deterministic=deterministic)
    return ThompsonSampler(name="mab_evolution", space=SPACE, surrogate=surrogate)


def request(generation: int, *, n_again: int = N_AGAIN) -> AskRequest:
    return AskRequest(
        generation=generation,
        n_generations=N_GENERATIONS,
        n_candidates=N_CELLS,
        n_cells=N_CELLS,
        case_ids=(CASE,),
        n_again=n_again,
    )


def searched(
    reward: Reward,
    *,
    seed: int,
    searching: ThompsonSampler | None = None,
    n_again: int = N_AGAIN,
    n_generations: int = N_GENERATIONS,
) -> tuple[SearchState, list[Plan]]:
    searching = searching or sampler()
    g, state, plans = np.random.default_rng(seed), searching.start(), []
    for generation in range(n_generations):
        plan = searching.ask(state, g, request(generation, n_again=n_again))
        plans.append(plan)
        state = searching.tell(
            state,
            [
                trial(a.candidate, {cell: reward(a.candidate.params) for cell in a.cells})
                for a in plan.assignments
            ],
        )
    return state, plans


def handed_over(state: SearchState, *, deterministic: bool = False) -> Recommendation:
    surrogate = SpaceModel(space=SPACE, deterministic=deterministic)
    found = recommend(state, rng=np.random.default_rng(0), surrogate=surrogate, level=0.95)
    assert found is not None
    return found


def n_repeated(state: SearchState) -> int:
    return sum(member.n - 1 for member in state.archive)


def test_noise_that_is_small_beside_what_candidates_differ_by_is_seen_too():
    g = np.random.default_rng(5)
    state, _ = searched(lambda p: rugged(p) + 1e-4 * g.standard_normal(), seed=2)
    found = handed_over(state)
    truth = {m.candidate.candidate_id: rugged(m.candidate.params) for m in state.archive}
    assert truth[found.candidate_id] >= max(truth.values()) - 0.015
    assert found.low - 0.001 <= truth[found.candidate_id] <= found.high + 0.001
    assert found.high - found.low < 0.1


def test_leaders_are_asked_again_early_and_finalists_in_the_end_where_there_is_noise():
    g = np.random.default_rng(6)
    state, plans = searched(lambda p: rugged(p) + 0.2 * g.standard_normal(), seed=1)
    again = [
        [cell.repeat for a in plan.assignments for cell in a.cells if cell.repeat > 0]
        for plan in plans
    ]
    assert [len(repeats) for repeats in again[:4]] == [
        0,
        3,
        1,
        0,
    ]  # a fifth of a generation at most
    assert again[-1]  # the last tenth of the cells
    assert max(max(repeats, default=0) for repeats in again) <= N_AGAIN
    assert all(plan.n_cells == N_CELLS for plan in plans)
    assert max(member.n for member in state.archive) <= 1 + N_AGAIN


@pytest.mark.parametrize("n_again", [0, N_AGAIN])
def test_what_is_declared_deterministic_is_never_asked_again(n_again):
    state, plans = searched(rugged, seed=0, searching=sampler(deterministic=True), n_again=n_again)
    assert n_repeated(state) == 0
    assert sum(plan.n_cells for plan in plans) == N_GENERATIONS * N_CELLS
    found = handed_over(state, deterministic=True)
    best = max(rugged(m.candidate.params) for m in state.archive)
    assert found.mean == pytest.approx(best, abs=0.005)


def test_with_several_cases_nobody_is_probed():
    plan_of = replace(request(1), case_ids=("a", "b"), repeats=1)
    searching = sampler()
    g, state = np.random.default_rng(0), searching.start()
    first = searching.ask(state, g, replace(plan_of, generation=0))
    state = searching.tell(
        state,
        [
            trial(a.candidate, {c: rugged(a.candidate.params) for c in a.cells})
            for a in first.assignments
        ],
    )
    plan = searching.ask(state, g, plan_of)
    assert all(cell.repeat == 0 for a in plan.assignments for cell in a.cells)


def evidence(rewards: dict[str, list[float]]) -> Evidence:
    return Evidence.gather(
        archive({n: {(CASE, i): r for i, r in enumerate(rs)} for n, rs in rewards.items()})
    )


def test_agreeing_repeats_prove_that_there_is_no_noise_unless_rewards_agree_anyway():
    measured = {f"m{i:02d}": [0.1 + 0.03 * i] for i in range(20)}
    for n_repeats, is_exact in ((1, False), (2, False), (3, True)):
        again = {f"m{i:02d}": 2 * measured[f"m{i:02d}"] for i in range(n_repeats)}
        assert evidence({**measured, **again}).is_exact == is_exact
    assert evidence({**measured, "m00": [0.1] * 6}).is_exact
    assert not evidence({**measured, "m00": [0.1] * 6, "m01": [0.13, 0.1301]}).is_exact
    # One in three crashes, always with the same reward.
    crashing = {**measured, **{f"z{i}": [0.0] for i in range(10)}}
    assert not evidence({**crashing, "m00": [0.1] * 3}).is_exact
    assert evidence({**crashing, "m00": [0.1] * 6}).is_exact


def test_agreement_of_few_levels_shows_nothing_of_the_noise():
    """A leader that passes nine times of ten passes all of four repeats more often than not."""
    for n_levels in (2, 5):
        few = {f"m{i:02d}": [float(i % n_levels)] for i in range(40)}
        found = evidence({**few, **{f"m{i:02d}": 5 * few[f"m{i:02d}"] for i in range(4)}})
        assert not found.is_graded
        assert not found.is_exact


def test_squares_within_members_are_told_of_each():
    found = evidence({"a": [0.2, 0.6], "b": [0.5], "c": [0.1, 0.1, 0.4]})
    assert found.repeat_squares == pytest.approx([0.08, 0.0, 0.06])
    assert found.repeat_squares.sum() == pytest.approx(found.repeat_sum)


def test_the_highest_noise_is_that_of_the_chi_squared_distribution():
    for dof in (1, 4, 30):
        highest = Repeats(square=0.3, dof=dof).highest(0.99)
        assert highest == pytest.approx(0.3 / stats.chi2.ppf(0.01, dof), rel=1e-9)


def test_noise_that_is_not_shown_to_be_small_leaves_the_model_as_it_was():
    """With free numbers a candidate's own effect is told from luck only where luck is small."""
    g = np.random.default_rng(3)
    state, _ = searched(lambda p: rugged(p) + 0.2 * g.standard_normal(), seed=4)
    fitted = SpaceModel(space=SPACE).fit(state.archive)
    assert fitted.learned is not None
    assert fitted.learned.evidence.repeat_dof > 0
    assert fitted.learned.process.nugget_variance < 1e-5
    exact = SpaceModel(space=SPACE, deterministic=True).fit(state.archive)
    assert exact.learned is not None
    assert exact.learned.process.noise == pytest.approx(NO_NOISE.median, rel=0.2)


def test_the_final_look_asks_repeats_that_the_search_never_asks():
    one = Schedule(n_generations=2, population_size=4, n_search_cases=1, n_holdout_cases=0)
    assert one.n_again == N_AGAIN
    assert replace(one, n_search_cases=2).n_again == 0
    assert replace(one, deterministic=True).n_again == 0


def test_a_deterministic_target_is_not_asked_again_by_the_final_look():
    plan = Schedule(
        n_generations=2,
        population_size=4,
        n_search_cases=3,
        n_holdout_cases=2,
        max_calls=40,
        deterministic=True,
    )
    assert plan.final_quota() == (2, 0)
    without = replace(plan, n_holdout_cases=0, max_calls=3)
    assert without.final_quota() == (0, 0)
    assert without.final_shortage() is None
    assert without.final_calls == 0
