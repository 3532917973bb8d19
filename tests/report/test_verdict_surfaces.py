"""One run of each verdict, read on every surface: one winner, one sentence, one number for a thing."""

import ast
import getpass
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from convergence import load_result
from convergence.cli.app import app
from convergence_core.result import RunResult, number_text, verdict_of
from tasks.pages import overview, production, run_summary
from tasks.pages.source import PageSource
from tasks.report.phrases import alpha_left
from tasks.run.adoption import stored_result
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.optimizations import write_project
from tests.support.page_viewer import sections
from tests.support.searching import put_into_production, search

TARGET = '''
"""Settings of which one is better, or all are alike; noise is the same in every process."""

import hashlib


def answer(case, params):
    seed = f"{case['n']} {sorted(params.items())}"
    noise = int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16) / 16**8
    return {"result": 0.4 + GAIN * (params["kind"] == "b") + 0.4 * (noise - 0.5)}


def worth(result, expected, params, metric):
    return result
'''
KINDS = {"better": (0.3, 0.05), "likely": (0.3, 1e-12), "nothing": (0.0, 0.05)}
"""Verdict → gain of the better settings, and the gate's alpha: too small to prove anything."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A run and its folder."""

    kind: str
    folder: Path
    label: str

    @property
    def store(self) -> Path:
        return self.folder / "convergence-data"

    @property
    def source(self) -> PageSource:
        return PageSource(ParquetStore(self.store))

    @property
    def result(self) -> RunResult:
        return stored_result(self.source.runs()[0], self.store)

    def read(self, name: str) -> str:
        return (self.folder / "results" / self.label / name).read_text(encoding="utf-8")

    def command(self, *arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, [*arguments, "--store", str(self.store)])
        assert done.exit_code == code, done.output
        return done.output if code else done.stdout


