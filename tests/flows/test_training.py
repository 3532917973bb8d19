"""The flow of training: what it logs, shows and fails with, on a real server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import TrainingFailedError
from convergence_core.feedback.records import Rating
from tasks.models.files import ModelFiles
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.training import looks, round as rounds
from tasks.training.round_settings import BaseModel
from tests.feedback.adapters import PASSED
from tests.feedback.answers import answer
from tests.flows.test_games import shown_artifact
from tests.training.test_rounds import written

pytestmark = pytest.mark.prefect


def _shown() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(asyncio.run(shown_artifact("training")))
    return rows


def test_a_look_is_shown_role_by_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from flows.train import train

    base = BaseModel(
        name="tiny", files=ModelFiles(folder=tmp_path, gguf=None), names=("stand-in",)
    )
    for module in (rounds, looks):
        monkeypatch.setattr(module, "base_model", lambda _loaded: base)
    monkeypatch.setattr("tasks.training.looks.os.getloadavg", lambda: (0.0, 0.0, 0.0))
    with FeedbackStore(tmp_path / "convergence-data") as feedback:
        feedback.log(answer("a"))
        feedback.rate(Rating(interaction_id="a", user_id="ann", rating=4))
    (report,) = train(str(written(tmp_path)))
    assert report.status == "waiting"
    (row,) = _shown()
    assert (row["role"], row["status"], row["check"]) == ("assistant", "waiting", "\N{EN DASH}")
    assert "of 5 that a round needs" in row["verdict"]


def test_a_failed_round_fails_the_flow_after_all_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from flows.train import train

    found = [
        rounds.RoundReport(role="code", status="failed", sentence="the loss became NaN"),
        rounds.RoundReport(
            role="assistant", status="activated", sentence="better", version="assistant-0001",
            checks=(PASSED,), n_rows=40, cpu_s=12.34, losses=(0.75, 0.5, 0.25),
        ),
    ]  # fmt: skip
    monkeypatch.setattr("flows.train.look_at_store", lambda *_a, **_k: found)
    with pytest.raises(TrainingFailedError, match="code: the loss became NaN"):
        train(str(written(tmp_path)), force=True)
    rows = _shown()
    assert [(row["role"], row["check"], row["passed"]) for row in rows] == [
        ("code", "\N{EN DASH}", None),
        ("assistant", "kl", True),
    ]
    assert [(row["measured"], row["limit"]) for row in rows] == [
        (None, None),
        ("0.5 [0.4, 0.6] nat", 1.5),
    ]
