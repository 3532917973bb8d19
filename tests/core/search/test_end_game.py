"""The end game: the last cells of a run, which go to candidates that are known already."""

from dataclasses import replace

import numpy as np

from convergence_core.posterior import SpaceModel
from convergence_core.records import Candidate, Cell
from convergence_core.search.racing import Rules
from convergence_core.search.samplers import ThompsonSampler
from convergence_core.space import Choice, Space
from tests.core.search.racing import CASES, RACING, newcomers, request, rng, told
from tests.support.mixed_problem import mixed_value, trial


def test_the_last_cells_go_to_known_candidates_only():
    """The last .3 of ten generations: all of the last three, none of the seventh."""
    state = told(RACING, 2, n_cells=40)
    for generation in (7, 8, 9):
        plan = RACING.ask(state, rng(2), request(generation, n_cells=40))
        assert plan.n_cells == 40
        assert newcomers(plan, state) == []
    assert newcomers(RACING.ask(state, rng(2), request(6, n_cells=40)), state)
    # Of five large generations it is two whole ones, of small ones a part.
    large = replace(RACING, rules=Rules(groups_from=8, halving_from=8))
    for generation, sampler, finds in ((2, large, True), (3, large, False), (3, RACING, True)):
        plan = sampler.ask(state, rng(2), request(generation, n_cells=40, n_generations=5))
        assert bool(newcomers(plan, state)) == finds
    # Of two generations the end game is a part of the last.
    last = RACING.ask(state, rng(2), request(1, n_cells=40, n_generations=2))
    assert newcomers(last, state)


def test_the_end_game_asks_ever_fewer_finalists_alike():
    """Eighty cells are sixteen places and four whole evaluations: 4 finalists, 8 before."""
    rules = Rules(confidence_level=1.0, groups_from=1, halving_from=1)  # nobody leaves
    sampler = replace(RACING, rules=rules)
    state = told(sampler, 2, n_cells=100)
    fitted = sampler.surrogate.warm(state.memory).fit(state.archive, case_ids=CASES)
    members = [member.candidate for member in state.archive]
    leader = members[int(np.argmax(fitted.posterior(members).marginals[0]))].candidate_id
    for generation, n_finalists in ((9, 4), (8, 8)):
        plan = sampler.ask(state, rng(2), request(generation, n_cells=80))
        n_cells = {a.candidate.candidate_id: len(a.cells) for a in plan.assignments}
        n_open = {name: 20 - state.archive.members[name].n for name in n_cells}
        whole = [name for name, n in n_cells.items() if n == n_open[name]]
        shares = [n for name, n in n_cells.items() if name not in whole]
        assert leader in n_cells
        assert plan.n_cells == 80
        assert not shares or max(shares) - min(shares) <= 1 or len(n_cells) > n_finalists
        assert len(n_cells) == n_finalists or len(whole) >= n_finalists


def test_finalists_are_those_likeliest_to_be_the_best():
    """Thirty that are known well, and one that is hardly known, of a mean that six of them exceed."""
    space = Space(parameters={"x": Choice(kind="categorical", choices=tuple(range(31)))})
    sampler = ThompsonSampler(
        name="thompson",
        space=space,
        surrogate=SpaceModel(space=space),
        rules=Rules(confidence_level=1.0, groups_from=1, halving_from=1),
    )
    cases = tuple(f"case-{j:02d}" for j in range(40))
    g, trials = rng(4), []
    for x in range(31):
        member = space.candidate({"x": x})
        n, value = (3, 0.5) if x == 30 else (30, 0.3 + 0.008 * x)
        luck = 0.15 * g.standard_normal(n)
        cells = [Cell(candidate_id=member.candidate_id, case_id=case) for case in cases[:n]]
        rewards = value + luck - luck.mean()
        trials.append(trial(member, dict(zip(cells, map(float, rewards), strict=True))))
    state = sampler.tell(sampler.start(), trials)
    fitted = sampler.surrogate.warm(state.memory).fit(state.archive, case_ids=cases)
    members = [member.candidate for member in state.archive]
    believed = dict(
        zip((m.params["x"] for m in members), fitted.posterior(members).mean, strict=True)
    )
    assert sum(mean > believed[30] for mean in believed.values()) >= 6
    plan = sampler.ask(state, g, request(9, case_ids=cases, n_cells=160))
    n_cells = {a.candidate.params["x"]: len(a.cells) for a in plan.assignments}
    assert n_cells[30] == 37  # all that are open, as of all four finalists


def test_a_long_end_game_lets_fewer_leave_at_a_time():
    """Fifteen of fifty generations: the first has a place for each finalist, the last two."""
    cases = tuple(f"case-{j:02d}" for j in range(40))
    settings: dict[str, object] = {"case_ids": cases, "n_cells": 80, "n_generations": 50}
    sampler = replace(RACING, rules=Rules(confidence_level=1.0, groups_from=1, halving_from=1))
    state = told(sampler, 2, case_ids=cases)
    assert len(state.archive) > 16
    n_asked = []
    for generation in range(35, 50):
        plan = sampler.ask(state, rng(2), request(generation, **settings))
        assert newcomers(plan, state) == []
        n_asked.append(len(plan.assignments))
    assert n_asked[0] <= 16 + 1
    assert n_asked[0] > n_asked[7] > n_asked[-1] >= 2
    assert n_asked[:8] == sorted(n_asked[:8], reverse=True)  # later ones have too few cells left


def test_without_cases_the_end_game_is_short_and_only_for_noise():
    """A case asked again and again: a tenth of the run, if its answers vary at all."""
    single: dict[str, object] = {"case_ids": CASES[:1], "repeats": 30, "n_cells": 8}

    def last(noise: float) -> list[Candidate]:
        g = rng(3)
        state = RACING.start()
        for generation in range(9):
            plan = RACING.ask(state, g, request(generation, **single))
            trials = [
                trial(
                    a.candidate,
                    {
                        cell: float(mixed_value(a.candidate.params) + noise * g.standard_normal())
                        for cell in a.cells
                    },
                )
                for a in plan.assignments
            ]
            state = RACING.tell(state, trials)
        return newcomers(RACING.ask(state, g, request(9, **single)), state)

    assert last(0.3) == []
    assert last(0.0)


def test_the_search_goes_on_when_the_end_game_has_nothing_to_ask():
    state = told(replace(RACING, cases_per_candidate=20), 1)
    assert all(member.n == 20 for member in state.archive)
    plan = RACING.ask(state, rng(2), request(9))
    assert newcomers(plan, state)
