"""`convergence train`, up to where PyTorch would begin."""

import re
from pathlib import Path
from typing import Any

import pytest

from convergence_core.feedback.records import Rating
from tasks.models.files import ModelFiles
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.in_flight import RequestsInFlight
from tasks.training import looks, round as rounds
from tasks.training.round_settings import BaseModel
from tests.feedback.answers import answer
from tests.support.commands import Runner
from tests.training.test_rounds import written


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    written(tmp_path)
    monkeypatch.chdir(tmp_path)
    base = BaseModel(
        name="tiny", files=ModelFiles(folder=tmp_path, gguf=None), names=("stand-in",)
    )
    for module in (rounds, looks):
        monkeypatch.setattr(module, "base_model", lambda _loaded: base)
    return tmp_path


@pytest.mark.parametrize(
    ("load", "said"), [(9.0, "the load is"), (0.0, "a request is being answered")]
)
def test_it_waits_until_the_machine_is_idle(
    load: float, said: str, project: Path, cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tasks.training.looks.os.getloadavg", lambda: (100 * load, 0.0, 0.0))
    store = project / "convergence-data"
    with FeedbackStore(store) as feedback:
        feedback.log(answer("a"))
        feedback.rate(Rating(interaction_id="a", user_id="ann", rating=4))
    if load:
        done = cli("train", "--role", "assistant")
    else:
        with RequestsInFlight(store).request():
            done = cli("train", "--role", "assistant")
    assert done.code == 0
    assert f"assistant: waiting. {said[0].upper()}{said[1:]}" in done.out


@pytest.mark.parametrize(
    ("status", "code"), [("rejected", 100), ("undecided", 100), ("failed", 1), ("activated", 0)]
)
def test_the_exit_code_tells_the_verdict(
    status: Any, code: int, project: Path, cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    report = rounds.RoundReport(role="assistant", status=status, sentence="it was so")
    monkeypatch.setattr(looks, "look_at_roles", lambda *_a, **_k: [report])
    done = cli("train", "--now")
    assert done.code == code
    assert f"assistant: {status}. It was so." in done.out


def test_a_daemon_looks_again_after_its_interval(
    project: Path, cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    found = iter(
        [
            [rounds.RoundReport(role="assistant", status="waiting", sentence="quiet for 3 s")],
            [rounds.RoundReport(role="assistant", status="waiting", sentence="quiet for 4.5 s")],
            [rounds.RoundReport(role="assistant", status="waiting", sentence="nothing is new")],
            [rounds.RoundReport(role="assistant", status="activated", sentence="it is better")],
        ]
    )
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(looks, "look_at_roles", lambda *_a, **_k: next(found))
    monkeypatch.setattr("convergence.cli.learn.train.time.sleep", sleep)
    done = cli("train", "--daemon")
    assert slept == [60.0] * 4
    first, *lines = done.out.splitlines()
    assert re.search("^Checking the ratings of .* every 60 s. Ctrl-C stops.$", first)
    assert lines[:2] == [
        "assistant: waiting. Quiet for 3 s.",
        "assistant: waiting. Nothing is new.",
    ]
    assert "assistant: activated. It is better." in done.out
