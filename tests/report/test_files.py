"""The result files: shapes, formats asked for, whole or not at all."""

import csv
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convergence_core.config import Configuration, parse_mapping
from convergence_core.records import Case
from convergence_core.result import RunResult
from tasks.report.atomic_files import atomic_text
from tasks.report.files import LATEST_FILES, write_results
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.results import bare_result, made_up_result
from tests.support.store_rows import RUN, final_tables, generation_tables, run_record


def configured(storage: dict[str, Any] | None = None, **output: Any) -> Configuration:
    return parse_mapping(
        {
            "api": {"name": "bot", "function": "target.py:answer"},
            "search_space": {"parameters": {"t": {"type": "float", "min": 0, "max": 1}}},
            "evaluation": {
                "test_cases": [{"id": "case-0", "input": "a"}],
                "metrics": {"quality": {"function": "target.py:quality"}},
            },
            "storage": storage or {},
            "output": output,
        }
    )


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    store = ParquetStore(tmp_path / "store")
    store.save_run(run_record())
    for generation in range(2):
        store.publish(RUN, generation, generation_tables(generation=generation))
    store.publish(RUN, -1, final_tables())
    return store


@pytest.fixture
def result() -> RunResult:
    full = made_up_result(n_candidates=4, n_generations=2)
    assert full.winner is not None
    winner = replace(
        full.winner, candidate_id="0000-0", params={"model": "small", "t": 0.0, "on": True}
    )
    return replace(full, run_id=RUN, label="bot-abcd", winner=winner)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_all_formats_give_all_files(store, result, tmp_path):
    written = write_results(result, store, configured(), tmp_path)
    folder = tmp_path / "results" / "bot-abcd"
    expected = {
        "best_config.json",
        "detailed_results.json",
        "explanation.json",
        "experiments.csv",
        "detailed_results.csv",
        "report.md",
        "report.html",
    }
    assert names_in(folder) == expected
    assert names_in(folder.parent) == {"bot-abcd", "latest", "best_config.py", *LATEST_FILES}
    for name in LATEST_FILES:
        assert (folder.parent / name).read_text() == (folder / name).read_text()
    assert set(written.files) == expected | {"export"}
    assert all(Path(path).is_file() for path in written.files.values())
    assert replace(written, files={}) == result


def test_best_config_has_the_originals_shape_and_what_the_number_rests_on(store, result, tmp_path):
    write_results(result, store, configured(formats=["json"]), tmp_path)
    best = json.loads((tmp_path / "results/bot-abcd/best_config.json").read_text())
    assert set(best["_README"]) == {
        "description",
        "how_to_use",
        "score_achieved",
        "score_scale",
        "timestamp",
        "optimization_run",
        "test_cases_evaluated",
    }
    assert best["config"] == {"model": "small", "t": 0.0, "on": True}
    assert best["_README"]["score_achieved"] == best["holdout"]["mean"] == 0.61
    assert best["_README"]["test_cases_evaluated"] == 110
    assert best["interval"]["measured_on"] == "held-out cases, which the search never saw"
    assert (best["interval"]["low"], best["interval"]["high"]) == pytest.approx((0.57, 0.65))
    assert best["baseline"]["difference_holdout"]["low"] == 0.02
    assert "better" not in json.dumps(best).lower()


def test_without_final_cells_the_score_is_marked_as_biased(store, tmp_path):
    result = replace(bare_result(), run_id=RUN, label="bare")
    write_results(result, store, configured(formats=["json"]), tmp_path)
    best = json.loads((tmp_path / "results/bare/best_config.json").read_text())
    assert "biased upward by selection" in best["interval"]["measured_on"]
    assert best["holdout"] is best["baseline"] is None


def test_detailed_results_hold_every_evaluation_in_the_originals_shape(store, result, tmp_path):
    cases = [Case(case_id=f"case-{i}", input={"question": i}, expected=i) for i in range(4)]
    write_results(result, store, configured(formats=["json"]), tmp_path, cases=cases)
    entries = json.loads((tmp_path / "results/bot-abcd/detailed_results.json").read_text())
    assert [entry["candidate_id"] for entry in entries] == ["0000-1", "0000-0", "0001-1", "0001-0"]
    entry = entries[1]
    assert {"config", "score", "raw_metrics", "generation", "timestamp", "test_results"} <= set(
        entry
    )
    assert entry["config"] == {"model": "small", "t": 0.0}
    assert (entry["score"], entry["raw_mean_reward"]) == (pytest.approx(1 / 6), 0.0)
    assert (entry["rank"], entry["recommended"], entry["n_cases"]) == (3, False, 3)
    assert [r["role"] for r in entry["test_results"]] == ["search"] * 3 + ["holdout"] * 4
    first = entry["test_results"][0]
    assert first == {
        "test_case_id": "case-0",
        "input": {"question": 0},
        "expected": 0,
        "response_text": "answer 0000-0000",
        "response": "answer 0000-0000",
        "thinking": None,
        "score": 0.0,
        "metrics": {"latency_ms": 0.0, "quality": 0.5},
        "latency_ms": 0.0,
        "cost_usd": 0.25,
        "success": True,
        "error": None,
        "role": "search",
        "repeat": 0,
        "generation": 0,
        "status": "ok",
    }


