"""The commands on adapters, and what a fold shows of them."""

import json
from pathlib import Path

import pytest

from convergence.__main__ import run
from convergence_core.feedback.records import Rating
from tasks.serving.fold import fold_store
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.removal import forget_user
from tasks.store.feedback.training_rounds import TrainingRounds
from tasks.store.tables.parquet_store import ParquetStore
from tests.feedback.adapters import PASSED, activated, rated, registered, saved_adapter


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with an active adapter and a candidate, in the working folder."""
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "convergence-data"
    with FeedbackStore(store) as feedback:
        adapters, source = AdapterStore(feedback), saved_adapter(tmp_path / "trained")
        activated(adapters, source, rated(feedback, "a"))
        registered(adapters, source, rated(feedback, "b"))
    return store


def answered(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert run(["adapters", *words]) == code
    found = capsys.readouterr()
    return found.out + found.err


def test_adapters_are_listed_shown_activated_and_taken_back(
    path: Path, capsys: pytest.CaptureFixture[str]
):
    listed = json.loads(answered(capsys, "list", "--json"))["adapters"]
    assert [(one["version"], one["status"]) for one in listed] == [
        ("assistant-0001", "active"), ("assistant-0002", "candidate"),
    ]  # fmt: skip
    assert json.loads(answered(capsys, "list", "--role", "code", "--json")) == {
        "adapters": [],
        "live_tests": [],
    }
    shown = json.loads(answered(capsys, "show", "assistant-0002", "--json"))
    assert (shown["adapter"]["n_rows"], shown["files_problem"]) == (1, None)
    assert shown["checks"][0]["words"] == PASSED.words
    assert "`version` must be that of a registered" in answered(capsys, "show", "x-1", code=2)
    assert "required without a terminal" in answered(capsys, "activate", "assistant-0002", code=2)
    done = answered(capsys, "activate", "assistant-0002", "--yes", "--json")
    assert json.loads(done) == {"role": "assistant", "active": "assistant-0002"}
    assert "required without a terminal" in answered(capsys, "rollback", code=2)
    done = answered(capsys, "rollback", "--role", "assistant", "--yes", "--json")
    assert json.loads(done) == {"role": "assistant", "active": "assistant-0001"}
    assert "The base model answers" in answered(capsys, "rollback", "--yes")
    assert "is rolled back since" in answered(capsys, "show", "assistant-0002")


def test_a_fold_shows_statuses_rounds_and_checks_each_once(path: Path):
    with FeedbackStore(path) as feedback:
        rounds = TrainingRounds(feedback)
        begun = rounds.begin("assistant", "qrpo", n_rows=2, settings={"steps": 3})
        assert fold_store(path).feedback["adapter_events"] == 3
        rounds.end(begun, "done", version="assistant-0002", metrics={"loss": 0.5})
        feedback.rate(Rating(interaction_id="a", user_id="ann", rating=1))
        found = fold_store(path).feedback
        assert (found["adapter_events"], found["training_rounds"], found["gate_checks"]) == (
            1,
            1,
            0,
        )
        assert set(fold_store(path).feedback.values()) == {0}
    tables = ParquetStore(path)
    assert tables.rows(
        "SELECT version, status, reason, changed_by, passed, failed FROM adapters ORDER BY version"
    ) == [
        {"version": "assistant-0001", "status": "stale", "reason": "a rating it learned from was edited",
         "changed_by": "store", "passed": True, "failed": None},
        {"version": "assistant-0002", "status": "candidate", "reason": None,
         "changed_by": "training", "passed": True, "failed": None},
    ]  # fmt: skip
    rows = tables.rows(
        "SELECT status, version, n_rows, settings_json, metrics_json, ended_at IS NULL AS runs "
        "FROM training_rounds ORDER BY seq"
    )
    assert rows == [
        {"status": "running", "version": None, "n_rows": 2, "settings_json": '{"steps":3}',
         "metrics_json": "{}", "runs": True},
        {"status": "done", "version": "assistant-0002", "n_rows": 2, "settings_json": '{"steps":3}',
         "metrics_json": '{"loss":0.5}', "runs": False},
    ]  # fmt: skip
    (check, _) = tables.rows("SELECT * FROM gate_checks ORDER BY seq")
    assert {name: check[name] for name in ("passed", "value", "low", "high", "threshold", "unit")} == {
        "passed": True, "value": 0.5, "low": 0.4, "high": 0.6, "threshold": 1.5, "unit": "nat",
    }  # fmt: skip


def test_a_forgotten_user_leaves_adapters_without_weights_in_the_tables(path: Path):
    fold_store(path)
    assert forget_user(path, "ann").n_adapters == 2
    fold_store(path)
    rows = ParquetStore(path).rows("SELECT status, reason FROM adapters ORDER BY version")
    assert rows == [{"status": "stale", "reason": "a user it learned from was forgotten"}] * 2
    assert list((path / "adapters").glob("*/*")) == []
