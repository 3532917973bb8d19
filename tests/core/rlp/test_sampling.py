"""Experts in the draws: none is heard without weight, none touches what is reserved."""

from dataclasses import replace

import numpy as np
import pytest

from convergence_core.posterior import SpaceModel
from convergence_core.records import Params
from convergence_core.search.racing import Competitors, Rules
from convergence_core.search.racing.cell_allocation import ExpertMixture, with_expert
from convergence_core.search.racing.plan_builder import PlanBuilder
from convergence_core.search.sampler import Advice, AskRequest, Expert, Plan, SearchState
from convergence_core.search.samplers import ThompsonSampler
from tests.support.mixed_problem import mixed_space, mixed_value, trial

SPACE = mixed_space()
CASES = tuple(f"case-{j:02d}" for j in range(20))
SAMPLER = ThompsonSampler(name="mab_evolution", space=SPACE, surrogate=SpaceModel(space=SPACE))


def request(generation: int, advice: Advice | None = None, **changes: object) -> AskRequest:
    settings: dict[str, object] = {
        "n_generations": 10,
        "n_candidates": 8,
        "n_cells": 80,
        "case_ids": CASES,
        "advice": advice or Advice(),
        **changes,
    }
    return AskRequest(generation=generation, **settings)  # type: ignore[arg-type]


def told(n_generations: int = 2) -> SearchState:
    state, rng = SAMPLER.start(), np.random.default_rng(1)
    for generation in range(n_generations):
        plan = SAMPLER.ask(state, rng, request(generation))
        trials = [
            trial(a.candidate, dict.fromkeys(a.cells, 0.8 * mixed_value(a.candidate.params)))
            for a in plan.assignments
        ]
        state = SAMPLER.tell(state, trials)
    return state


STATE = told()
GENERATION = 2


def points(n: int, seed: int = 0) -> tuple[Params, ...]:
    rng = np.random.default_rng(seed)
    return tuple(SPACE.sample(rng) for _ in range(n))


def expert(weight: float, *, sign: float = 1.0, proposals: tuple[Params, ...] = ()) -> Expert:
    """Somebody who is sure that values are what they are, or their mirror image."""
    places = points(8)
    means = tuple(0.5 + sign * (0.8 * mixed_value(p) - 0.5) for p in places)
    return Expert(
        weight=weight,
        points=places,
        means=tuple(min(0.99, max(0.01, m)) for m in means),
        variances=(0.01,) * 8,
        proposals=proposals,
    )


def ask(advice: Advice | None = None, **changes: object) -> tuple[Plan, object]:
    rng = np.random.default_rng(9)
    plan = SAMPLER.ask(STATE, rng, request(GENERATION, advice, **changes))
    return plan, rng.bit_generator.state


def test_an_expert_without_weight_leaves_every_draw_bit_for_bit():
    plain, after = ask()
    for advice in (
        Advice(experts=(expert(0.0, proposals=points(5, 3)),)),
        Advice(experts=(expert(0.0), expert(0.0, sign=-1.0)), reserves=True),
        Advice(reserves=True),
    ):
        plan, state = ask(advice)
        assert plan.assignments == plain.assignments
        assert state == after
    assert plain.exogenous == {c for a in plain.assignments for c in a.cells}


def test_a_thought_and_its_mirror_image_choose_differently():
    good, _ = ask(Advice(experts=(expert(1.0),), reserves=True))
    bad, _ = ask(Advice(experts=(expert(1.0, sign=-1.0),), reserves=True))
    assert good.assignments != bad.assignments


def test_what_is_reserved_is_the_same_whatever_is_advised():
    reserved, state = ask(Advice(reserves=True))
    n_cells = reserved.n_cells
    assert 0.4 <= len(reserved.exogenous) / n_cells <= 0.7
    for one in (
        expert(1.0),
        expert(1.0, sign=-1.0),
        expert(0.7, proposals=points(30, 5)),
        expert(0.3),
    ):
        plan, after = ask(Advice(experts=(one,), reserves=True))
        assert plan.exogenous == reserved.exogenous
        assert plan.n_cells == n_cells
        assert after == state


