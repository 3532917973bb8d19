"""A search without a file, a thread or Prefect: a study, its state, and a made-up world."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import pytest

from convergence_core.config.optimization import Algorithm, EarlyStoppingConfig
from convergence_core.posterior import SpaceModel
from convergence_core.records import Evaluation, Params, Trial
from convergence_core.search.final_look import finalists
from convergence_core.search.sampler import Advice, Plan
from convergence_core.search.schedule import Schedule
from convergence_core.search.study import PlannedGeneration, Study, limit_reached
from convergence_core.search.study_state import StudyState
from convergence_core.space import Choice, Float, Integer, Space
from tests.support.mixed_problem import trial
from tests.support.problems import World, configuration, space

ALGORITHMS = get_args(Algorithm)

SPACE = space()
WORLD = World(seed=1, n_cases=12)
N_CASES = len(WORLD.case_ids)


def study(
    algorithm: str = "mab_evolution", winners: tuple[Params, ...] = (), **plan: Any
) -> Study:
    numbers: dict[str, Any] = {"n_generations": 3, "population_size": 6, **plan}
    config = configuration(algorithm, seed=5, execution={"early_stopping": {"enabled": False}})
    return Study.of(
        config,
        SPACE,
        Schedule(n_search_cases=N_CASES, n_holdout_cases=0, **numbers),
        SpaceModel(space=SPACE),
        case_weights=dict.fromkeys(WORLD.case_ids, 1.0),
        winners=winners,
    )


def changed(trials: list[Trial], change: Callable[[Evaluation], Evaluation]) -> list[Trial]:
    return [replace(t, evaluations=tuple(map(change, t.evaluations))) for t in trials]


def step(
    own: Study, state: StudyState, change: Callable[[Evaluation], Evaluation] = lambda e: e
) -> tuple[StudyState, PlannedGeneration]:
    """Run one generation in the made-up world."""
    asked = own.ask(state)
    trials = changed(WORLD.trials(asked.plan, state.next_generation), change)
    n_calls = state.n_calls + asked.plan.n_cells
    return own.learn(state, asked, trials, n_calls=n_calls)[0], asked


def search(own: Study, state: StudyState | None = None) -> tuple[StudyState, list[Plan]]:
    """Run a study to its end."""
    state, plans = state or own.start(), []
    while own.should_continue(state):
        state, asked = step(own, state)
        plans.append(asked.plan)
    return state, plans


def test_a_search_of_one_generation_says_so():
    search_once = study(n_generations=1)
    state, _ = search(search_once)
    assert search_once.stop_reason(state) == ("done", "its one generation was run")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_search_ends_with_a_recommendation_and_is_the_same_again(algorithm: str):
    own = study(algorithm)
    state, plans = search(own)
    assert (state.next_generation, state.n_calls) == (3, sum(plan.n_cells for plan in plans))
    assert own.stop_reason(state) == ("done", "all 3 generations were run")
    found = own.recommend(state)
    assert found is not None
    assert own.leader(state) == state.search.archive.members[found.candidate_id].candidate
    again, same = search(own)
    assert same == plans
    assert again.to_checkpoint() == state.to_checkpoint()
    assert search(replace(own, seed=6))[1] != plans


def test_a_search_that_goes_on_from_its_checkpoint_is_the_same_search():
    own = study()
    state, plans = search(own)
    middle, _ = step(own, own.start())
    middle = replace(middle, learned={"rlp": {"n": 1}, "sao": {"variants": {"p": ["a"]}}})
    checkpoint = middle.to_checkpoint()
    # The keys of the stored format.
    assert '"thoughts":{"n":1}' in checkpoint.progress_json
    assert '"preferences":{"variants"' in checkpoint.progress_json
    resumed = StudyState.from_checkpoint(checkpoint)
    assert resumed == middle
    assert resumed.variants == {"p": ["a"]}
    after, rest = search(own, resumed)
    assert rest == plans[1:]
    assert replace(after, learned={}) == replace(state, learned={})


def test_asking_changes_nothing_and_advice_reaches_the_sampler():
    own = study()
    state, _ = step(own, own.start())
    asked = own.ask(state)
    assert own.ask(state) == asked
    assert asked.rng_state != state.rng_state
    preferred = own.sampler.start()  # any state will do: a study reads its argument alone
    assert own.ask(replace(state, search=preferred)).plan != asked.plan
    point = dict(next(iter(state.search.archive)).candidate.params, temperature=0.123)
    advised = own.ask(state, Advice(preferred=(point,))).plan
    assert point in [dict(a.candidate.params) for a in advised.assignments]


def test_winners_of_earlier_runs_are_asked_in_the_first_generation_alone():
    point: Params = {"model": "large", "prompt": "plain", "temperature": 0.9}
    own = study(winners=(point,))
    state, asked = step(own, own.start())
    assert point in [dict(a.candidate.params) for a in asked.plan.assignments]
    assert all(a.candidate.origin != "elite" for a in own.ask(state).plan.assignments)


def test_cases_are_shuffled_once_per_seed():
    own = study()
    assert sorted(own.case_order) == sorted(WORLD.case_ids)
    assert own.case_order == study("random").case_order != replace(own, seed=6).case_order


def test_missing_cells_are_asked_again_once_and_teach_the_sampler_nothing():
    own = study()

    def lose(e: Evaluation) -> Evaluation:
        lost = e.cell.case_id == WORLD.case_ids[0]
        return replace(e, status="error", reward=None) if lost else e

    state, _ = step(own, own.start(), lose)
    wanted = {m.candidate.candidate_id for m in state.search.archive if m.missing}
    assert own.repair(state) is None
    due = replace(state, repairs_next=True)
    repaired, asked = step(own, due, lose)
    assert asked.is_repair
    assert asked.rng_state == state.rng_state
    assert {cell.candidate_id for a in asked.plan.assignments for cell in a.cells} == wanted
    assert all(a.label.startswith("again ") for a in asked.plan.assignments)
    assert (repaired.n_repairs, repaired.repairs_next) == (1, False)
    assert repaired.search.at(1).memory == state.search.memory
    later, asked = step(own, repaired)
    new = {a.candidate.candidate_id for a in asked.plan.assignments} - {
        *repaired.search.archive.members
    }
    assert {later.search.archive.members[name].generation for name in new} == {2}
    # It counts for no planned generation.
    assert not own.has_run_all_generations(replace(repaired, next_generation=3))
    mended, _ = step(own, due)
    assert not any(m.missing for m in mended.search.archive)
    # What is left to repair comes before every reason to stop.
    assert own.should_continue(replace(due, limit="spent", next_generation=9))


def test_cells_asked_one_by_one_are_planned_on_the_evidence_before_them():
    whole = study()
    own = replace(whole, schedule=replace(whole.schedule, one_by_one=True, population_size=2))

    def generation(state: StudyState) -> tuple[StudyState, list[Plan], list[Trial]]:
        last, plans = own.ask(state), [own.ask(state).plan]
        trials = WORLD.trials(last.plan, state.next_generation)
        while (batch := own.ask_further(state, last, trials)) is not None:
            last = batch
            plans.append(batch.plan)
            trials += WORLD.trials(batch.plan, state.next_generation)
        return own.learn(state, last, trials, n_calls=len(trials))[0], plans, trials

    state, plans, trials = generation(own.start())
    n_cells = own.schedule.full_generation
    assert [plan.n_cells for plan in plans] == [1] * n_cells
    cells = [cell for plan in plans for a in plan.assignments for cell in a.cells]
    assert len({*cells}) == len(cells)
    assert {*cells} == {e.cell for trial in trials for e in trial.evaluations}
    assert (state.next_generation, state.search.generation) == (1, 1)
    assert {member.generation for member in state.search.archive} == {0}
    assert generation(own.start())[1] == plans
    assert plans[0] != whole.ask(whole.start()).plan
    # The second cell depends on what the first one was worth, and none is asked twice.
    first = own.ask(state)
    ends: list[dict[str, Any]] = [
        {},
        {"reward": 0.0},
        {"reward": None, "status": "error"},
        {"reward": None, "status": "skipped", "error_type": "budget", "error": "spent"},
    ]
    told = [changed(WORLD.trials(first.plan, 1), partial(replace, **end)) for end in ends]
    as_is, worthless, lost, rest = (own.ask_further(state, first, trials) for trials in told)
    assert as_is != worthless
    assert lost is not None is not rest
    assert lost.plan.assignments[0].cells != first.plan.assignments[0].cells
    assert (rest.plan.n_cells, rest.n_left) == (first.n_left, 0), "kept back by a limit"
    assert own.ask(state, Advice()).n_left == 0, "what is advised is planned at once"


def test_a_search_says_why_it_ends():
    own = study(n_generations=1)
    state = own.start()
    assert own.stop_reason(state) is None
    ended, _ = step(own, state)
    assert own.stop_reason(ended) == ("done", "its one generation was run")
    cut = replace(ended, limit="max_usd is spent", is_exhausted=True)
    assert own.stop_reason(cut) == ("budget", "max_usd is spent")
    n = len(ended.search.archive)
    assert own.stop_reason(replace(ended, is_exhausted=True)) == (
        "done",
        f"all {n} settings of the search space are evaluated on all search cases",
    )
    flat = EarlyStoppingConfig(patience=1)
    early = replace(study(), early_stopping=flat).stop_reason(
        replace(ended, stopper=replace(ended.stopper, n_flat=1))
    )
    assert early is not None
    assert early[1].startswith("early stopping: no configuration of the last generation ")
    capped = study(max_calls=12)
    assert capped.stop_reason(replace(state, n_calls=12)) == (
        "budget",
        "budget.max_calls=12 is spent",
    )


def of_space(own_space: Space, **plan: Any) -> Study:
    cases = [f"c{i}" for i in range(6)]
    numbers: dict[str, Any] = {"n_generations": 6, "population_size": 12, **plan}
    return Study.of(
        configuration("mab_evolution", seed=1),
        own_space,
        Schedule(n_search_cases=len(cases), n_holdout_cases=0, **numbers),
        SpaceModel(space=own_space),
        case_weights=dict.fromkeys(cases, 1.0),
    )


def run(own: Study, worth: Callable[[Params], float]) -> StudyState:
    """Run a study to its end in a world without noise."""
    state = own.start()
    while own.should_continue(state):
        asked = own.ask(state)
        trials = [
            trial(a.candidate, dict.fromkeys(a.cells, worth(a.candidate.params)))
            for a in asked.plan.assignments
        ]
        state = own.learn(state, asked, trials, n_calls=state.n_calls + asked.plan.n_cells)[0]
    return state


def test_only_a_finite_space_that_is_wholly_evaluated_is_exhausted():
    few = Space(
        parameters={"n": Integer(min=1, max=5), "b": Choice(kind="boolean", choices=(False, True))}
    )
    patient = replace(of_space(few), early_stopping=EarlyStoppingConfig(enabled=False))
    state = run(patient, lambda params: float(params["n"]) / 5)
    reason = patient.stop_reason(state)
    assert reason is not None
    assert reason[1] == "all 10 settings of the search space are evaluated on all search cases"
    for own_space, is_exhausted in (
        (few, True),
        (Space(parameters={"x": Float(min=0, max=1)}), False),
    ):
        own = of_space(own_space)
        known = state if is_exhausted else own.start()
        assert own.learn(known, own.ask(known), (), n_calls=0)[0].is_exhausted is is_exhausted


@pytest.mark.parametrize(
    "numbers",
    [
        {"x": Float(min=0, max=1)},
        {"x": Float(min=1e-6, max=1, log=True)},
        {"x": Float(min=0, max=1), "y": Float(min=-50, max=50)},
    ],
    ids=["linear", "log", "two"],
)
def test_levels_of_free_numbers_are_refined_around_leaders(numbers: dict[str, Float]):
    """The optimum lies between two of the levels that the search begins with."""

    def worth(params: Params) -> float:
        units = [number.to_unit(params[name]) for name, number in numbers.items()]
        return max(
            0.0,
            1.0 - sum(abs(unit - 0.5237) for unit in units) / (0.04 if len(units) == 1 else 0.12),
        )

    own = of_space(Space(parameters=numbers))
    state = run(own, worth)
    found = own.recommend(state)
    assert found is not None
    best = worth(state.search.archive.members[found.candidate_id].candidate.params)
    assert best > 0.85, (best, own.stop_reason(state))


def test_a_generation_without_a_single_reward_ends_the_search():
    own = study()

    def lose(e: Evaluation) -> Evaluation:
        error = "metric cost is unknown\n\ntrace"
        lost = replace(e, status="error", fault="evaluator", error_type="no_number", error=error)
        return replace(lost, reward=None)

    state, asked = step(own, own.start(), lose)
    n = asked.plan.n_cells
    text = f"none of {n} evaluations has a reward (no_number, {n} times: metric cost is unknown)"
    assert own.stop_reason(state) == ("done", text)
    assert StudyState.from_checkpoint(state.to_checkpoint()).no_reward == text
    # Once the metric is mended, a resumed run asks again and goes on.
    mended, _ = step(own, replace(state, repairs_next=True))
    assert own.should_continue(mended)
    # One reward is enough to go on, and so is one from an earlier generation.
    later, _ = step(own, mended, lose)
    assert later.no_reward is None


@pytest.mark.parametrize(("kind", "is_end"), [("KeyError", True), ("http_422", False)])
def test_a_generation_in_which_every_evaluation_raised_the_same_ends_the_search(kind, is_end):
    own = study()

    def fail(e: Evaluation) -> Evaluation:
        return replace(
            e, status="error", fault="candidate", error_type=kind, error="'a'", reward=0.0
        )

    state, asked = step(own, own.start(), fail)
    n = asked.plan.n_cells
    text = f"each of {n} evaluations raised KeyError: 'a'"
    assert own.stop_reason(state) == (("done", text) if is_end else None)
    answered, _ = step(own, own.start())
    later, _ = step(own, answered, fail)
    assert later.no_reward is None


def test_the_first_look_widens_only_while_the_defaults_are_perfect():
    own_space = Space(parameters={"x": Float(min=0, max=1, default=0.25)})
    own = of_space(own_space, population_size=10)
    plan = own.ask(own.start()).plan
    first = own.first_look(plan)
    assert first is not None
    assert first.candidate.params == {"x": 0.25}
    perfect = trial(first.candidate, dict.fromkeys(first.cells, 1.0))
    rest = own.first_look(plan, perfect)
    assert rest is not None
    assert {c.case_id for c in (*first.cells, *rest.cells)} == set(own.case_weights)
    whole = trial(first.candidate, dict.fromkeys((*first.cells, *rest.cells), 1.0))
    assert own.first_look(plan, whole) is None
    told = own.start().search.archive.tell([whole], 0)
    assert own.has_perfect_defaults(told)
    assert not own.has_perfect_defaults(own.start().search.archive.tell([perfect], 0))
    for reward in (0.99, None):
        flawed = trial(first.candidate, dict.fromkeys(first.cells, 1.0) | {first.cells[0]: reward})
        assert own.first_look(plan, flawed) is None
    # Who wants all generations gets them.
    assert replace(own, early_stopping=EarlyStoppingConfig(enabled=False)).first_look(plan) is None
    assert not replace(
        own, early_stopping=EarlyStoppingConfig(enabled=False)
    ).has_perfect_defaults(told)


def test_failures_alone_recommend_none_and_a_limit_is_remembered():
    own = study()

    def fail(e: Evaluation) -> Evaluation:
        return replace(
            e, status="skipped", error_type="budget", error="max_usd is spent", reward=None
        )

    state, asked = step(own, own.start(), fail)
    assert state.limit == "max_usd is spent"
    assert own.recommend(state) is None
    assert limit_reached(WORLD.trials(asked.plan, 0)) is None
    zero, _ = step(own, own.start(), lambda e: replace(e, status="error", reward=0.0))
    assert own.recommend(zero) is None
    assert own.leader(zero) is not None


def test_defaults_are_a_candidate_where_a_configuration_gives_them():
    own = study()
    assert own.baseline is None
    assert own.share_left(0) == 1.0
    assert own.share_left(9) == 0.0


def test_finalists_repeat_held_out_cases():
    own = study()
    own = replace(own, schedule=replace(own.schedule, n_holdout_cases=2, repeats=3))
    state, _ = step(own, own.start())
    cells = finalists(own, state, ["x", "y"], None)[0].cells
    held_out = [(cell.case_id, cell.repeat) for cell in cells if cell.role == "holdout"]
    assert sorted(held_out) == [(case_id, i) for case_id in "xy" for i in range(3)]
