"""Results in notebooks: cards without script, the report's plots, data frames, real kernels."""

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from convergence import OptimizationResult
from convergence.api import _result_of
from convergence.notebooks import NotebookView
from convergence_core.result import RunResult
from tests.docs.test_documents import ROOT, blocks
from tests.report.test_pages import NASTY, read
from tests.support.results import bare_result, failed_result, made_up_result

PAGE = ROOT / "docs/notebooks.md"


def shown(result: RunResult) -> OptimizationResult:
    return _result_of(result, ())


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"missing: {', '.join(missing)}")


def test_a_card_says_verdict_intervals_and_price():
    card = shown(made_up_result())._repr_html_()
    text = read(card).text
    assert "0.610 [0.570,\xa00.650]" in text
    assert "0.550 [0.510,\xa00.590]" in text
    assert "Spent: $4.22." in text


def test_a_card_has_no_script_and_loads_nothing():
    tags = read(shown(made_up_result())._repr_html_())
    assert not {"script", "link", "img", "iframe", "object"} & set(tags.tags)
    assert not [name for name, _ in tags.attributes if name.startswith("on") or name == "src"]


def test_texts_of_others_are_escaped_in_a_card():
    result = made_up_result()
    assert result.winner is not None
    hostile = replace(
        result,
        label=NASTY,
        system=NASTY,
        winner_reason=NASTY,
        winner=replace(result.winner, params={NASTY: NASTY * 30}, label=NASTY),
    )
    card = shown(hostile)._repr_html_()
    assert "<script" not in card
    assert "\x00" not in card
    read(card)
    card.encode()


@pytest.mark.parametrize("result", [bare_result(), failed_result()])
def test_results_without_a_winner_or_defaults_show_a_card(result: RunResult):
    assert "convergence-result" in shown(result)._repr_html_()
    assert shown(result)._repr_markdown_()


PLOTS = [name for name in dir(NotebookView) if name.startswith("plot_")]


@pytest.mark.parametrize("name", PLOTS)
def test_every_plot_is_a_figure_or_says_what_is_missing(name: str):
    from matplotlib.figure import Figure

    arguments = ("stemmer",) if name == "plot_parameter" else ()
    plot = getattr(shown(made_up_result()), name)
    if name == "plot_front":
        with pytest.raises(ValueError, match="Pareto run"):
            plot()
        return
    assert isinstance(plot(*arguments), Figure)
    with pytest.raises(ValueError, match=r"needs|empty|two values"):
        getattr(shown(failed_result()), name)(*arguments)


def test_a_plot_of_an_unknown_parameter_names_the_known_ones():
    with pytest.raises(ValueError, match=r"Known: .*stemmer"):
        shown(made_up_result()).plot_parameter("stemer")


def test_the_leaderboard_is_a_data_frame_with_a_column_for_each_parameter():
    frame = shown(made_up_result()).to_polars()
    assert frame.height == 120
    assert {"rank", "mean", "low", "high", "params.k1", "metrics.latency_ms"} <= set(frame.columns)
    assert frame["mean"].dtype == pl.Float64


@pytest.mark.parametrize("table", list(NotebookView._ROWS))
def test_every_table_is_a_data_frame(table: Any):
    frame = shown(made_up_result()).to_polars(table)
    assert isinstance(frame, pl.DataFrame)


def cells() -> list[str]:
    return blocks(PAGE.read_text(encoding="utf-8"), "python")


@needs("nbclient", "ipykernel", "nbformat")
@pytest.mark.prefect
@pytest.mark.slow
def test_the_cells_of_the_page_run_in_a_real_kernel(tmp_path: Path):
    parts: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "metadata": {},
            "outputs": [],
            "execution_count": None,
            "source": cell,
        }
        for cell in cells()
    ]
    path = tmp_path / "book.ipynb"
    path.write_text(
        json.dumps({"cells": parts, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}), "utf-8"
    )
    code = (
        "import nbformat, nbclient; book = nbformat.read('book.ipynb', 4); "
        "nbclient.NotebookClient(book, timeout=300, kernel_name='python3').execute(); "
        "nbformat.write(book, 'book.ipynb')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    executed = json.loads(path.read_text(encoding="utf-8"))["cells"]
    card, curve, table, board = (
        {kind: "".join(text) for kind, text in cell["outputs"][-1]["data"].items()}
        for cell in executed
        if cell["outputs"]
    )
    assert "convergence-result" in card["text/html"]
    assert "slope" in card["text/html"]
    assert "image/png" in curve
    assert "params.slope" in table["text/html"]
    assert "image/png" in board


@needs("marimo")
@pytest.mark.prefect
@pytest.mark.slow
def test_a_result_shows_itself_in_marimo(tmp_path: Path):
    source = ["import marimo", "app = marimo.App()"]
    for cell in cells()[:2]:
        body = cell.replace("\n", "\n    ")
        source.append(f"@app.cell\ndef _():\n    {body}\n")
    # In marimo a cell shares what it returns.
    text = "\n".join(source).replace("    found\n", "    found\n    return (found,)\n", 1)
    text = text.replace("def _():\n    found.plot", "def _(found):\n    found.plot")
    (tmp_path / "book.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "marimo", "export", "html", "book.py", "-o", "book.html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    page = (tmp_path / "book.html").read_text(encoding="utf-8")
    assert "convergence-result" in page
    assert "data:image/png" in page