def test_without_a_reserve_nothing_that_experts_may_have_chosen_is_exogenous():
    plan, _ = ask(Advice(experts=(expert(0.5),)))
    assert len(plan.exogenous) < plan.n_cells / 2


def test_proposals_join_the_pool_and_only_experts_may_choose_them():
    best = max(points(400, 7), key=mixed_value)
    liked = replace(expert(1.0), points=(best,), means=(0.99,), variances=(0.0001,))
    plan, _ = ask(Advice(experts=(replace(liked, proposals=(best,)),), reserves=True))
    proposed = [a for a in plan.assignments if a.candidate.origin == "rlp"]
    assert [dict(a.candidate.params) for a in proposed] == [dict(best)]
    assert not any(cell in plan.exogenous for a in proposed for cell in a.cells)
    # With less weight fewer points are considered; an expert that nobody hears proposes none.
    field = field_of()
    many = replace(expert(1.0), proposals=points(60, 8))
    sizes = []
    for weight in (0.05, 0.5, 1.0):
        panel = ExpertMixture.of([replace(many, weight=weight)], field, np.random.default_rng(0))
        assert panel is not None
        sizes.append(len(panel.proposals))
    assert sizes == [2, 20, 40]
    assert ExpertMixture.of([replace(many, weight=0.0)], field, np.random.default_rng(0)) is None


def test_a_known_candidate_is_no_proposal():
    field = field_of()
    known = tuple(candidate.params for candidate in field.members[:3])
    panel = ExpertMixture.of(
        [replace(expert(1.0), proposals=known)], field, np.random.default_rng(0)
    )
    assert panel is not None
    assert len(panel.proposals) == 0


def field_of() -> Competitors:
    fitted = SAMPLER.surrogate.fit(STATE.archive, case_ids=CASES)
    return Competitors(Rules(), SAMPLER.surrogate.encoding, STATE.archive, fitted)


def test_what_is_remembered_between_questions_changes_no_answer():
    """Pool and draws of the same question are kept; a fresh sampler finds the same anew."""
    for changes in ({}, {"n_cells": 60}, {"case_ids": CASES[:10]}):
        for advice in (Advice(reserves=True), Advice(experts=(expert(0.6),), reserves=True)):
            fresh = ThompsonSampler(
                name=SAMPLER.name, space=SPACE, surrogate=SpaceModel(space=SPACE)
            )
            rng = np.random.default_rng(9)
            plan = fresh.ask(replace(STATE), rng, request(GENERATION, advice, **changes))
            assert ask(advice, **changes) == (plan, rng.bit_generator.state)
    other = np.random.default_rng(10)
    assert SAMPLER.ask(STATE, other, request(GENERATION)).assignments != ask()[0].assignments


def test_a_proposed_setting_takes_a_place_that_is_not_reserved():
    reserved, state = ask(Advice(reserves=True))
    wanted = points(2, 31)
    plan, after = ask(Advice(proposals=wanted, reserves=True))
    proposed = [a for a in plan.assignments if a.candidate.origin == "rlp"]
    assert [dict(a.candidate.params) for a in proposed] == [dict(p) for p in wanted]
    assert plan.exogenous == reserved.exogenous
    assert (plan.n_cells, after) == (reserved.n_cells, state)
    assert not any(cell in plan.exogenous for a in proposed for cell in a.cells)
    # A probe gets one cell and takes no slot from those that are reserved.
    probed, _ = ask(Advice(probes=wanted[:1], reserves=True))
    (probe,) = [a for a in probed.assignments if a.candidate.origin == "rlp"]
    assert (dict(probe.candidate.params), len(probe.cells)) == (dict(wanted[0]), 1)
    assert probed.exogenous == reserved.exogenous
    # A known one, and one outside of the space, take no place.
    known = field_of().members[0].params
    assert ask(Advice(proposals=(known, {"nothing": 1}), reserves=True))[0] == reserved


