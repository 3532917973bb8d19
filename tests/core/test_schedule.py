"""How a budget of calls is spread over generations and the final look."""

import pytest
from hypothesis import given, strategies as st

from convergence_core.schedule import FINAL_SHARE, Schedule


def schedule(max_calls: int | None, *, per_cell: int = 1, baseline: bool = True) -> Schedule:
    return Schedule(
        n_generations=3,
        population_size=4,
        n_search_cases=9,
        n_holdout_cases=3,
        max_calls=max_calls,
        calls_per_cell=per_cell,
        has_baseline=baseline,
    )


@given(st.integers(1, 400), st.integers(1, 30), st.booleans())
def test_a_final_look_without_a_cell_is_told_with_the_cap_that_gives_it_one(
    max_calls: int, per_cell: int, baseline: bool
):
    plan = schedule(max_calls, per_cell=per_cell, baseline=baseline)
    told = plan.final_shortage()
    assert (told is None) == (plan.final_quota().n_cells > 0)
    if told is not None:
        least = int(told.rpartition("from ")[2].split(" ")[0].replace(",", ""))
        assert f"budget.max_calls={max_calls} " in told
        for cap, has_cells in ((least, True), (least - 1, False)):
            quota = schedule(cap, per_cell=per_cell, baseline=baseline).final_quota()
            assert (quota.n_cells > 0) == has_cells


def test_without_a_cap_nothing_is_short():
    assert schedule(None).final_shortage() is None


@pytest.mark.parametrize(("max_calls", "cells"), [(40, 6), (100, 12), (10_000, 12)])
def test_the_final_look_takes_its_share_at_most(max_calls: int, cells: int):
    plan = schedule(max_calls)
    assert plan.final_quota().n_cells == cells
    assert plan.final_quota().n_cells * plan.n_subjects <= FINAL_SHARE * max_calls
