"""What a living run shows of itself."""

from pathlib import Path

from convergence_core.events import Event, GenerationFinished
from convergence_core.result import RunResult
from tasks.inputs.loader import load
from tasks.report.stills import learning_curve_png
from tasks.report.tables import leaderboard_grid
from tasks.run.opener import prepare_run
from tasks.run.result import collect_progress
from tests.support.optimizations import write_project
from tests.support.results import made_up_result
from tests.support.searching import finish


def test_a_run_that_has_just_begun_can_be_shown(tmp_path):
    with prepare_run(load(write_project(tmp_path))) as run:
        result = collect_progress(run)
    assert result.label == run.label
    assert (result.winner, result.curve, result.leaderboard) == (None, (), ())
    assert (result.n_search_cases, result.n_holdout_cases, result.n_calls) == (9, 3, 0)
    assert result.has_defaults
    assert learning_curve_png(result).startswith(b"\x89PNG")


def test_leaderboard_rows_are_texts_by_column():
    grid = leaderboard_grid(made_up_result(), 3)
    assert [row[0] for row in grid.rows] == ["1", "2", "3"]
    assert list(grid.columns) == [
        "rank",
        "configuration",
        "posterior mean",
        "cautious",
        "cases",
        "evaluations",
        "failed",
        "ndcg_at_10",
        "latency_ms",
        "origin",
    ]
    assert str(grid.rows[0][1]).endswith("(recommended)")


def test_where_nobody_answered_nobody_leads_on_any_surface(tmp_path: Path):
    path = write_project(
        tmp_path, optimization__evolution={"population_size": 3, "generations": 2}
    )
    target = tmp_path / "target.py"
    target.write_text(target.read_text().replace("    line = ", "    raise OSError\n    line = "))
    told: list[GenerationFinished] = []
    shown: list[RunResult] = []

    def look(event: Event) -> None:
        if isinstance(event, GenerationFinished):
            told.append(event)
            shown.append(collect_progress(run))

    run = prepare_run(load(path), on_event=look)
    result = finish(run)
    assert [(event.best_mean, event.best_params) for event in told] == [(None, None)]
    for standing in (*shown, result):
        assert (standing.winner, standing.leaderboard) == (None, ())
        assert {point.best_mean for point in standing.curve} == {None}
    assert not run.store.rows("SELECT * FROM estimates")
