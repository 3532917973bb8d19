"""The page on training: what it reads, and what it changes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from convergence.cli.app import app
from convergence_core.config.feedback import LiveTestConfig
from convergence_core.feedback.records import Rating
from convergence_core.records import Json
from tasks.pages.adapters import BEGIN, MOST_STEPS, trained_roles
from tasks.pages.changes import StoreMark
from tasks.pages.source import PageSource
from tasks.store import ParquetStore
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.training_rounds import TrainingRounds
from tests.feedback.adapters import registered, saved_adapter
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


def test_an_empty_store_says_how_to_begin(tmp_path: Path, opened: Open):
    viewer = opened(tmp_path / "none").enter()
    page = viewer.page("training")
    assert (page["roles"], page["sentences"], page["commands"]) == ([], [], list(BEGIN))
    assert viewer.get("training/assistant").status_code == 404
    assert viewer.post("training/assistant/rollback", confirm="assistant").status_code == 404
    assert not (tmp_path / "none").exists()


def test_a_store_of_a_hosted_model_names_what_its_ratings_do(tmp_path: Path):
    for template, command in (("chat", "review"), ("local-chat", "train")):
        folder = tmp_path / template
        made = CliRunner().invoke(app, ["init", str(folder), "--template", template])
        assert made.exit_code == 0, made.output
        source = PageSource(ParquetStore(folder / "data"), folder / "optimization.yaml")
        page = trained_roles(source)
        assert page["commands"] == ["convergence chat", f"convergence {command}"]
        assert ("train no adapter here" in page["advice"]) == (command == "review")


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


def test_a_long_loss_curve_is_thinned_evenly(tmp_path: Path, opened: Open):
    with FeedbackStore(tmp_path) as feedback:
        feedback.log(answer("a"))
        rounds = TrainingRounds(feedback)
        metrics: dict[str, Json] = {"losses": [0.5] * (3 * MOST_STEPS + 1)}
        rounds.end(
            rounds.begin("assistant", "kto", n_rows=1, settings={}), "failed",
            metrics=metrics, reason="it must not hold sk-abcdefghijklmnopqrstuvwxyz123456",
        )  # fmt: skip
    page = opened(tmp_path).enter().page("training/assistant")
    (one,) = page["rounds"]
    assert len(one["losses"]) <= MOST_STEPS
    assert [step for step, _ in one["losses"][:3]] == [1, 5, 9]
    assert "sk-abc" not in one["reason"]
    assert page["sentences"] == [
        "The base model answers for the role assistant.",
        "1 answer, 0 rated.",
    ]


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


def test_what_no_gate_let_pass_is_not_activated(store: Path, opened: Open):
    viewer = opened(store).enter()
    path, version = "training/assistant/activate", "assistant-0003"
    refused = viewer.post(path, version=version, confirm=version)
    assert refused.status_code == 409
    assert "must pass every check before it is activated" in refused.json()["detail"]
    assert viewer.post(path, version="x-1", confirm="x-1").status_code == 404
    assert viewer.page("training/assistant")["active"] == "assistant-0002"


def test_roles_of_any_name_have_a_page_and_texts_stay_texts(tmp_path: Path, opened: Open):
    role = "a/b <i>"
    with FeedbackStore(tmp_path) as feedback:
        feedback.log(answer("a", role=role))
        feedback.rate(Rating(interaction_id="a", user_id="ann", rating=4))
        registered(AdapterStore(feedback), saved_adapter(tmp_path / "t"), role="b")
    viewer = opened(tmp_path).enter()
    assert viewer.page("training")["roles"] == [role, "b"]
    page = viewer.page("training/a%2Fb%20%3Ci%3E")
    assert page["role"] == role
    assert [point["n"] for point in page["course"]] == [1]
    assert (page["course"][0]["low"], page["adapters"]) == (None, [])
    (candidate,) = viewer.page("training/b")["adapters"]
    assert (candidate["status"], candidate["may_activate"]) == ("candidate", True)


def test_a_rating_is_a_change_of_the_store(tmp_path: Path):
    with FeedbackStore(tmp_path) as feedback:
        before = StoreMark.of(tmp_path)
        feedback.log(answer("a"))
        changes = before.changes_to(StoreMark.of(tmp_path))
    assert [(one.kind, one.run_id) for one in changes] == [("feedback", None)]


def test_a_shared_database_counts_as_changed_every_few_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CONVERGENCE_RUNTIME", "postgresql://nobody@localhost/none")
    first, same, later = (StoreMark.of(tmp_path, now_s) for now_s in (100.0, 104.9, 105.0))
    assert first == same
    assert [one.kind for one in first.changes_to(later)] == ["production", "feedback"]


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
    assert "assistant-0002 is tried against assistant-0001 on 50% of" in test.words
    found = [(one["version"], one["status"], one["sentence"]) for one in page["live_tests"]]
    assert found == [
        ("assistant-0002", "running", test.words), ("assistant-0001", "ended", ended.words),
    ]  # fmt: skip