@pytest.fixture(
    scope="module",
    params=["better", "likely", pytest.param("nothing", marks=pytest.mark.slow)],
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return finished(tmp_path_factory.mktemp(request.param), request.param)


def finished(folder: Path, kind: str, gain: float | None = None, holdout: float = 0.5) -> Finished:
    planned, alpha = KINDS[kind]
    config = write_project(
        folder,
        evaluation__test_cases={"path": "cases.json", "holdout": holdout},
        optimization__evolution={"population_size": 6, "generations": 2},
        promotion={"alpha": alpha},
        output={"save_path": "results", "formats": ["json", "markdown", "html"]},
    )
    target = TARGET.replace("GAIN", str(planned if gain is None else gain))
    (folder / "target.py").write_text(target, encoding="utf-8")
    cases = [{"id": f"c{n:02d}", "input": {"n": n}, "expected": None} for n in range(60)]
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    return Finished(kind, folder, search(config).label)


def test_the_verdict_is_the_one_planned(run: Finished):
    kind = verdict_of(run.result).kind
    assert kind == run.kind or (run.kind, kind) == ("nothing", "unclear")


def test_every_surface_has_the_same_winner(run: Finished):
    winner = run.result.winner
    assert winner is not None
    params = dict(winner.params)
    sql = "SELECT candidate_id FROM leaderboard WHERE recommended"
    assert json.loads(run.command("query", sql, "--json")) == [
        {"candidate_id": winner.candidate_id}
    ]
    shown = json.loads(run.command("report", run.label, "--json"))
    assert shown["winner"]["params"] == params
    assert json.loads(run.read("best_config.json"))["config"] == params
    module = ast.parse((run.folder / "results" / "best_config.py").read_text(encoding="utf-8"))
    (assignment,) = [node for node in module.body if isinstance(node, ast.Assign)]
    assert ast.literal_eval(assignment.value) == params
    assert load_result(run.label, storage=run.store).best_config == params
    (row,) = overview.run_rows(run.source)
    assert row["best_name"] == winner.label
    is_default, baseline = run.kind != "better", run.result.baseline
    assert baseline is not None
    assert (winner.candidate_id == baseline.candidate_id) is is_default


def test_every_surface_has_the_same_sentence(run: Finished):
    sentence = verdict_of(run.result).sentence
    plain = sentence.replace("`", "")
    assert (
        json.loads(run.command("report", run.label, "--json"))["verdict"]["sentence"] == sentence
    )
    for text in (
        run.command("report", run.label),
        run.read("report.md"),
        run.read("report.html"),
        json.loads(run.read("best_config.json"))["_README"]["description"],
        run.command("export", "config", run.label),
        (run.folder / "results" / "best_config.py").read_text(encoding="utf-8"),
        run_page(run),
    ):
        flat = " ".join(text.replace("&nbsp;", " ").replace("\xa0", " ").split())
        assert sentence in flat or plain in flat, flat[:2_000]


def run_page(run: Finished) -> str:
    """Return the text of the web application's page of the run."""
    source = run.source
    parts = run_summary.run_page(source, source.runs()[0])["blocks"]
    return "".join(texts_of(parts))


def texts_of(part: Any) -> Iterator[str]:
    """Return all texts in a page's data, in order."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, list):
        for item in part:
            yield from texts_of(item)
    elif isinstance(part, dict):
        for item in part.values():
            yield from texts_of(item)


def test_a_thing_has_one_number_everywhere(run: Finished):
    result = run.result
    gate, difference = result.gate, result.difference
    assert gate is not None
    assert difference is not None
    assert (gate.mean, gate.low, gate.high) == (difference.mean, difference.low, difference.high)
    assert difference.level == pytest.approx(gate.coverage)
    level = number_text.percent(difference.level)
    assert level != "95 %", "a look at the gate has a level of its own"
    gap = f"{number_text.signed_interval(gate.mean, gate.low, gate.high)} ({level})"
    pages = (run.read("report.md"), run.read("report.html"), run_page(run))
    for text in (run.command("report", run.label), *pages):
        assert gap in text.replace("&nbsp;", " ").replace("\xa0", " ")
    best = json.loads(run.read("best_config.json"))
    winner = result.winner
    assert winner is not None
    role, estimate = winner.headline()
    assert role == "holdout"
    told = load_result(run.label, storage=run.store)
    (row,) = overview.run_rows(run.source)
    sql = (
        "SELECT mean_reward, low, high FROM final_estimates WHERE recommended AND role = 'holdout'"
    )
    (measured,) = json.loads(run.command("query", sql, "--json"))
    shown = json.loads(run.command("report", run.label, "--json"))
    expected = (estimate.mean, estimate.low, estimate.high)
    assert told.best_score == best["_README"]["score_achieved"] == estimate.mean
    assert tuple(measured.values()) == expected
    for value in (best["holdout"], row["best"], shown["winner"]["holdout"], best["interval"]):
        assert tuple(value[end] for end in ("mean", "low", "high")) == expected
    for value in (best["baseline"]["difference_holdout"], shown["difference"], shown["gate"]):
        assert (value["mean"], value["low"], value["high"]) == (gate.mean, gate.low, gate.high)


def test_the_error_left_on_the_held_out_cases_is_the_reports(run: Finished):
    gate = run.result.gate
    assert gate is not None
    assert gate.left is not None
    left = alpha_left(gate.level, gate.left).strip()
    assert f"{100 * gate.left:.2g} % is left" in left
    assert left in run.read("report.md")
    assert left in " ".join(run.command("gates").split())
    assert json.loads(run.command("gates", "--json"))["alpha_left"]["known"].endswith(left)
    assert left in sections(production.production(run.source, "known"))["Live"]


def test_a_person_may_take_what_is_likely_and_not_proven(run: Finished):
    """Last, since the run's verdict says it from then on."""
    take = ("promote", run.label, "--yes", "--unproven", "The old prompt\n breaks a law.")
    if run.kind == "nothing":
        assert "--unproven" not in run.command(*take, code=100)
        return
    if run.kind == "likely":
        refused = " ".join(run.command("promote", run.label, "--yes", code=100).split())
        assert f"convergence promote {run.label} --unproven REASON" in refused
        assert "Not proven" in refused
        run.command("promote", run.label, "--yes", "--unproven", " \n", code=100)
    done = json.loads(run.command(*take, "--json"))
    best = run.result.best
    assert best is not None
    assert (done["candidate_id"], done["params"]) == (best.candidate_id, dict(best.params))
    champion = json.loads(run.command("gates", "--json"))["champions"]["known"]
    assert champion["candidate_id"] == best.candidate_id
    shown = sections(production.production(run.source, "known"))["Promotions"]
    sentence = verdict_of(run.result).sentence
    if run.kind == "better":
        assert champion["reason"] == f"promoted from {run.label}"
        assert sentence.startswith("Promoted: ")
    else:
        for text in (champion["reason"], shown):
            assert f"by {getpass.getuser()}, not proven (difference +" in text
            assert "The old prompt breaks a law." in text
        assert "Not proven: it is the champion nevertheless" in sentence
    told = load_result(run.label, storage=run.store).result
    assert verdict_of(told).sentence == sentence
    assert sentence in " ".join(run.command("report", run.label).split())
    assert sentence in run.command("export", "config", run.label)


@pytest.mark.slow
def test_where_the_champion_is_found_again_there_is_no_gain(tmp_path: Path):
    first = finished(tmp_path, "better")
    first.command("promote", first.label, "--yes")
    again = finished(tmp_path, "better", gain=0.31).result
    assert verdict_of(again).sentence == "No gain: the champion is the best configuration found."


def test_what_does_not_beat_the_champion_is_offered_and_not_handed_over(tmp_path: Path):
    first = finished(tmp_path, "better")
    first.command("promote", first.label, "--yes")
    second = finished(tmp_path, "likely", gain=-0.3)
    result = second.result
    champion, best = result.champion, result.best
    assert champion is not None
    assert best is not None
    assert "the champion stays" in verdict_of(result).sentence.lower()
    assert result.winner == champion != best
    written = json.loads(second.read("best_config.json"))
    assert (written["config"], written["best_found"]["config"]) == (champion.params, best.params)
    exported = second.command("export", "config", second.label, "--format", "env")
    assert f"KIND={champion.params['kind']}" in exported
    sql = "SELECT run_id, candidate_id FROM leaderboard WHERE recommended"
    marked = {"run_id": result.run_id, "candidate_id": champion.candidate_id}
    of_run = [row for row in json.loads(second.command("query", sql, "--json"))
              if row["run_id"] == result.run_id]  # fmt: skip
    assert of_run == [marked]
    report = second.read("report.md")
    assert "champion (recommended)" in report
    assert champion.holdout is not None
    assert number_text.reward(champion.holdout.mean) in report


@pytest.mark.slow
def test_without_held_out_cases_the_champion_stays(tmp_path: Path):
    write_project(tmp_path)
    put_into_production(tmp_path, {"x": 0.6, "kind": "b"})
    untested = finished(tmp_path, "likely", gain=-0.3, holdout=0.0).result
    assert "The champion stays." in verdict_of(untested).sentence
    assert (untested.winner, untested.gate) == (untested.champion, None)
    assert untested.challenger is not None