def test_experiments_have_a_column_per_parameter_and_metric(store, result, tmp_path):
    write_results(result, store, configured(formats=["csv"]), tmp_path)
    with (tmp_path / "results/bot-abcd/experiments.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["generation"] for row in rows] == ["0", "0", "1", "1"]
    # After generation 1 the posterior's order is 0000-1, 0001-1, 0000-0, 0001-0.
    assert [float(row["score"]) for row in rows] == pytest.approx([1 / 2, 1 / 6, 1 / 4, 1 / 8])
    assert [row["raw_mean_reward"] for row in rows] == ["0.5", "0.0", "0.5", "0.0"]
    assert [row["rank"] for row in rows] == ["1", "3", "2", "4"]
    assert [row["recommended"] for row in rows] == ["true", "false", "false", "false"]
    assert [(row["model"], row["t"]) for row in rows] == [("small", "0.5"), ("small", "0.0")] * 2
    assert json.loads(rows[0]["parameters"]) == {"model": "small", "t": 0.5}
    assert {row["raw_metric.quality"] for row in rows} == {"0.5"}


def test_texts_of_cells_run_in_no_spreadsheet_and_numbers_stay_numbers(tmp_path, result):
    store = ParquetStore(tmp_path / "store")
    store.save_run(run_record())
    tables = generation_tables()
    params = {"=cmd()": "@SUM(1+1)*cmd|' /C calc'!A0", "t": -1.5, "text": " \t-1+1|cmd"}
    params["lines"] = "a\r=1+1"  # a reader ends a line there, unless the cell is quoted
    candidates = [{**row, "params_json": json.dumps(params)} for row in tables["candidates"]]
    evaluations = [{**row, "case_id": "+case"} for row in tables["evaluations"]]
    store.publish(RUN, 0, {**tables, "candidates": candidates, "evaluations": evaluations})
    write_results(result, store, configured(formats=["csv"]), tmp_path)
    for name in ("experiments.csv", "detailed_results.csv"):
        with (tmp_path / "results/bot-abcd" / name).open(newline="") as stream:
            lines = list(csv.reader(stream))
        row = dict(zip(lines[0], lines[1], strict=True))
        assert row["'=cmd()"] == "'@SUM(1+1)*cmd|' /C calc'!A0", name
        assert row["text"] == "' \t-1+1|cmd"
        assert row["lines"] == "a\r=1+1"
        assert row["t"] == "-1.5"
        assert row.get("test_case_id") in {None, "'+case"}


def test_result_files_and_folders_are_for_their_owner_alone(store, result, tmp_path):
    before = os.umask(0o022)
    try:
        write_results(result, store, configured(save_path="deep/results"), tmp_path)
        shared = tmp_path / "deep/results/best_config.py"
        modes = {
            path.relative_to(tmp_path / "deep"): path.stat().st_mode & 0o777
            for path in (tmp_path / "deep").rglob("*")
            if not path.is_symlink()
        }
        assert len(modes) >= 9
        folders = {Path("results"), Path("results/bot-abcd")}
        assert {path: mode for path, mode in modes.items() if path in folders} == dict.fromkeys(
            folders, 0o700
        )
        assert {mode for path, mode in modes.items() if path not in folders} == {0o600}
        shared.chmod(0o644)
        write_results(result, store, configured(save_path="deep/results"), tmp_path)
        assert shared.stat().st_mode & 0o777 == 0o644, "as its user has set it"
    finally:
        os.umask(before)


def test_a_file_whose_writing_fails_keeps_its_old_content(tmp_path):
    path = tmp_path / "report.md"
    path.write_text("old", encoding="utf-8")

    def write() -> None:
        with atomic_text(path) as stream:
            stream.write("half of the n")
            raise ValueError("interrupted")

    with pytest.raises(ValueError, match="interrupted"):
        write()
    assert path.read_text() == "old"
    assert names_in(tmp_path) == {"report.md"}
