"""Racing: what its settings change, and what each of its parts is worth on a known problem."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from convergence_core.evidence import CellKey
from convergence_core.posterior import SpaceModel
from convergence_core.records import Cell
from convergence_core.search.evolution import Breeder
from convergence_core.search.racing import Competitors, Rules
from convergence_core.search.racing.cell_allocation import CellAllocation
from convergence_core.search.racing.plan_builder import (
    PlanBuilder,
    default_chunk,
    informative_chunk,
)
from convergence_core.search.sampler import Advice, Plan, Sampler, SearchState
from convergence_core.search.samplers import (
    EvolutionSampler,
    RandomSampler,
    ThompsonSampler,
    make_sampler,
)
from convergence_core.space import Choice, Integer, Space
from tests.core.search.racing import CASES, RACING, SPACE, newcomers, request, rng, tell, told
from tests.support import problems
from tests.support.mixed_problem import mixed_value, trial

THOMPSON = replace(RACING, name="thompson", rules=Rules(breeds=False))
SAMPLERS: list[Sampler] = [
    RandomSampler(space=SPACE),
    EvolutionSampler(space=SPACE, breeder=Breeder(space=SPACE), surrogate=SpaceModel(space=SPACE)),
    THOMPSON,
    RACING,
]
WITH_POSTERIOR = [sampler for sampler in SAMPLERS if isinstance(sampler, ThompsonSampler)]
EACH = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: sampler.name)


# -- plans -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_cases", "chunk"), [(1, 1), (4, 4), (20, 5), (21, 6), (100, 25), (400, 100)]
)
def test_a_chunk_is_five_cases_or_a_quarter(n_cases, chunk):
    assert default_chunk(n_cases) == chunk


@pytest.mark.parametrize(
    ("worth_the_prior", "chunk"),
    [(None, 5), (0.3, 5), (5.0, 5), (11.6, 12), (20.0, 20), (1e9, 20), (float("inf"), 20)],
)
def test_a_chunk_halves_what_is_unknown_of_a_newcomer(worth_the_prior, chunk):
    assert informative_chunk(20, worth_the_prior) == chunk


@pytest.mark.parametrize(("noise", "least", "most"), [(0.01, 5, 5), (0.5, 12, 20)])
def test_chunks_grow_where_noise_drowns_merit(noise, least, most):
    state, g = RACING.start(), rng(3)
    for generation in range(2):
        plan = RACING.ask(state, g, request(generation))
        state = RACING.tell(
            state,
            [
                trial(
                    a.candidate,
                    {
                        cell: 0.1 * mixed_value(a.candidate.params) + noise * g.random()
                        for cell in a.cells
                    },
                )
                for a in plan.assignments
            ],
        )
    plan = RACING.ask(state, g, request(2))
    ids = {candidate.candidate_id for candidate in newcomers(plan, state)}
    chunks = [len(a.cells) for a in plan.assignments if a.candidate.candidate_id in ids]
    assert chunks
    assert least <= max(chunks) <= most


def chunks_of(plan: Plan, state: SearchState) -> list[frozenset[str]]:
    """Return the cases that each newcomer is asked."""
    new = {candidate.candidate_id for candidate in newcomers(plan, state)}
    return [
        frozenset(cell.case_id for cell in a.cells)
        for a in plan.assignments
        if a.candidate.candidate_id in new
    ]


def test_the_first_generation_looks_for_cells_only_while_it_has_some_to_give(monkeypatch):
    """However often a case may be repeated: each look lists all cells of a candidate."""
    n_looks = 0
    open_cells = PlanBuilder.open_cells

    def counted(draft: PlanBuilder, candidate_id: str) -> list[CellKey]:
        nonlocal n_looks
        n_looks += 1
        return open_cells(draft, candidate_id)

    monkeypatch.setattr(PlanBuilder, "open_cells", counted)
    once = request(n_candidates=20, n_cells=20, case_ids=("only",), repeats=1000)
    plan = RACING.ask(RACING.start(), rng(), once)
    assert plan.n_cells == n_looks == 20


def test_newcomers_of_a_small_generation_share_their_cases():
    state = told(RACING, 2)
    chunks = chunks_of(RACING.ask(state, rng(2), request(2)), state)
    assert len(chunks) > 2
    assert len(set(chunks)) == 1
    assert len(chunks[0]) == default_chunk(len(CASES))


@pytest.mark.parametrize("n_cases", [20, 100])
def test_newcomers_of_a_large_generation_meet_the_cases_in_groups(n_cases):
    cases = tuple(f"case-{j:02d}" for j in range(n_cases))
    plan = RACING.ask(
        RACING.start(), rng(2), request(0, case_ids=cases, n_candidates=20, n_cells=400)
    )
    chunks = Counter(chunks_of(plan, RACING.start()))
    assert sum(chunks.values()) == 80
    assert len(chunks) == min(n_cases // 5, 80 // RACING.rules.least_together)
    assert min(chunks.values()) >= RACING.rules.least_together
    asked = [case for chunk in chunks for case in chunk]
    assert len(asked) == len(set(asked)) == 5 * len(chunks)


def test_known_candidates_of_a_large_generation_are_asked_the_cases_seen_least_in_one_order():
    cases = tuple(f"case-{j:02d}" for j in range(100))
    large: dict[str, object] = {"case_ids": cases, "n_candidates": 20, "n_cells": 400}
    state = told(RACING, 2, **large)
    plan = RACING.ask(state, rng(2), request(9, **large))  # the end game
    seen = Counter(case for member in state.archive for case, _ in member.rewards)
    known = {
        a.candidate.candidate_id: {cell.case_id for cell in a.cells}
        for a in plan.assignments
        if a.candidate.candidate_id in state.archive
    }
    assert len(known) > 1
    for name, asked in known.items():
        open_still = set(cases) - asked - {case for case, _ in state.archive.members[name].rewards}
        assert max(seen[case] for case in asked) <= min(
            (seen[case] for case in open_still), default=len(seen)
        )
    finalists = [asked for asked in known.values() if len(asked) > 50]
    assert len(finalists) == 4
    assert len(set.intersection(*finalists)) > 50


def test_chunks_rotate_through_the_cases():
    state, g = RACING.start(), rng(1)
    seen: set[str] = set()
    for generation in range(4):
        plan = RACING.ask(state, g, request(generation, n_cells=40))
        seen |= {cell.case_id for a in plan.assignments for cell in a.cells}
        state = tell(RACING, state, plan)
    assert len(seen) >= 15


@EACH
def test_what_is_missing_is_asked_again(sampler):
    """An outage of all of generation 0 does not end the search."""
    first = sampler.ask(sampler.start(), rng(), request())
    state = tell(sampler, sampler.start(), first, missing=True)
    again = sampler.ask(state, rng(1), request(1))
    known = {a.candidate.candidate_id for a in first.assignments}
    assert known & {a.candidate.candidate_id for a in again.assignments}


@EACH
def test_cases_that_are_no_longer_offered_are_not_asked(sampler):
    first = sampler.ask(sampler.start(), rng(), request())
    state = tell(sampler, sampler.start(), first, missing=True)
    state = tell(sampler, state, sampler.ask(state, rng(), request(1)))
    plan = sampler.ask(state, rng(1), request(2, case_ids=CASES[:3]))
    assert {cell.case_id for a in plan.assignments for cell in a.cells} <= set(CASES[:3])


@EACH
def test_a_space_of_one_point_can_be_searched(sampler):
    single = Space(parameters={"n": Integer(min=3, max=3)})
    changes: dict[str, object] = {"space": single}
    if isinstance(sampler, ThompsonSampler):
        changes["surrogate"] = SpaceModel(space=single)
    elif isinstance(sampler, EvolutionSampler):
        changes["breeder"] = Breeder(space=single)
    alone = replace(sampler, **changes)
    plan = alone.ask(alone.start(), rng(), request())
    assert [a.candidate.params for a in plan.assignments] == [{"n": 3}]


@pytest.mark.parametrize("sampler", WITH_POSTERIOR, ids=lambda sampler: sampler.name)
def test_a_proposal_that_is_new_and_valid_is_evaluated_once(sampler):
    good = SPACE.sample(rng(8))
    known = SPACE.sample(rng(9))
    advice = Advice(proposals=({"model": "none"}, known, good, good), reserves=True)
    state = tell(
        sampler, sampler.start(), sampler.ask(sampler.start(), rng(), request(baseline=known))
    )
    plan = sampler.ask(state, rng(1), request(1, n_candidates=4, advice=advice, baseline=known))
    advised = [a for a in plan.assignments if a.candidate.origin == "rlp"]
    assert [a.candidate.params for a in advised] == [good]
    assert plan.exogenous.isdisjoint(advised[0].cells)
    assert len(plan.exogenous) == plan.n_cells // 2


# -- settings ----------------------------------------------------------------------------------


def test_elitism_is_chosen_in_the_configuration():
    wanted = {"elite_size": 0, "population_size": 8, "generations": 10}
    cfg = problems.configuration("evolution", evolution=wanted)
    sampler = make_sampler(cfg, problems.space())
    assert isinstance(sampler, EvolutionSampler)
    state, plans = problems.search(sampler, seed=3)
    last = {assignment.candidate.candidate_id for assignment in plans[-1].assignments}
    # Without an elite nobody outlives the generation after its own.
    assert {candidate.candidate_id for candidate in sampler.population(state)} == last
    plain = make_sampler(problems.configuration("evolution"), problems.space())
    assert isinstance(plain, EvolutionSampler)
    assert plain.elite_size == 2
    assert (plain.breeder.mutation_rate, plain.breeder.crossover_rate) == (0.2, 0.7)


def test_the_exploration_rate_is_the_share_of_random_newcomers():
    """Of 160 cells in chunks of five; without breeding by draws there is nothing else random."""
    state = told(RACING, 3)

    def n_random(rate: float) -> int:
        sampler = replace(RACING, exploration_rate=rate)
        plans = [sampler.ask(state, rng(seed), request(3)) for seed in range(10)]
        return sum(c.origin == "sample" for p in plans for c in newcomers(p, state))

    assert n_random(1.0) == 320
    assert n_random(0.0) < n_random(0.5) < n_random(1.0)


def test_a_lower_confidence_level_sends_more_candidates_out_of_the_race():
    """Three candidates with noisy cells, the last far enough behind to be doubted at .51."""
    members = [SPACE.candidate(SPACE.sample(rng(seed))) for seed in range(3)]
    rewards = [0.8, 0.75, 0.55]
    trials = [
        trial(
            c,
            {
                Cell(candidate_id=c.candidate_id, case_id=case): r + 0.35 * luck
                for case, luck in zip(CASES[:8], rng(i).standard_normal(8), strict=True)
            },
        )
        for i, (c, r) in enumerate(zip(members, rewards, strict=True))
    ]
    state = RACING.tell(RACING.start(), trials)

    def in_race(level: float) -> list[str]:
        fitted = RACING.surrogate.fit(state.archive)
        rules = Rules(confidence_level=level)
        field = Competitors(rules, RACING.surrogate.encoding, state.archive, fitted)
        return [field.members[i].candidate_id for i in field.elites]

    assert in_race(1 - 1e-9) == [member.candidate_id for member in members]
    assert in_race(0.51) == [member.candidate_id for member in members[:2]]


@pytest.mark.parametrize(
    ("cases", "most"), [(CASES, Rules().max_chunks), (CASES[:1], Rules().max_repeats)]
)
def test_a_known_candidate_wins_few_places_of_a_generation(cases, most):
    """Eight are all there are, one far ahead: of twelve places it wins as many as it may."""
    names = tuple("abcdefgh")
    space = Space(parameters={"x": Choice(kind="categorical", choices=names)})
    trials = []
    for i, name in enumerate(names):
        member = space.candidate({"x": name})
        repeats = range(1 if len(cases) > 1 else 5)
        cells = [
            Cell(candidate_id=member.candidate_id, case_id=case, repeat=repeat)
            for case in cases[:5]
            for repeat in repeats
        ]
        luck = 0.1 * rng(i).standard_normal(len(cells))
        rewards = {cell: 0.05 + 0.9 * (i == 0) + x for cell, x in zip(cells, luck, strict=True)}
        trials.append(trial(member, rewards))
    sampler = replace(
        RACING,
        space=space,
        surrogate=SpaceModel(space=space),
        rules=Rules(confidence_level=1.0),  # nobody leaves
        cases_per_candidate=1,
    )
    state = sampler.tell(sampler.start(), trials)
    plan = sampler.ask(state, rng(3), request(1, case_ids=cases, repeats=50, n_cells=12))
    won = {a.candidate.params["x"]: len(a.cells) for a in plan.assignments}
    assert won["a"] == most == max(won.values())
    assert sum(won.values()) == 12


def test_children_are_bred_of_the_best():
    """More children of the better half of the parents than of the worse."""
    state = told(RACING, 3)
    values = {m.candidate.candidate_id: mixed_value(m.candidate.params) for m in state.archive}
    plans = [RACING.ask(state, rng(seed), request(3)) for seed in range(5)]
    parents = [p for plan in plans for c in newcomers(plan, state) for p in c.parent_ids]
    assert len(parents) > 20
    assert np.mean([values[p] for p in parents]) > np.quantile([*values.values()], 0.75)


def test_an_exhausted_race_asks_those_who_left_it():
    pair = Space(parameters={"n": Choice(kind="categorical", choices=(0, 1))})
    sampler = ThompsonSampler(name="thompson", space=pair, surrogate=SpaceModel(space=pair))
    state, good, bad = sampler.start(), pair.candidate({"n": 0}), pair.candidate({"n": 1})
    trials = [
        trial(good, {Cell(candidate_id=good.candidate_id, case_id=c): 0.9 for c in CASES}),
        trial(bad, {Cell(candidate_id=bad.candidate_id, case_id=c): 0.1 for c in CASES[:15]}),
    ]
    state = sampler.tell(state, trials)
    plan = sampler.ask(state, rng(), request(1))
    assert [a.candidate.candidate_id for a in plan.assignments] == [bad.candidate_id]
    assert {cell.case_id for a in plan.assignments for cell in a.cells} == set(CASES[15:])


# -- worth -------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_a_part_of_a_place_is_explored_with_its_probability():
    """43 cells at a rate of .2 are 1.72 places of 5 cells; observed: as many of 2,000."""

    class Counting:
        n = 0

        def sample(self, n: int, rng: np.random.Generator) -> tuple[()]:
            self.n += n
            return ()

    breeder: Any = Counting()
    nothing: Any = None
    allocation = CellAllocation(
        competitors=nothing,
        builder=nothing,
        rng=rng(5),
        breeder=breeder,
        chunk=5,
        max_new=9,
        n_slots=9,
    )
    for _ in range(2_000):
        allocation._explore(43, 0.2)
    assert stats.binomtest(breeder.n - 2_000, 2_000, 0.72).pvalue > 1e-3, breeder.n


@pytest.mark.parametrize(("n_cells", "is_learned"), [(10, False), (100, True)])
def test_hyper_parameters_are_learned_again_once_evidence_has_grown_by_a_tenth(
    n_cells, is_learned
):
    state = told(RACING, 3)
    n_known = sum(member.n for member in state.archive)
    assert (n_cells >= 0.1 * n_known) == is_learned
    plan = RACING.ask(state, rng(2), request(3, n_cells=n_cells, n_candidates=2))
    after = tell(RACING, state, plan)
    assert (after.memory["log_params"] != state.memory["log_params"]) == is_learned
