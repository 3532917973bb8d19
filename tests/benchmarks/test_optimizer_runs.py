"""The benchmark's spaces, opponents and runs, without the libraries of its environments."""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pytest

from benchmarks.optimizer.opponents.ours import core_parameter, task_point
from benchmarks.optimizer.records import Row
from benchmarks.optimizer.running import run
from benchmarks.optimizer.spaces import Space
from benchmarks.optimizer.tasks import get_task
from benchmarks.optimizer.tasks.live import SPACES
from benchmarks.optimizer.tasks.tables import PARAMETERS
from convergence_core.space import Space as CoreSpace
from tests.support.bowl_tasks import BowlCaseTask, BowlTask

ALL_SPACES = {
    **{name: Space(parameters) for name, parameters in {**PARAMETERS, **SPACES}.items()},
    **{
        name: get_task(name).space
        for name in (
            "yahpo0:xgboost-31", "yahpo0:lcbench-189873", "yahpoN:rpart-14", "llm:jhu-acc",
            "llm:prompt-snarks",
        )
    },
}  # fmt: skip


def without_times(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [{k: v for k, v in asdict(r).items() if not k.endswith("_ms")} for r in rows]


def core_space(space: Space) -> CoreSpace:
    return CoreSpace(parameters={p.name: core_parameter(p) for p in space.parameters})


@pytest.mark.parametrize("name", ALL_SPACES)
def test_points_of_the_products_space_are_points_of_the_task(name: str):
    space = ALL_SPACES[name]
    core, rng = core_space(space), np.random.default_rng(0)
    for _ in range(100):
        point = task_point(space.parameters, core.sample(rng))
        # Bounds, choices and conditions are kept: nothing is clipped, dropped or missing.
        assert space.canonical(point) == point


@pytest.mark.parametrize("name", ALL_SPACES)
def test_points_of_the_task_are_valid_in_the_products_space(name: str):
    space = ALL_SPACES[name]
    core, rng = core_space(space), np.random.default_rng(1)
    for _ in range(100):
        point = space.sample(rng)
        params = {
            p.name: p.choices.index(point[p.name]) if p.kind == "ordered" else point[p.name]
            for p in space.parameters
            if p.name in point
        }
        assert core.validate(params) == []


@pytest.mark.parametrize("name", ["random", "ours"])
def test_the_same_seed_is_the_same_run(name: str):
    runs = [run(name, BowlTask(3), seed=4, budgets=[10, 20], batch=5) for _ in range(2)]
    assert without_times(runs[0]) == without_times(runs[1])
    assert [row.budget for row in runs[0]] == [10, 20]


@pytest.mark.parametrize("name", ["halving", "hyperband", "median", "ours", "random"])
def test_a_run_uses_what_its_budget_is_worth(name: str):
    if name in {"hyperband", "median"}:
        pytest.importorskip("optuna")
    for row in run(name, BowlCaseTask(2), seed=0, budgets=[10, 20, 100], batch=10):
        worth = row.budget * BowlCaseTask.cases_per_evaluation
        assert 0.9 * worth <= row.n_cells <= worth
        assert row.true_best_seen is not None
        assert row.true <= row.true_best_seen


def test_the_products_claims_are_recorded():
    (row,) = run("ours:recommend.level=0.8", BowlCaseTask(2), seed=0, budgets=[20], batch=10)
    assert row.level == 0.8
    assert row.claimed is not None
    assert row.claimed_low is not None
    assert row.claimed_high is not None
    assert row.claimed_low <= row.claimed <= row.claimed_high
