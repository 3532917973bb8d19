"""Rounds that train a role to think: what they refuse, what becomes of their adapters, and a real one."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from convergence.__main__ import run
from convergence_core.errors import ConfigurationError
from convergence_core.feedback.adapter_records import GateCheck
from tasks.inputs.loader import Loaded, load
from tasks.models.files import ModelFiles, missing_libraries
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.training_rounds import TrainingRounds
from tasks.training import round as rounds, thinker_round
from tasks.training.jobs import TrainingJob, TrainingResult, predicting
from tasks.training.round_settings import BaseModel
from tests.feedback.adapters import PASSED, saved_adapter
from tests.training import thinking_world as world

FAILED = GateCheck(
    name="gain", passed=False, value=0.1, low=-0.1, high=0.3, threshold=None, unit="nats", words="No gain."
)  # fmt: skip


def write_file(folder: Path, rows: list[dict[str, str]]) -> Path:
    path = folder / "outcomes.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), "utf-8")
    return path


def outcomes() -> list[dict[str, str]]:
    return [
        {
            "think": world.thinking(topic, wording),
            "predict": world.predicting(topic),
            "follows": colour,
        }
        for topic, colour in world.COLOURS.items()
        for wording in range(len(world.WORDINGS))
    ]


def write(folder: Path, **training: Any) -> Path:
    found = {
        "api": {"name": "think", "kind": "local", "request": {"options": {"model": "model", "max_tokens": 8}}},
        "feedback": {
            "roles": {"thinker": "You think."},
            "training": {"held_out": 0.3, "batch_size": 8, "steps": 60, "learning_rate": 1e-3,
                         "max_seq_length": 96, **training},
        },
        "society": {"rlp": {"n_thoughts": 8, "thought_length": 8, "temperature": 0.7}},
        "search_space": {"parameters": {"temperature": {"type": "float", "min": 0, "max": 1, "default": 0.0}}},
        "evaluation": {"test_cases": {"inline": [{"input": "a", "expected": "b"}]},
                       "metrics": {"exact_match": {"weight": 1}}},
        "storage": {"path": "./convergence-data"},
    }  # fmt: skip
    path = folder / "optimization.yaml"
    path.write_text(yaml.safe_dump(found), "utf-8")
    return path


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    return load(write(tmp_path))


@pytest.fixture
def feedback(tmp_path: Path):
    with FeedbackStore(tmp_path / "convergence-data") as store:
        yield store


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[TrainingJob]:
    """Jobs of what stands in the place of PyTorch."""
    made: list[TrainingJob] = []

    def trained(job: TrainingJob, folder: Path, **_: Any) -> TrainingResult:
        made.append(job)
        saved = saved_adapter(folder / "adapter", seed=len(made))
        return TrainingResult(adapter=saved, n_steps=40, losses=(0.1,), n_rows=len(job.rows))

    base = BaseModel(name="tiny", files=ModelFiles(folder=tmp_path, gguf=None), names=("tiny",))
    monkeypatch.setattr(thinker_round, "run_training", trained)
    monkeypatch.setattr(thinker_round, "base_model", lambda _loaded: base)
    monkeypatch.setattr(thinker_round, "judge", lambda *_a, **_k: (PASSED,))
    return made


def test_what_passes_its_checks_thinks_for_its_role(
    loaded: Loaded, feedback: FeedbackStore, jobs: list[TrainingJob], tmp_path: Path
):
    path = write_file(tmp_path, outcomes())
    found = thinker_round.train_thinker(loaded, feedback, "thinker", path, persona="You think.")
    assert (found.status, found.version) == ("activated", "thinker-0001")
    adapters = AdapterStore(feedback)
    active = adapters.active("thinker")
    assert active is not None
    assert (active.objective, active.n_rows, active.parent) == ("rlp", 0, None)
    (job,) = jobs
    settings = job.settings
    assert (settings.objective, settings.n_thoughts, settings.thought_tokens) == ("rlp", 8, 8)
    assert 40 <= len(job.rows) <= 60  # of 80; the others are held out
    row = job.rows[0]
    assert next(one["content"] for one in row.messages) == "You think."
    assert predicting(row, "Maybe red.")[-1]["content"].endswith("Notes: Maybe red.")
    assert predicting(row, None)[-1]["content"].endswith("Notes: (none)")
    (record,) = TrainingRounds(feedback).records()
    assert (record.status, record.objective) == ("done", "rlp")
    thinker_round.train_thinker(loaded, feedback, "thinker", path, persona="You think.")
    assert jobs[1].parent == adapters.folder("thinker-0001")
    assert jobs[1].rows == job.rows


def test_what_fails_is_rejected_and_what_does_not_train_says_why(
    loaded: Loaded,
    feedback: FeedbackStore,
    jobs: list[TrainingJob],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    path = write_file(tmp_path, outcomes())
    monkeypatch.setattr(thinker_round, "judge", lambda *_a, **_k: (PASSED, FAILED))
    found = thinker_round.train_thinker(loaded, feedback, "thinker", path, persona="You think.")
    assert found.status == "rejected"
    assert "did not pass 1 of 2 checks (gain)" in found.sentence
    assert AdapterStore(feedback).active("thinker") is None
    ending = TrainingResult(adapter=None, n_steps=3, failure="the loss of step 3 is nan")
    monkeypatch.setattr(thinker_round, "run_training", lambda *_a, **_k: ending)
    found = thinker_round.train_thinker(loaded, feedback, "thinker", path, persona="You think.")
    assert (found.status, found.version) == ("failed", None)
    assert "step 3 is nan. Nothing was changed" in found.sentence
    assert [one.status for one in TrainingRounds(feedback).records()] == ["done", "failed"]


def test_what_a_killed_round_left_is_rejected_by_the_next_and_judged_by_no_ratings(
    loaded: Loaded,
    feedback: FeedbackStore,
    jobs: list[TrainingJob],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    path = write_file(tmp_path, outcomes())
    with monkeypatch.context() as patch:
        patch.setattr(thinker_round, "judge", killed)
        with pytest.raises(KeyboardInterrupt):
            thinker_round.train_thinker(loaded, feedback, "thinker", path, persona="You think.")
    adapters = AdapterStore(feedback)
    assert adapters.record("thinker-0001").status == "candidate"
    base = BaseModel(name="tiny", files=ModelFiles(folder=tmp_path, gguf=None), names=("tiny",))
    monkeypatch.setattr(rounds, "base_model", lambda _loaded: base)
    report = rounds.train_role(loaded, feedback, "thinker")
    assert (report.status, report.version) == ("waiting", None)
    assert adapters.record("thinker-0001").status == "candidate"
    found = thinker_round.train_thinker(loaded, feedback, "thinker", path, persona="You think.")
    assert (found.status, found.version) == ("activated", "thinker-0002")
    left = adapters.record("thinker-0001")
    assert (left.status, left.reason) == ("rejected", "its round ended before its checks")
    told = [(one.status, one.reason) for one in TrainingRounds(feedback).records()]
    assert told[0] == ("failed", "its round ended before its checks")
    assert [status for status, _ in told] == ["failed", "done"]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "JSON object a line"),
        ("no json\n", "Correct line 1"),
        ('{"think": "a", "predict": "b {thought}"}\n', "Correct line 1"),
        ('{"think": "a", "predict": "b", "follows": "c"}\n', r"place \{thought\}"),
        ('\n{"think": "a", "predict": "{thought}", "follows": " "}\n', "Correct line 2"),
        ('{"think": "a", "predict": "{thought}", "follows": "c"}\n', "at least 8 rows"),
    ],
)
def test_files_that_cannot_train_are_refused(
    text: str, rule: str, loaded: Loaded, jobs: list[TrainingJob], tmp_path: Path
):
    path = tmp_path / "rows.jsonl"
    path.write_text(text, "utf-8")
    store = FeedbackStore(tmp_path / "convergence-data")
    with store as feedback, pytest.raises(ConfigurationError, match=rule):
        thinker_round.train_thinker(loaded, feedback, "thinker", path, persona="You think.")
    assert jobs == []


def test_a_missing_file_and_an_unknown_role_are_refused(
    loaded: Loaded,
    feedback: FeedbackStore,
    jobs: list[TrainingJob],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    path = tmp_path / "none.jsonl"
    with pytest.raises(ConfigurationError, match="file of JSON lines"):
        thinker_round.train_thinker(loaded, feedback, "thinker", path, persona="You think.")
    config = str(tmp_path / "optimization.yaml")
    assert run(["train", config, "--thoughts", str(path), "--role", "thinkre"]) == 2
    assert "Did you mean `thinker`" in capsys.readouterr().err.replace("\n", " ")


def test_the_command_wants_a_role_and_one_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = str(write(tmp_path))
    for more in ((), ("--role", "thinker", "--daemon"), ("--role", "thinker", "--now")):
        assert run(["train", config, "--thoughts", "rows.jsonl", *more]) == 2
        assert "needs --role" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.slow
@pytest.mark.timeout(2400)  # training gives way to whatever else runs (nice 19)
@pytest.mark.skipif(bool(missing_libraries()), reason="needs the extra `local`")
@pytest.mark.filterwarnings("ignore")
def test_a_role_learns_to_think_and_answers_with_what_it_thinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    world.make(tmp_path / "model", len(world.WORDINGS))
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    path = write_file(tmp_path, outcomes())
    assert run(["train", "--thoughts", str(path), "--role", "thinker"]) == 0
    printed = capsys.readouterr().out
    assert "thinker: activated." in printed
    assert "own_prompt passed" in printed
    with FeedbackStore(tmp_path / "convergence-data") as feedback:
        checks = {one.name: one for one in AdapterStore(feedback).checks("thinker-0001")}
    gain = checks["gain"]
    assert gain.low is not None
    assert gain.low > 0
    assert set(checks) == {"weights", "held_out", "well_formed", "gain", "own_prompt", "safety"}
