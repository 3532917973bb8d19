"""What a living run shows of itself."""

from tasks.loading import load
from tasks.opening import prepare_run
from tasks.report.collect import collect_progress
from tasks.report.leaderboard import leaderboard_rows
from tasks.report.plots import learning_curve_png
from tests.support.optimizations import write_project
from tests.support.results import made_up_result


def test_a_run_that_has_just_begun_can_be_shown(tmp_path):
    with prepare_run(load(write_project(tmp_path))) as run:
        result = collect_progress(run)
    assert result.label == run.label
    assert (result.winner, result.curve, result.leaderboard) == (None, (), ())
    assert (result.n_search_cases, result.n_holdout_cases, result.n_calls) == (9, 3, 0)
    assert result.has_defaults
    assert learning_curve_png(result).startswith(b"\x89PNG")


def test_leaderboard_rows_are_texts_by_column():
    rows = leaderboard_rows(made_up_result(), n=3)
    assert [row["rank"] for row in rows] == ["1", "2", "3"]
    assert list(rows[0]) == [
        "rank",
        "configuration",
        "posterior mean",
        "cases",
        "cells",
        "failed",
        "ndcg_at_10",
        "latency_ms",
        "origin",
    ]
    assert rows[0]["configuration"].endswith("(recommended)")
