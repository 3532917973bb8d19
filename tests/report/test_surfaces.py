"""One run, read on every surface: they name one recommended candidate, with the same numbers.

The run is real: noise, cases of different ease, several generations, so that the candidate of the
highest raw mean is another one than the recommended.
"""

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from convergence.cli.app import app
from convergence_core.events import Event, GenerationFinished
from convergence_core.result import RunResult, number_text
from tasks.inputs.loader import load
from tasks.report import phrases
from tasks.report.tables import leaderboard_grid
from tasks.run.opener import prepare_run
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.optimizations import write_project
from tests.support.searching import finish

TARGET = '''
"""A function whose cases differ in ease, with noise that is the same in every process."""

import hashlib


def answer(case, params):
    ease = (case["n"] * 7 % 24) / 24
    seed = f"{case['n']} {sorted(params.items())}"
    noise = int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16) / 16**8
    skill = 0.35 - abs(params["x"] - 0.7) / 2 + {"a": 0.0, "b": 0.1, "c": 0.05}[params["kind"]]
    return {"result": min(1.0, max(0.0, skill + 0.5 * ease - 0.4 * (noise - 0.5)))}


def worth(result, expected, params, metric):
    return result
'''


@dataclass(frozen=True, slots=True)
class Finished:
    """A run, where it is, and what it told on its way."""

    folder: Path
    result: RunResult
    told: list[GenerationFinished]

    @property
    def store(self) -> ParquetStore:
        return ParquetStore(self.folder / "convergence-data")

    def read(self, name: str) -> str:
        return (self.folder / "results" / self.result.label / name).read_text(encoding="utf-8")

    def command(self, *arguments: str) -> str:
        where = ["--store", str(self.folder / "convergence-data")]
        done = CliRunner().invoke(app, [*arguments, *where])
        assert done.exit_code == 0, done.output
        return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("surfaces")
    config = write_project(
        folder,
        evaluation__test_cases={"path": "cases.json", "holdout": 0.25},
        optimization__evolution={"population_size": 10, "generations": 3},
        promotion={"alpha": 0.5},  # six held-out cases are enough then
        output={
            "save_path": "results",
            "formats": ["json", "csv", "markdown", "html"],
        },
    )
    (folder / "target.py").write_text(TARGET, encoding="utf-8")
    cases = [
        {"id": f"c{n:02d}", "input": {"n": n}, "expected": None, "weight": 1 + n % 3}
        for n in range(24)
    ]
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    told: list[GenerationFinished] = []

    def hear(event: Event) -> None:
        if isinstance(event, GenerationFinished):
            told.append(event)

    return Finished(folder, finish(prepare_run(load(config), on_event=hear)), told)


def board(run: Finished) -> list[dict[str, Any]]:
    return run.store.rows("SELECT * FROM leaderboard ORDER BY rank")


def test_the_leader_by_raw_means_is_another_one(run):
    rows = board(run)
    raw = max(rows, key=lambda row: row["raw_mean_reward"])
    assert raw["candidate_id"] != run.result.winner.candidate_id
    assert raw["raw_mean_reward"] > rows[0]["raw_mean_reward"]
    assert len({row["n_cases"] for row in rows}) > 1  # raw means are over different cases


def test_the_view_ranks_as_the_result_does(run):
    keys = ("rank", "candidate_id", "posterior_mean", "posterior_low", "posterior_high", "n_cases")
    told = [
        (row.rank, row.candidate_id, row.mean, row.low, row.high, row.n_cases)
        for row in run.result.leaderboard
    ]
    rows = board(run)
    assert [tuple(row[key] for key in keys) for row in rows] == told
    assert [row["n_evaluations"] for row in rows] == [
        row.n_cells for row in run.result.leaderboard
    ]
    winner = run.result.winner
    assert [row["candidate_id"] for row in rows if row["recommended"]] == [winner.candidate_id]
    assert rows[0]["candidate_id"] == winner.candidate_id
    assert rows[0]["posterior_mean"] == winner.search.mean
    (default,) = [r for r in rows if r["candidate_id"] == run.result.baseline.candidate_id]
    search = run.result.baseline.search
    assert (default["posterior_mean"], default["posterior_low"]) == (search.mean, search.low)
    assert (default["posterior_high"], default["n_cases"]) == (search.high, search.n_cases)


def weighted_ms(run: Finished, candidate_id: str, *roles: str) -> float:
    """Return a candidate's mean latency by hand: over repeats, then by the cases' weights."""
    rows = run.store.rows("SELECT * FROM evaluations WHERE latency_ms IS NOT NULL")
    by_case: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        if row["candidate_id"] == candidate_id and row["role"] in roles:
            by_case.setdefault((row["case_id"], row["weight"]), []).append(row["latency_ms"])
    assert len({weight for _, weight in by_case}) > 1
    means = [(weight, sum(known) / len(known)) for (_, weight), known in by_case.items()]
    return sum(w * mean for w, mean in means) / sum(w for w, _ in means)


