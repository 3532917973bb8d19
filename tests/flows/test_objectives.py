"""Whole runs with a hard constraint, a front and prices, through the command line."""

import json
from pathlib import Path

import pytest

from convergence_core.evidence import COST, total_of
from convergence_core.search.goals import MEMORY_KEY
from convergence_core.search.sampler import SearchState
from tasks.store import ParquetStore
from tests.support.optimizations import run_command, write_project

METRICS = """


def cheap(result, expected, params, metric):
    return 1.0 - params["x"]


def late(result, expected, params, metric):
    return 1.0 if params["x"] > 0.6 and params["kind"] == "b" else 0.0
"""


@pytest.mark.slow
def test_a_pareto_run_shows_its_front_without_what_breaks_the_constraint(tmp_path: Path):
    """The highest worth, at x=.7 and kind b, is forbidden from x=.6 on."""
    write_project(
        tmp_path,
        evaluation__objective="pareto",
        evaluation__metrics={
            "worth": {"type": "function", "function": "target.py:worth", "weight": 1},
            "cheap": {"type": "function", "function": "target.py:cheap", "weight": 0.1},
            "late": {"type": "function", "function": "target.py:late", "weight": 0, "max": 0.5},
        },
    )
    with (tmp_path / "target.py").open("a") as target:
        target.write(METRICS)
    run_command("optimize", "--quiet", cwd=tmp_path)
    folder = tmp_path / "results" / "latest"
    best = json.loads((folder / "best_config.json").read_text())["config"]
    assert not (best["kind"] == "b" and best["x"] > 0.6)
    front = json.loads((folder / "front.json").read_text())
    assert front["objectives"] == ["worth", "cheap"]
    asked = [*front["points"], *front["dominated"]]
    assert not any(p["params"]["kind"] == "b" and p["params"]["x"] > 0.6 for p in asked)
    assert front["n_infeasible"] > 0
    ends = [point["params"]["x"] for point in front["points"]]
    assert max(ends) - min(ends) > 0.3
    assert "The front of trade-offs" in (folder / "report.html").read_text()


PRICED = """


def answer_priced(case, params):
    return {**answer(case, params), "cost_usd": {"a": 0.0001, "b": 0.0002, "c": 0.01}[params["kind"]]}
"""


@pytest.mark.slow
def test_what_cells_cost_reaches_the_draws(tmp_path: Path):
    """The run's last state holds each candidate's dollars, and a surrogate of them."""
    write_project(
        tmp_path, api__function="target.py:answer_priced", optimization__cost_aware="usd"
    )
    with (tmp_path / "target.py").open("a") as target:
        target.write(PRICED)
    run_command("optimize", "--quiet", cwd=tmp_path)
    rows = ParquetStore(tmp_path / "convergence-data").rows(
        "SELECT sampler_state_json FROM generations ORDER BY generation DESC LIMIT 1"
    )
    state = SearchState.from_json(json.loads(str(rows[0]["sampler_state_json"])))
    goals = state.memory[MEMORY_KEY]
    assert isinstance(goals, dict)
    assert list(goals) == [COST]
    prices = {"a": 0.0001, "b": 0.0002, "c": 0.01}
    for member in state.archive:
        n, total, _ = total_of(member.tallies, COST)
        assert n == member.n
        assert total == pytest.approx(n * prices[str(member.candidate.params["kind"])])
