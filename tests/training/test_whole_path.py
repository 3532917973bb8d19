"""A tiny model learns from a synthetic rater, through the whole path."""

import re
from pathlib import Path

import pytest

from tasks.models.files import missing_libraries
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.training_rounds import TrainingRounds

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2400),  # training gives way to whatever else runs (nice 19)
    pytest.mark.skipif(bool(missing_libraries()), reason="needs the extra `local`"),
    pytest.mark.filterwarnings("ignore"),
]


def test_a_tiny_model_learns_refuses_and_rolls_back(tmp_path: Path):
    from tests.support.capitals_world import play

    said = list(play(tmp_path / "demo"))
    assert len(said) == 8
    assert said[2][1][-1] == "assistant-0001 passed every check and answers for assistant now."
    assert "assistant-0002 did not pass" in said[5][1][-1]
    assert "128 of 128 answers equal those before" in said[6][1][0]
    with FeedbackStore(tmp_path / "demo/convergence-data") as feedback:
        adapters = AdapterStore(feedback)
        assert {one.version: one.status for one in adapters.records()} == {
            "assistant-0001": "active",
            "assistant-0002": "rejected",
        }
        checks = {one.name: one for one in adapters.checks("assistant-0001")}
        reward, kl = checks["reward"], checks["kl"]
        assert reward.low is not None
        assert reward.low > 0
        assert kl.value is not None
        assert 0 < kl.value <= 1.5
        worse = {one.name: one for one in adapters.checks("assistant-0002")}
        assert not all(one.passed for one in worse.values())
        repaired, first = worse["repairs"], checks["repairs"]
        assert first.value is None  # the base model has repaired nothing
        assert repaired.value is not None
        n = re.search(
            r"; (\d+) of (\d+) repeated answers are right, at least 0\.875", repaired.words
        )
        assert n is not None, repaired.words
        assert (
            int(n[2]) >= 16
        )  # of 32 prompts that train and as many that do not, marked low mostly
        assert repaired.value == int(n[1]) / int(n[2])
        made = TrainingRounds(feedback).records()
        assert [one.status for one in made] == ["done", "done"]
        rows = feedback.fetch(
            "SELECT adapter_version, avg(r.rating) FROM interactions i JOIN ratings r "
            "ON r.interaction_id = i.interaction_id GROUP BY adapter_version ORDER BY 1"
        )
    by_version = dict(rows)
    assert by_version["assistant-0001"] > by_version[None] + 0.5
