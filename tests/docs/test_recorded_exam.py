"""The recorded exam's README is executed, and its run is the same run in every process."""

import json
import re
from pathlib import Path

import pytest

from tasks.inputs.loader import load
from tasks.store.tables.parquet_store import ParquetStore
from tests.docs.test_documents import ROOT, blocks, in_shell
from tests.recorded_exam.test_table import mean_rewards

README = (ROOT / "data/recorded-exam/README.md").read_text(encoding="utf-8")


@pytest.mark.prefect
@pytest.mark.slow
def test_the_commands_of_the_recorded_exam_run_as_printed(tmp_path: Path):
    (block,) = blocks(README, "sh")
    printed = in_shell(block, tmp_path)
    folder = tmp_path / "my-exam"
    assert (folder / "results/latest/report.html").exists()
    assert (folder / "LICENSE").read_text("utf-8").startswith("BSD 2-Clause License")
    # The ledger books no dollars for a replay.
    assert "3,200 calls, $0.00" in printed
    # What an answer cost and took when it was given, by the metrics of these names.
    assert re.search(r"price, latency of an answer +\$0\.00\d+, [\d.]+ s ", printed)
    assert "Better than the defaults: +" in printed
    assert "Next: Put it into production: `convergence promote recorded_exam-" in printed
    found = json.loads((folder / "results/latest/best_config.json").read_text("utf-8"))
    best = found["config"]
    rewards = mean_rewards(load(folder / "optimization.yaml").cases)
    reward = rewards[
        best["model"], best.get("technique", "chain_of_thought"), round(best["temperature"], 1)
    ]
    defaults = rewards["gpt-4", "chain_of_thought", 0.7]
    assert reward > max(rewards.values()) - 0.05 > defaults + 0.1, best


@pytest.mark.slow
@pytest.mark.prefect
def test_the_recorded_exam_is_the_same_run_in_two_processes(tmp_path: Path):
    candidates = []
    for name in ("one", "two"):
        in_shell(
            f"convergence init {name} --template recorded-exam && cd {name} && "
            "convergence optimize --quiet --generations 2",
            tmp_path,
        )
        store = ParquetStore(tmp_path / name / "convergence-data")
        candidates.append(
            store.rows(
                "select e.generation, c.params_json, e.case_id, e.role, e.reward from evaluations e "
                "join candidates c using (run_id, candidate_id) order by all"
            )
        )
    assert len(candidates[0]) > 200
    assert candidates[0] == candidates[1]