def test_an_end_game_has_no_place_for_a_thought():
    assert ask(Advice(reserves=True))[0].n_advisable >= 4
    last = SAMPLER.ask(
        STATE, np.random.default_rng(9), request(9, Advice(reserves=True), n_generations=10)
    )
    assert last.n_advisable == 0
    assert not any(a.candidate.candidate_id not in STATE.archive for a in last.assignments)


def test_the_first_generation_evaluates_proposed_settings_in_half_of_its_places():
    plain = SAMPLER.ask(SAMPLER.start(), np.random.default_rng(0), request(0))
    wanted = points(30, 12)
    plan = SAMPLER.ask(
        SAMPLER.start(), np.random.default_rng(0), request(0, Advice(proposals=wanted))
    )
    assert plan.n_advisable == plain.n_advisable == len(plain.assignments) // 2
    proposed = [a.candidate.params for a in plan.assignments if a.candidate.origin == "rlp"]
    assert [dict(p) for p in proposed] == [dict(p) for p in wanted[: plan.n_advisable]]
    assert len(plan.assignments) == len(plain.assignments)


def test_the_first_generation_has_no_experts():
    rng = np.random.default_rng(0)
    plain = SAMPLER.ask(SAMPLER.start(), rng, request(0))
    rng = np.random.default_rng(0)
    advised = SAMPLER.ask(
        SAMPLER.start(), rng, request(0, Advice(experts=(expert(1.0),), reserves=True))
    )
    assert advised == plain


def test_a_conditioned_process_is_one_that_was_fitted_to_all():
    field = field_of()
    learned = field.fitted.learned
    assert learned is not None
    process = learned.process
    places = field.encoding.encode(points(5, 2))
    targets, variances = np.linspace(-1, 1, 5), np.full(5, 0.3)
    grown = process.with_measurements(places, targets, variances)
    n = len(process.factor)
    whole = grown.factor @ grown.factor.T
    assert whole[:n, :n] == pytest.approx(process.factor @ process.factor.T)
    z = whole @ grown.weights
    assert z[:n] == pytest.approx(process.factor @ (process.factor.T @ process.weights))
    assert z[n:] == pytest.approx(targets)
    # Measured there, the surface moves there: towards the targets, and surer than before.
    rows = np.full(5, -1, dtype=np.intp)
    before, sd_before = process.marginals(places, rows)
    after, sd_after = grown.marginals(places, rows)
    assert np.abs(after - targets).mean() < np.abs(before - targets).mean()
    assert (sd_after < sd_before).all()
    assert with_expert(field.fitted, Expert(weight=1.0)) is process


def test_an_expert_counts_for_five_trials_at_most():
    """However many candidates it speaks of, its precision adds up to that of five trials."""
    field = field_of()
    learned = field.fitted.learned
    assert learned is not None
    n = len(learned.process.factor)
    for n_places in (2, 16):
        places = points(n_places, 4)
        one = Expert(
            weight=1.0,
            points=places,
            means=(0.5,) * n_places,
            variances=(0.02,) * n_places,
        )
        grown = with_expert(field.fitted, one)
        own = grown.factor[n:] @ grown.factor[n:].T
        unit = float(learned.warp.slope(np.array([0.5]))[0] ** 2 * 0.02)
        smooth = own.diagonal() - unit * n_places / 5.0
        assert smooth == pytest.approx(np.full(n_places, smooth[0]), rel=1e-6)
        assert smooth[0] > 0


def test_retries_and_the_baseline_go_before_everybody():
    archive = STATE.archive
    draft = PlanBuilder(SPACE, archive, request(GENERATION), np.random.default_rng(0))
    draft.is_advised = True
    candidate = field_of().members[0]
    n = draft.add(candidate, draft.open_cells(candidate.candidate_id)[:2])
    assert n == 2
    assert draft.plan().exogenous == frozenset()


def test_distilled_points_are_asked():
    (point,) = points(1, 99)
    plan, _ = ask(Advice(preferred=(point,), reserves=True))
    (one,) = [a for a in plan.assignments if a.candidate.origin == "sao"]
    assert one.candidate == SPACE.candidate(point, "sao")
    assert not plan.exogenous & set(one.cells)
