"""How a budget of calls is spread over generations and the final test."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from convergence_core.search.schedule import FINAL_SHARE, Schedule


def schedule(
    max_calls: int | None,
    *,
    per_cell: int = 1,
    baseline: bool = True,
    champion: bool = False,
    **champions: int,
) -> Schedule:
    return Schedule(
        n_generations=3,
        population_size=4,
        n_search_cases=9,
        n_holdout_cases=3,
        max_calls=max_calls,
        calls_per_cell=per_cell,
        has_baseline=baseline,
        has_champion=champion,
        **champions,  # type: ignore[arg-type]  # numbers of champions
    )


@given(st.integers(1, 400), st.integers(1, 30), st.booleans(), st.booleans())
def test_a_final_look_without_a_cell_is_told_with_the_cap_that_gives_it_one(
    max_calls: int, per_cell: int, baseline: bool, champion: bool
):
    plan = schedule(max_calls, per_cell=per_cell, baseline=baseline, champion=champion)
    told = plan.final_shortage()
    assert (told is None) == any(plan.final_quota())
    if told is not None:
        least = int(told.rpartition("; ")[2].split(" ")[0].replace(",", ""))
        assert f"budget.max_calls={max_calls} " in told
        for cap, has_cells in ((least, True), (least - 1, False)):
            of_cap = schedule(cap, per_cell=per_cell, baseline=baseline, champion=champion)
            assert any(of_cap.final_quota()) == has_cells


def test_the_shortage_names_all_who_are_looked_at():
    whole = schedule(3, champion=True).final_shortage()
    assert whole is not None
    assert "one case of the winner, the defaults and the champion takes 3" in whole
    alone = schedule(3, baseline=False).final_shortage()
    assert alone is not None
    assert "one case of the winner takes 1" in alone
    assert schedule(None).final_shortage() is None


@pytest.mark.parametrize(("max_calls", "cells"), [(40, 6), (100, 12), (10_000, 12)])
def test_the_final_look_takes_its_share_at_most(max_calls: int, cells: int):
    plan = schedule(max_calls)
    assert sum(plan.final_quota()) == cells
    assert sum(plan.final_quota()) * plan.n_subjects <= FINAL_SHARE * max_calls


@given(st.integers(1, 600), st.integers(1, 9), st.integers(0, 3), st.integers(0, 3))
def test_cells_judges_and_champions_fit_the_cap_together(
    max_calls: int, per_cell: int, n_apart: int, n_default: int
):
    plan = schedule(
        max_calls, per_cell=per_cell, n_champions=n_apart + n_default, n_champions_apart=n_apart
    )
    spent, (n_holdout, n_fresh) = 0, plan.final_quota()
    assert plan.final_calls <= FINAL_SHARE * max_calls
    for generation in range(plan.n_generations):
        cells = plan.capacity(generation, spent)
        n_new = min(cells, plan.n_search_cases) if generation == 0 else 0
        spent += cells * per_cell + n_new * plan.n_champions
    assert spent + plan.final_calls <= max_calls
    of_cells = (n_holdout + n_fresh) * plan.n_subjects * per_cell
    assert plan.final_calls == of_cells + n_holdout * n_apart


def test_a_champion_takes_calls_from_the_first_generation():
    alone, compared = schedule(60, per_cell=3), schedule(60, per_cell=3, n_champions=1)
    assert (alone.capacity(0, 0), compared.capacity(0, 0)) == (5, 4)
    assert alone.capacity(1, 20) == compared.capacity(1, 20)
    assert schedule(8, per_cell=3, n_champions=1).capacity(0, 0) == 1, "few calls ask few cases"


def test_held_out_cases_are_repeated_like_search_cases():
    plan = replace(schedule(None), repeats=3)
    n_fresh = schedule(None).final_quota()[1]
    assert plan.final_quota() == (9, n_fresh)
    assert replace(plan, deterministic=True).final_quota() == (3, 0)
