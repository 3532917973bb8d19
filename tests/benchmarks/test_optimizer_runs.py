"""The benchmark's spaces, opponents and runs, without the libraries of its environments."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks.optimizer.commands import main
from benchmarks.optimizer.opponents.base import Asked, CellOpponent, Claim, Setup
from benchmarks.optimizer.opponents.ours import core_parameter, parse_overrides, task_point
from benchmarks.optimizer.opponents.registry import check, make_opponent
from benchmarks.optimizer.records import Row
from benchmarks.optimizer.running import Progress, run, step
from benchmarks.optimizer.spaces import Parameter, Space
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


@pytest.mark.parametrize("name", ALL_SPACES)
def test_a_space_survives_json(name: str):
    space = ALL_SPACES[name]
    again = Space.from_json(json.loads(json.dumps(space.to_json())))
    assert again.parameters == space.parameters


def test_a_child_is_active_with_its_parents_values_only():
    space = Space(
        [
            Parameter(name="m", kind="categorical", choices=("a", "b")),
            Parameter(name="x", kind="int", low=1, high=3, parent="m", parent_values=("b",)),
        ]
    )
    assert space.canonical({"m": "a", "x": 2}) == {"m": "a"}
    assert space.canonical({"m": "b", "x": 9.7}) == {"m": "b", "x": 3}
    points = space.points(10)
    assert points == [{"m": "a"}, {"m": "b", "x": 1}, {"m": "b", "x": 2}, {"m": "b", "x": 3}]
    assert space.points(3) is None


def test_places_on_a_logarithmic_scale_lead_back():
    p = Parameter(name="x", kind="float", low=1e-4, high=10.0, log=True)
    assert p.place(1e-4) == 0
    assert p.place(10.0) == pytest.approx(1)
    assert p.number_at(p.place(0.037)) == pytest.approx(0.037)


@pytest.mark.parametrize("name", ["random", "ours"])
def test_the_same_seed_is_the_same_run(name: str):
    runs = [run(name, BowlTask(3), seed=4, budgets=[10, 20], batch=5) for _ in range(2)]
    assert without_times(runs[0]) == without_times(runs[1])
    assert [row.budget for row in runs[0]] == [10, 20]


@pytest.mark.parametrize("name", ["halving", "ours", "random"])
def test_no_run_uses_more_cells_than_its_budget_is_worth(name: str):
    for row in run(name, BowlCaseTask(2), seed=0, budgets=[10, 20], batch=10):
        assert 0 < row.n_cells <= row.budget * BowlCaseTask.cases_per_evaluation
        assert row.true_best_seen is not None
        assert row.true <= row.true_best_seen


def test_one_run_of_an_opponent_without_horizon_is_scored_at_every_budget():
    rows = run("random", BowlTask(2), seed=0, budgets=[10, 20, 40], batch=10)
    assert [row.n_points for row in rows] == [10, 20, 40]
    assert [row.true_best_seen for row in rows] == sorted(
        row.true_best_seen for row in rows if row.true_best_seen is not None
    )


def test_the_products_claims_are_recorded():
    (row,) = run("ours:recommend.level=0.8", BowlCaseTask(2), seed=0, budgets=[20], batch=10)
    assert row.level == 0.8
    assert row.claimed is not None
    assert row.claimed_low is not None
    assert row.claimed_high is not None
    assert row.claimed_low <= row.claimed <= row.claimed_high


class Greedy(CellOpponent):
    def ask_cells(self, n_cells: int) -> list[Asked]:
        point = self.setup.space.sample(np.random.default_rng(0))
        return [Asked(point=point, cases=tuple(range(n_cells + 1)))]

    def tell_cells(self, asked: Sequence[Asked], rewards: Sequence[Sequence[float]]) -> None:
        raise AssertionError("it must not come to this")

    def recommend(self) -> Claim:
        raise AssertionError("it must not come to this")


def test_an_opponent_that_asks_too_much_is_stopped():
    task = BowlCaseTask(2)
    opponent = Greedy(Setup.of(task, seed=0, batch=2, budget=2))
    with pytest.raises(RuntimeError, match="asked more than 40 cells"):
        step(opponent, task, 2, np.random.default_rng(0), Progress())


def test_sequential_halving_hands_over_one_of_the_last_round():
    task = BowlCaseTask(2)
    opponent = make_opponent("halving", Setup.of(task, seed=0, batch=10, budget=40))
    assert isinstance(opponent, CellOpponent)
    n_cases: dict[object, int] = {}
    rng = np.random.default_rng(0)
    for _ in range(4):
        asked = opponent.ask_cells(200)
        opponent.tell_cells(asked, [task.evaluate_cases(a.point, a.cases, rng) for a in asked])
        for a in asked:
            key = task.space.key(a.point)
            n_cases[key] = n_cases.get(key, 0) + len(a.cases)
    winner = task.space.key(opponent.recommend().point)
    assert n_cases[winner] >= 0.8 * max(n_cases.values())


def test_settings_are_read_and_unknown_ones_refused_at_once():
    assert parse_overrides("draws=False+elite_size=3+name=x") == {
        "draws": False, "elite_size": 3, "name": "x",
    }  # fmt: skip
    check("ours:rules.draws=False")
    with pytest.raises(ValueError, match="`no_such_field` must be a field of"):
        check("ours:no_such_field=1")
    with pytest.raises(ValueError, match="must be written `name=value`"):
        check("ours:draws")
    with pytest.raises(ValueError, match="`nobody` is no opponent"):
        check("nobody")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--opts", "random", "--out", "never.csv", "--tasks"],
    ],
)
def test_commands_refuse_a_task_that_there_is_not_in_a_sentence(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("never.csv").touch()
    with pytest.raises(SystemExit, match="`nothing` is no task: use one of all, "):
        main([*arguments, "nothing"])


def test_a_reader_that_has_seen_enough_gets_no_traceback(tmp_path: Path):
    out = tmp_path / "runs.csv"
    arguments = ["run", "--opts", "random", "--tasks", "llm:jhu-acc", "--seeds", "2"]
    assert main([*arguments, "--budgets", "20", "--out", str(out)]) == 0
    report = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.optimizer", "report", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert report.stdout is not None
    report.stdout.close()
    assert report.communicate(timeout=60)[1] == b""
    assert report.returncode == 1
