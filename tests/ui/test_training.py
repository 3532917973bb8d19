"""The page on training: what it reads, and what it changes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from convergence.cli.app import app
from convergence_core.config.feedback import LiveTestConfig
from tasks.pages.changes import StoreMark
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.feedback.answers import answer
from tests.support.page_viewer import READER
from tests.support.trained_store import write_trained_store
from tests.ui.conftest import Open


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_trained_store(tmp_path, tmp_path / "store")
    return tmp_path / "store"


def printed(store: Path, *words: str) -> str:
    found = CliRunner().invoke(app, ["adapters", *words, "--store", str(store)])
    assert found.exit_code == 0, found.output
    return " ".join(found.stdout.split())


def test_adapters_and_checks_are_told_as_the_command_tells_them(store: Path, opened: Open):
    page = opened(store).enter().page("training/assistant")
    assert page["active"] == "assistant-0002"
    assert page["sentences"][0] == "assistant-0002 answers for the role assistant."
    assert page["sentences"][1].startswith("72 answers, 72 rated, mean reward ")
    assert [(one["version"], one["status"], one["may_activate"]) for one in page["adapters"]] == [
        ("assistant-0003", "rejected", False),
        ("assistant-0002", "active", False),
        ("assistant-0001", "inactive", True),
    ]
    for one in page["adapters"]:
        shown = printed(store, "show", one["version"])
        assert f"{one['sentence']} {one['origin']} " in shown
        for check in one["checks"]:
            assert check["sentence"] in shown
    (kl,) = (one for one in page["adapters"][0]["checks"] if one["name"] == "kl")
    numbers = [kl[name] for name in ("passed", "value", "low", "high", "limit", "unit")]
    assert numbers == [False, 0.41, 0.35, 0.47, 1.5, "nat"]


def test_rounds_rewards_and_raters_are_shown(store: Path, opened: Open):
    viewer = opened(store).enter()
    page = viewer.page("training/assistant")
    latest = page["rounds"][0]
    assert (latest["status"], latest["version"], latest["n_rows"]) == (
        "done",
        "assistant-0003",
        24,
    )
    assert latest["losses"][:2] == [[1, 1.0], [2, pytest.approx(1 / 1.1)]]
    assert (latest["kl_estimate"], latest["cpu_s"]) == (2.4, 210.5)
    assert sum(point["n"] for point in page["course"]) == 108
    assert page["course"][0]["mean"] < 0 < page["course"][-1]["mean"]
    assert all(point["low"] < point["mean"] < point["high"] for point in page["course"])
    assert [one["version"] for one in page["activations"]] == ["assistant-0001", "assistant-0002"]
    base, first, second = page["answered_by"]
    assert (base["version"], base["n_answers"], base["reward"]["n"]) == (None, 24, 36)
    assert base["reward"]["mean"] < first["reward"]["mean"] < second["reward"]["mean"]
    assert base["n_output_tokens"] == {"n": 24, "mean": 40.0, "low": 40.0, "high": 40.0}
    assert base["latency_s"]["low"] < 2.5 < base["latency_s"]["high"]
    ann, ben = viewer.page("training")["sentences"]
    assert ann.startswith("ann (rating): +0.")
    assert ben.startswith("ben (rating): -0.")


def test_an_adapter_is_taken_back_and_activated_again(store: Path, opened: Open):
    viewer = opened(store).enter()
    path = "training/assistant"
    assert viewer.post(f"{path}/rollback", confirm="code").status_code == 400
    assert viewer.post(f"{path}/rollback", token=None, confirm="assistant").status_code == 401
    assert viewer.post(f"{path}/rollback", token=READER, confirm="assistant").status_code == 403
    done = viewer.post(f"{path}/rollback", confirm="assistant")
    assert done.json() == {"sentence": "assistant-0001 answers for the role assistant again."}
    assert viewer.page(path)["active"] == "assistant-0001"
    version = "assistant-0002"
    assert viewer.post(f"{path}/activate", version=version, confirm="assistant").status_code == 400
    assert (
        viewer.post("training/code/activate", version=version, confirm=version).status_code == 400
    )
    done = viewer.post(f"{path}/activate", version=version, confirm=version)
    assert done.json() == {"sentence": "assistant-0002 answers for the role assistant."}
    with FeedbackStore(store) as feedback:
        (by,) = feedback.fetch("SELECT changed_by FROM adapter_events ORDER BY seq DESC LIMIT 1")
        assert by == ("web application",)
        active = AdapterStore(feedback).active("assistant")
    assert active is not None
    assert active.version == version
    assert active.reason == "activated by hand"


def test_a_rating_is_a_change_of_the_store(tmp_path: Path):
    with FeedbackStore(tmp_path) as feedback:
        before = StoreMark.of(tmp_path)
        feedback.log(answer("a"))
        changes = before.changes_to(StoreMark.of(tmp_path))
    assert [(one.kind, one.run_id) for one in changes] == [("feedback", None)]


def test_a_test_on_live_traffic_is_told_in_its_sentence(store: Path, opened: Open):
    with FeedbackStore(store) as feedback:
        adapters = AdapterStore(feedback)
        adapters.activate(
            "assistant-0001", "ada", live_rule=LiveTestConfig(share=0.2, max_ratings=50)
        )
        adapters.activate("assistant-0002", "ada", live_rule=LiveTestConfig())
        ended, test = adapters.live_tests("assistant")
    page = opened(store).enter().page("training/assistant")
    assert page["sentences"][2:] == [f"{test.words}."]
    assert "assistant-0002 is tried against assistant-0001 on 50 % of" in test.words
    found = [(one["version"], one["status"], one["sentence"]) for one in page["live_tests"]]
    assert found == [
        ("assistant-0002", "running", test.words), ("assistant-0001", "ended", ended.words),
    ]  # fmt: skip
