"""The benchmark's arithmetic: regret, pairing, claims, and files that are continued."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.optimizer import records
from benchmarks.optimizer.commands import main
from benchmarks.optimizer.records import Row
from benchmarks.optimizer.regret import (
    Scale,
    calibrate,
    compare,
    over_seeds,
    raise_scales,
    read_scales,
)
from benchmarks.optimizer.reporting import Results, summary, task_table
from benchmarks.optimizer.tasks import SETS, TASKS
from benchmarks.tables import append, with_ends, with_error, with_half

SCALE = Scale(best=0.9, median=0.5)
SUITES = {"a": "one", "b": "two"}


def row(**changes: object) -> Row:
    base = Row(
        opponent="x", task="a", suite="one", seed=0, budget=20, true=0.7, true_best_seen=0.8,
n_points=20, n_cells=20, ask_ms=1.0, tell_ms=0.5, recommend_ms=0.1,
        worst_batch_ms=2.0,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("true", "regret"), [(0.9, 0.0), (0.7, 0.5), (0.5, 1.0), (0.1, 1.0), (1.2, 0.0)]
)
def test_regret_is_0_at_the_best_1_at_the_median_and_clipped(true: float, regret: float):
    assert SCALE.regret(true) == pytest.approx(regret)


def test_a_scale_is_raised_by_better_values_only():
    raised = raise_scales({"a": SCALE, "b": SCALE}, [("a", 0.95), ("a", 0.92), ("b", 0.3)])
    assert raised == {"a": Scale(best=0.95, median=0.5), "b": SCALE}


def test_the_standard_error_is_that_of_the_seeds_means():
    runs = {("a", 0): 0.1, ("b", 0): 0.3, ("a", 1): 0.5, ("b", 1): 0.3, ("a", 2): 0.0}
    found = over_seeds(runs)  # seed 2 lacks a task; the others' means are .2 and .4
    assert found.n_seeds == 2
    assert found.mean == pytest.approx(0.3)
    assert found.error == pytest.approx(0.1)


def test_differences_are_paired_by_task_and_seed():
    reference = {("a", 0): 0.5, ("b", 0): 0.1, ("a", 1): 0.7, ("b", 1): 0.3, ("c", 0): 0.9}
    runs = {("a", 0): 0.4, ("b", 0): 0.2, ("a", 1): 0.6, ("b", 1): 0.5, ("a", 7): 0.0}
    found = compare(runs, reference, SUITES)
    assert found.own.mean == pytest.approx(1.7 / 4)
    assert found.reference.mean == pytest.approx(1.6 / 4)
    assert found.difference.mean == pytest.approx(0.025)  # seeds' means: 0 and .05
    assert found.difference.error == pytest.approx(0.025)
    assert (found.n_wins, found.n_tasks) == (1, 2)
    assert (found.n_clear_wins, found.n_clear_losses) == (1, 1)  # -.1 and -.1; +.1 and +.2
    assert found.by_suite == pytest.approx({"one": -0.1, "two": 0.15})


def test_a_single_seed_has_no_interval():
    assert with_error([0.25], "+.2f") == "+0.25 (one seed)"
    assert with_half([0.25]) == "0.250 (one seed)"
    assert with_ends([0.25], "+.1f", " %") == "+0.2 % (one seed)"
    assert with_error([0.1, 0.3]) == "0.200 ± 0.100"
    results = Results.of([row(), row(opponent="y", true=0.9)], {"a": SCALE})
    assert "| x | 50.0 | - | 0.0 | +50.0 | - | 0/1 | 0, 0 | 1 | one +50.0 |" in summary(
        results, ["x", "y"], ["a"], 20, "y"
    )


def test_claims_are_judged_by_bias_and_coverage():
    found = calibrate([(0.6, 0.5, 0.7, 0.5), (0.8, 0.75, 0.9, 0.7), (0.4, 0.3, 0.5, 0.4)])
    assert found.bias == pytest.approx(0.2 / 3)
    assert found.coverage == pytest.approx(2 / 3)  # an end of the interval belongs to it
    assert found.n == 3


def test_results_give_regrets_of_recommendations():
    rows = [row(), row(seed=1, true=0.9), row(opponent="y", true=0.5)]
    results = Results.of(rows, {"a": SCALE})
    assert results.runs("x", 20, ["a"]) == pytest.approx({("a", 0): 0.5, ("a", 1): 0.0})


def test_tables_show_means_and_paired_differences():
    rows = [
        row(opponent=o, task=t, suite=SUITES[t], seed=s, true=true)
        for o, t, s, true in [
            ("x", "a", 0, 0.9), ("x", "b", 0, 0.7), ("x", "a", 1, 0.7), ("x", "b", 1, 0.7),
            ("y", "a", 0, 0.5), ("y", "b", 0, 0.7), ("y", "a", 1, 0.7), ("y", "b", 1, 0.5),
        ]
    ]  # fmt: skip
    results = Results.of(rows, {"a": SCALE, "b": SCALE})
    table = task_table(results, ["x", "y"], ["a", "b"], 20).splitlines()
    assert "| a | **25.0** | 75.0 |" in table
    assert "| **mean of all 2** | 37.5 | 75.0 |" in table
    assert "| mean of the best evaluated | 25.0 | 25.0 |" in table  # .8 on both tasks
    lines = summary(results, ["x", "y"], ["a", "b"], 20, "y").splitlines()
    assert (
        "| x | 37.5 | 12.5 | 75.0 | -37.5 | 12.5 | 2/2 | 0, 0 | 2 | one -50.0, two -25.0 |"
        in lines
    )


def test_the_last_row_of_a_job_counts(tmp_path: Path):
    out = tmp_path / "r.csv"
    claimed = row(seed=3, claimed=0.7, claimed_low=0.6, claimed_high=0.8, level=0.9, delta=0.01)
    append(out, [asdict(row())])
    append(out, [asdict(row(true=0.75)), asdict(claimed)])
    found = {r.job: r for r in records.read([out])}
    assert found == {row().job: row(true=0.75), claimed.job: claimed}


def test_a_report_of_some_tasks_tells_their_claims_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "r.csv"
    claimed = row(suite="llm", claimed=0.7, claimed_low=0.6, claimed_high=0.8, level=0.9)
    tasks = ("llm:prompt-snarks", "llm:prompt-homophones")
    append(out, [asdict(replace(claimed, task=task)) for task in tasks])
    assert main(["report", str(out), "--tasks", tasks[0]]) == 0
    assert capsys.readouterr().out.rstrip().endswith("| - | - | 1 |")  # the last cell counts runs


def test_every_task_has_a_scale_and_every_set_names_tasks():
    scales = read_scales()
    assert scales.keys() == TASKS.keys()
    assert all(scale.best > scale.median for scale in scales.values())
    for name, members in SETS.items():
        assert len(set(members)) == len(members), name
        assert set(members) <= TASKS.keys(), name
    assert [len(SETS[name]) for name in ("tuning", "public", "unseen", "mini")] == [27, 22, 17, 8]
    split = [*SETS["tuning"], *SETS["public"], *SETS["unseen"]]
    assert len(set(split)) == len(split)
