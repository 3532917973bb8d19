"""What thoughts of a run predicted, as rows to train on: nothing of what came is in what is asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from convergence.__main__ import run
from convergence_core.records import canonical_json, sha256_hex
from convergence_core.rlp.bins import RewardBins
from tasks.store import ParquetStore
from tasks.training.thinker_round import read_outcomes
from tests.support import thoughtful_runs as thoughtful
from tests.support.thinking_server import ThinkingWorld


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    world = ThinkingWorld(truth=thoughtful.truth)
    thoughtful.run_whole(tmp_path, world)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_predicted_reward_is_a_row_that_trains(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(["export", "thoughts", "-o", "outcomes.jsonl"]) == 0
    rows = [
        json.loads(line) for line in (folder / "outcomes.jsonl").read_text("utf-8").splitlines()
    ]
    assert f"Wrote {len(rows)} outcomes" in capsys.readouterr().err.replace("\n", " ")
    read = read_outcomes(folder / "outcomes.jsonl", "You think.")
    assert [one.response for one in read] == [row["follows"] for row in rows]
    store = ParquetStore(folder / thoughtful.STORE)
    predicted = store.rows(
        "SELECT DISTINCT t.agent_id, p.generation, p.subject FROM predictions p "
        "JOIN thoughts t USING (run_id, generation, thought_id) WHERE NOT p.is_rescored"
    )
    assert len(rows) == len(predicted) > 0
    assert {row["follows"] for row in rows} <= set("0123456789")


def test_what_follows_is_the_bin_of_the_reward_of_a_later_trial(folder: Path):
    assert run(["export", "thoughts", "-o", "outcomes.jsonl"]) == 0
    rows = [
        json.loads(line) for line in (folder / "outcomes.jsonl").read_text("utf-8").splitlines()
    ]
    found: list[dict[str, Any]] = ParquetStore(folder / thoughtful.STORE).rows(
        "SELECT p.generation, p.subject, p.observed, avg(e.reward) AS reward, min(c.low) AS low, "
        "max(c.high) AS high FROM predictions p JOIN evaluations e ON e.candidate_id = p.subject "
        "AND e.generation = p.generation JOIN commitments c ON c.generation = p.generation "
        "WHERE NOT p.is_rescored AND c.low IS NOT NULL GROUP BY ALL"
    )
    off = [
        abs(row["observed"] - RewardBins(row["low"], row["high"]).bin_of(row["reward"]))
        for row in found
    ]
    assert max(off) <= 1  # what is known of the cases is taken off
    assert sorted({row["follows"] for row in rows}) == sorted(
        {str(row["observed"]) for row in found}
    )
    for row in rows:
        assert row["predict"].count("{thought}") == 1
        assert row["predict"].endswith("Digit:")


def test_what_is_asked_is_what_the_run_asked(folder: Path):
    """In the first generation that thinks, when there were no earlier notes to show."""
    assert run(["export", "thoughts", "-o", "outcomes.jsonl"]) == 0
    rows = [
        json.loads(line) for line in (folder / "outcomes.jsonl").read_text("utf-8").splitlines()
    ]
    made = set()
    for row in rows:
        system, user = row["think"].split("\n\n", 1)
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        made.add(sha256_hex(canonical_json(messages)))
    asked = ParquetStore(folder / thoughtful.STORE).rows(
        "SELECT DISTINCT prompt_sha256 FROM thoughts WHERE prompt_sha256 IS NOT NULL AND "
        "generation = (SELECT min(generation) FROM predictions)"
    )
    assert {row["prompt_sha256"] for row in asked} <= made
    assert asked
