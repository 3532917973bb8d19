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
from tests.support.page_viewer import READER, actions, column, sections
from tests.support.trained_store import write_trained_store
from tests.ui.conftest import Open


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_trained_store(tmp_path, tmp_path / "store")
    return tmp_path / "store"


def test_adapters_and_checks_are_told_as_the_command_tells_them(store: Path, opened: Open):
    page = opened(store).enter().page("training/assistant")
    now = sections(page)["Now"]
    assert now.startswith(
        "assistant-0002 answers for the role assistant. 72 answers, 72 rated, mean "
    )
    states = [
        (block["parts"][0]["text"], [one["text"] for one in actions({"blocks": [block]})])
        for block in page["blocks"]
        if block["is"] == "Paragraph" and str(block["parts"][0]).startswith("{'is': 'Span'")
    ]
    assert states == [("rejected", []), ("active", []), ("inactive", ["Activate"])]
    shown = sections(page)["Adapters"]
    for version in ("assistant-0003", "assistant-0002", "assistant-0001"):
        for sentence in told(store, version):
            assert sentence in shown
    (kl,) = (
        row
        for block in page["blocks"]
        if block["is"] == "Grid" and block["folded"].endswith("not passed")
        for row in block["rows"]
        if row[1]["text"] == "kl"
    )
    assert [kl[0]["text"], *kl[2:4]] == ["no", "0.41 [0.35, 0.47] nat", "1.5"]


def told(store: Path, version: str) -> list[str]:
    """Return what ``adapters show`` says of an adapter, its files left out."""
    runner = CliRunner().invoke(app, ["adapters", "show", version, "--store", str(store)])
    lines = [" ".join(line.split()) for line in runner.stdout.splitlines()]
    return [line for line in lines if line and not line.startswith("files: ")]


def test_rounds_rewards_and_raters_are_shown(store: Path, opened: Open):
    page = opened(store).enter().page("training/assistant")
    rounds = "Training rounds"
    assert column(page, "status", of=rounds)[0] == "done"
    assert column(page, "adapter", of=rounds)[0] == "assistant-0003"
    assert column(page, "rows", of=rounds)[0] == "24"
    assert column(page, "KL, nats per answer", of=rounds)[0] == "2.4"
    assert column(page, "CPU", of=rounds)[0] == "210 s"
    plots = {
        plot["name"]: plot for b in page["blocks"] if b["is"] == "Plots" for plot in b["plots"]
    }
    losses = next(plot for name, plot in plots.items() if name.startswith("loss-"))
    first, second = losses["layers"][0]["points"][:2]
    assert (first["x"], first["y"], second["y"]) == (1, 1.0, pytest.approx(1 / 1.1))
    band, course, *began = plots["rewards"]["layers"]
    assert sum(int(point["tip"].split()[0]) for point in course["points"]) == 108
    assert course["points"][0]["y"] < 0 < course["points"][-1]["y"]
    assert all(low < one["y"] < high for one in band["points"] for low, high in [one["y_ends"]])
    assert [layer["points"][1]["tip"] for layer in began] == [
        "assistant-0001 is activated", "assistant-0002 is activated",
    ]  # fmt: skip
    answers = "Answers by adapter"
    assert column(page, "adapter", of=answers) == ["none", "assistant-0001", "assistant-0002"]
    assert (column(page, "answers", of=answers)[0], column(page, "ratings", of=answers)[0]) == (
        "24", "36",
    )  # fmt: skip
    texts = [
        text.split()[0].replace("\N{MINUS SIGN}", "-")
        for text in column(page, "mean reward", of=answers)
    ]
    assert [*map(float, texts)] == sorted(map(float, texts))
    assert column(page, "tokens of an answer", of=answers)[0] == "40 [40, 40]"
    assert column(page, "time per answer", of=answers)[0].startswith("2.5 s [")
    ann, ben = [block for block in page["blocks"] if block["is"] == "Bullets"][-1]["items"]
    assert ann[0].startswith("ann (rating): +0.")
    assert ben[0].startswith("ben (rating): -0.")


def test_an_adapter_is_taken_back_and_activated_again(store: Path, opened: Open):
    viewer = opened(store).enter()
    path = "training/assistant"
    assert viewer.post(f"{path}/rollback", confirm="code").status_code == 400
    assert viewer.post(f"{path}/rollback", token=None, confirm="assistant").status_code == 401
    assert viewer.post(f"{path}/rollback", token=READER, confirm="assistant").status_code == 403
    done = viewer.post(f"{path}/rollback", confirm="assistant")
    assert done.json() == {"sentence": "assistant-0001 answers for the role assistant again."}
    assert sections(viewer.page(path))["Now"].startswith("assistant-0001 answers for the role")
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
    assert f"{test.words}." in sections(page)["Now"]
    assert "assistant-0002 is tried against assistant-0001 on 50 % of" in test.words
    assert sections(page)["Earlier tests on live traffic"].count(ended.words) == 1
