"""Plots: made without side effects, complete with little data."""

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from convergence_core.explanation.records import Effect, EffectPoint
from tasks.report.plots import tradeoff_metrics
from tasks.report.stills import learning_curve_png, parameter_figure
from tests.support.results import bare_result, failed_result, made_up_result, plots, told

ROOT = Path(__file__).parents[2]


def test_the_users_own_style_does_not_reach_the_report():
    import matplotlib as mpl

    plain = learning_curve_png(made_up_result())
    with mpl.rc_context({"font.size": 30, "axes.grid": False}):
        assert learning_curve_png(made_up_result()) == plain


@pytest.mark.parametrize("n_generations", [1, 8, 300])
def test_the_learning_curve_is_a_small_png(n_generations):
    picture = learning_curve_png(made_up_result(n_generations=n_generations))
    assert picture.startswith(b"\x89PNG\r\n")
    assert len(picture) <= 40_000


def test_plots_without_data_are_absent():
    assert plots(failed_result(), "") == []
    assert plots(bare_result(), "effect") == []


@pytest.mark.parametrize("values", [(8.0, 16.0, 31.0), (1.0, 1000.0), (0.001, 0.1, 10.0)])
def test_a_logarithmic_axis_has_plain_numbers(values):
    points = tuple(
        EffectPoint(label=f"{x:g}", x=x, mean=0.5, low=0.4, high=0.6, n_candidates=1)
        for x in values
    )
    effect = Effect(
        parameter="max_tokens", kind="number", log=True, points=points, **told(0.5, 0.1, 0.9)
    )
    drawn = parameter_figure(replace(made_up_result(), effects=(effect,)), "max_tokens")
    labels = [label.get_text() for label in drawn.axes[0].get_xticklabels()]
    assert any(min(values) / 10 <= float(label) <= 10 * max(values) for label in labels)


def test_missing_glyphs_and_dollars_are_drawn_quietly():
    result = made_up_result()
    effects = tuple(
        replace(effect, parameter=f"温度 $x_1 é {i}") for i, effect in enumerate(result.effects)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = parameter_figure(replace(result, effects=effects), "温度 $x_1 é 0")
    assert drawn.axes[0].get_title(loc="left") == "温度 $x_1 é 0"


def test_the_trade_off_shows_the_two_metrics_of_most_weight():
    assert tradeoff_metrics(made_up_result()) == ("latency_ms", "ndcg_at_10")
    assert tradeoff_metrics(bare_result()) == ("latency_ms", "ndcg_at_10")
    alone = replace(made_up_result(), metrics=made_up_result().metrics[:1])
    assert tradeoff_metrics(alone) is None


def test_a_report_of_what_most_runs_have_loads_neither_numpy_nor_models():
    code = (
        "import sys; from convergence_core.result import RunResult; "
        "from tasks.report.markdown import report_markdown; "
        "report_markdown(RunResult.from_json(sys.stdin.read())); "
        "heavy = {'numpy', 'matplotlib', 'convergence_core.config'}; "
        "found = sorted(heavy & set(sys.modules)); sys.exit(', '.join(found) if found else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(bare_result().to_json()),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