def test_latencies_are_weighed_by_case_on_every_surface(run):
    winner, default = run.result.winner, run.result.baseline
    for report in (winner, default):
        by_hand = weighted_ms(run, report.candidate_id, "holdout", "fresh")
        assert report.answer_ms == pytest.approx(by_hand)
    for row in board(run):
        by_hand = weighted_ms(run, row["candidate_id"], "search")
        assert row["latency_ms"] == pytest.approx(by_hand)
    told = json.loads(run.command("compare", "default", "recommended", "--json"))
    for name, means in zip(("first", "second"), told["per_answer"], strict=True):
        total = sum(case["weight"] for case in told["cases"])
        by_hand = sum(case["weight"] * case[name]["latency_ms"] for case in told["cases"]) / total
        assert means["latency_ms"] == pytest.approx(by_hand)


def test_result_files_hold_the_same_numbers(run):
    winner = run.result.winner
    best = json.loads(run.read("best_config.json"))
    assert best["config"] == dict(winner.params)
    for role in ("holdout", "fresh", "search"):
        estimate = winner.estimate(role)
        assert best[role]["mean"] == estimate.mean
        assert (best[role]["low"], best[role]["high"]) == (estimate.low, estimate.high)
        assert best["baseline"][role]["mean"] == run.result.baseline.estimate(role).mean
    detailed = {e["candidate_id"]: e for e in json.loads(run.read("detailed_results.json"))}
    listed = {
        r["candidate_id"]: r for r in csv.DictReader(run.read("experiments.csv").splitlines())
    }
    assert len(detailed) == len(listed) == run.result.n_candidates
    for row in run.result.leaderboard:
        entry, line = detailed[row.candidate_id], listed[row.candidate_id]
        assert (entry["rank"], entry["score"]) == (row.rank, row.mean)
        assert (entry["posterior_low"], entry["posterior_high"]) == (row.low, row.high)
        assert (int(line["rank"]), float(line["score"])) == (row.rank, row.mean)
        assert int(line["n_cases"]) == entry["n_cases"] == row.n_cases
        assert float(line["raw_metric.worth"]) == pytest.approx(entry["raw_metrics"]["worth"])
        assert (line["recommended"] == "true") is entry["recommended"] is (row.rank == 1)


def test_pages_print_what_the_view_holds_in_the_order_that_they_say(run):
    markdown = run.read("report.md")
    table = markdown[markdown.index("## Configurations evaluated") :]
    lines = [line.split(" | ") for line in re.findall(r"^\| (\d+ \| .*) \|$", table, flags=re.M)]
    rows = board(run)
    assert [int(line[0]) for line in lines] == [row["rank"] for row in rows[:50]]
    for line, row in zip(lines, rows, strict=False):
        assert line[2] == number_text.interval(
            row["posterior_mean"], row["posterior_low"], row["posterior_high"]
        )
        assert line[3] == number_text.reward(row["cautious"])
        assert line[4] == str(row["n_cases"])
        assert ("(recommended" in line[1]) is row["recommended"]
    shown = [float(line[3]) for line in lines]
    assert shown == sorted(shown, reverse=True)
    page = run.read("report.html").replace("&nbsp;", " ")
    for report in (run.result.winner, run.result.baseline):
        for role in ("holdout", "fresh", "search"):
            text = phrases.estimate(report.estimate(role))
            assert text in markdown
            assert text in page


def test_commands_and_artifacts_say_the_same(run):
    told = RunResult.from_json(run.command("report", run.result.label, "--json"))
    assert told.winner == run.result.winner
    assert told.baseline == run.result.baseline
    assert told.leaderboard == run.result.leaderboard
    lines = run.command("report", run.result.label).splitlines()
    assert sorted(lines) == sorted(run.read("report.md").splitlines())
    (listed,) = json.loads(run.command("runs", "--json"))
    assert listed["result"]["winner"]["holdout"]["mean"] == run.result.winner.holdout.mean
    assert f"{run.result.winner.holdout.mean:.3f} held-out" in " ".join(
        run.command("runs").split()
    )
    sql = "select candidate_id, posterior_mean as mean from leaderboard where recommended"
    (row,) = json.loads(run.command("query", sql, "--json"))
    winner = run.result.winner
    assert row == {"candidate_id": winner.candidate_id, "mean": winner.search.mean}
    text = phrases.estimate(winner.search)
    first, *_ = leaderboard_grid(told).rows
    assert "(recommended" in str(first[1])
    assert first[2] == text
