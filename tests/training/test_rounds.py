"""Rounds of training: what they wait for, what they freeze, what becomes of their adapters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from convergence_core.feedback.adapter_records import GateCheck
from convergence_core.feedback.records import AnswerComparison, ChatMessage, Rating
from tasks.inputs.loader import Loaded, load
from tasks.models.files import ModelFiles
from tasks.store.feedback.adapter_files import training_folder
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.training_rounds import TrainingRounds
from tasks.training import round as rounds
from tasks.training.jobs import TrainingJob, TrainingResult
from tasks.training.marks import RoleMarks, collect, is_held_out, training_rows
from tasks.training.round_settings import BaseModel
from tests.feedback.adapters import PASSED, saved_adapter
from tests.feedback.answers import answer

FAILED = GateCheck(
    name="reward", passed=False, value=-9.0, low=-10.0, high=-8.0, threshold=0.0, unit="reward", words="Too far."
)  # fmt: skip


class Trainer:
    """What stands in the place of PyTorch: saves an adapter, or ends otherwise."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: list[TrainingJob] = []
        self.ending: TrainingResult | None = None

    def __call__(self, job: TrainingJob, folder: Path, **_: Any) -> TrainingResult:
        self.jobs.append(job)
        folder.mkdir(parents=True, exist_ok=True)
        if self.ending is not None:
            return self.ending
        saved = saved_adapter(folder / "adapter", seed=len(self.jobs))
        return TrainingResult(adapter=saved, n_steps=60, losses=(0.5, 0.1), n_rows=len(job.rows))


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    made = Trainer(tmp_path)
    base = BaseModel(
        name="tiny", files=ModelFiles(folder=tmp_path, gguf=None), names=("tiny", "stand-in")
    )
    monkeypatch.setattr(rounds, "run_training", made)
    monkeypatch.setattr(rounds, "base_model", lambda _loaded: base)
    monkeypatch.setattr(rounds, "check_adapter", lambda *_a, **_k: (PASSED,))
    return made


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    return load(written(tmp_path))


@pytest.fixture
def feedback(tmp_path: Path):
    with FeedbackStore(tmp_path / "store") as store:
        yield store


def written(folder: Path, **training: Any) -> Path:
    path = folder / "optimization.yaml"
    found = {
        "api": {"name": "talk", "kind": "openai", "endpoint": "https://127.0.0.1/v1",
                "auth": {"type": "none"}},
        "feedback": {"training": {"min_ratings": 5, "held_out": 0.5, "batch_size": 2} | training},
        "search_space": {"parameters": {"model": {"type": "categorical", "choices": ["m"], "default": "m"}}},
        "evaluation": {"test_cases": {"inline": [{"input": "a", "expected": "b"}]},
                       "metrics": {"exact_match": {"weight": 1}}},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(found), "utf-8")
    return path


def rate(
    store: FeedbackStore, n: int, start: int = 0, value: Callable[[int], int] = lambda k: 1 + k % 5
) -> None:
    for k in range(start, start + n):
        store.log(answer(f"a{k}", prompt=f"Question {k}?"))
        store.rate(Rating(interaction_id=f"a{k}", user_id="ann", rating=value(k)))


def look(loaded: Loaded, feedback: FeedbackStore, **more: Any) -> rounds.RoundReport:
    return rounds.train_role(loaded, feedback, "assistant", **more)


def test_a_round_waits_for_enough_new_marks(
    loaded: Loaded, feedback: FeedbackStore, trainer: Trainer
):
    assert look(loaded, feedback).sentence.startswith("0 new marks of 5 that a round needs")
    rate(feedback, 4)
    found = look(loaded, feedback)
    assert found.status == "waiting"
    assert "of 5 that a round needs; see feedback.training.min_ratings" in found.sentence
    assert trainer.jobs == []
    assert TrainingRounds(feedback).records() == []
    assert not (training_folder(feedback.root) / "assistant").exists()


def test_a_round_trains_on_what_is_not_held_out_and_activates_what_passes(
    loaded: Loaded, feedback: FeedbackStore, trainer: Trainer
):
    rate(feedback, 40)
    found = look(loaded, feedback)
    assert found.status == "activated"
    assert found.version == "assistant-0001"
    (job,) = trainer.jobs
    asked = {row.messages[-1]["content"] for row in job.rows}
    held = {f"Question {k}?" for k in range(40)} - asked
    assert 10 <= len(held) <= 30
    assert all(0 < row.target < 1 for row in job.rows)
    assert job.parent is None
    assert job.settings.objective == "qrpo"
    assert job.settings.lora_alpha == 16
    adapters = AdapterStore(feedback)
    active = adapters.active("assistant")
    assert active is not None
    assert (active.version, active.n_rows, active.parent) == ("assistant-0001", len(asked), None)
    (tried,) = adapters.live_tests()
    assert (tried.version, tried.control, tried.status) == ("assistant-0001", None, "running")
    assert (tried.share, tried.max_ratings) == (0.5, 200)
    assert "answers 50 % of the conversations with assistant now" in found.sentence
    (record,) = TrainingRounds(feedback).records()
    assert (record.status, record.version, record.n_rows) == ("done", "assistant-0001", len(asked))
    assert record.metrics["losses"] == [0.5, 0.1]
    assert not (training_folder(feedback.root) / "assistant").exists()
    # The same marks train nothing again; new ones do, from the adapter in service and with the old ones.
    assert look(loaded, feedback).status == "waiting"
    rate(feedback, 20, start=40)
    assert look(loaded, feedback).version == "assistant-0002"
    assert trainer.jobs[1].parent == adapters.folder("assistant-0001")
    assert len(trainer.jobs[1].rows) > len(job.rows)


def test_a_new_adapter_is_tried_as_configured_or_answers_all_at_once(
    tmp_path: Path, feedback: FeedbackStore, trainer: Trainer
):
    rate(feedback, 40)
    off = load(written(tmp_path, live_test={"enabled": False}))
    found = look(off, feedback)
    assert found.sentence == "assistant-0001 passed every check and answers for assistant now"
    assert AdapterStore(feedback).live_tests() == []
    rate(feedback, 20, start=40)
    look(load(written(tmp_path, live_test={"share": 0.2, "max_ratings": 30})), feedback)
    (tried,) = AdapterStore(feedback).live_tests()
    assert (tried.version, tried.control) == ("assistant-0002", "assistant-0001")
    assert (tried.share, tried.max_ratings) == (0.2, 30)


def test_held_out_prompts_stay_held_out_whoever_asks_them(feedback: FeedbackStore):
    rate(feedback, 30)
    marks = collect(feedback, role="assistant", models=["stand-in"], held_out=0.5)
    again = answer(
        "later", prompt=marks.held_out[0].interaction.messages[-1].content, user_id="bob"
    )
    assert is_held_out(again, 0.5)
    system = ChatMessage(role="system", content="You are brief.")
    other = answer("other", messages=(system, *again.messages))
    assert is_held_out(other, 0.5)  # a persona is not what was asked
    assert not is_held_out(again, 0.0)


def test_answers_of_other_models_train_nothing(
    loaded: Loaded, feedback: FeedbackStore, trainer: Trainer
):
    for k in range(20):
        feedback.log(answer(f"x{k}", prompt=f"Question {k}?", model="hosted"))
        feedback.rate(Rating(interaction_id=f"x{k}", user_id="ann", rating=5))
    found = look(loaded, feedback)
    assert found.status == "waiting"
    assert "20 ratings of other models' answers train nothing" in found.sentence
    marks = collect(feedback, role="assistant", models=["stand-in"], held_out=0.5)
    assert (marks.answers, marks.held_out, marks.n_foreign) == ((), (), 20)


def test_the_objective_fits_what_most_people_said(feedback: FeedbackStore):
    for k in range(12):
        feedback.log(answer(f"a{k}", prompt=f"Question {k // 2}?"))
    for k in range(3):
        feedback.rate(Rating(interaction_id=f"a{k}", user_id="ann", rating=4))

    def marks() -> RoleMarks:
        return collect(feedback, role="assistant", models=["stand-in"], held_out=0.0)

    assert marks().objective("auto") == "qrpo"
    for k in range(4, 8):
        feedback.rate(Rating(interaction_id=f"a{k}", user_id="ann", thumbs=("up", "down")[k % 2]))
    assert marks().objective("auto") == "kto"
    rows, _ = training_rows(marks(), "kto")
    assert [row.target for row in rows] == [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0]
    assert sum(row.weight for row in rows if row.target) == pytest.approx(
        sum(row.weight for row in rows if not row.target)
    )
    for k in range(0, 12, 2):
        feedback.compare(
            AnswerComparison(chosen_id=f"a{k}", rejected_id=f"a{k + 1}", user_id="ann")
        )
    assert marks().objective("auto") == "dpo"
    assert marks().objective("qrpo") == "qrpo"
    rows, used = training_rows(marks(), "dpo")
    assert {(row.response, row.rejected) for row in rows} == {
        (f"It is a{k}.", f"It is a{k + 1}.") for k in range(0, 12, 2)
    }
    assert {mark.kind for mark in used} == {"comparison"}
    feedback.uncompare("a0", "a1", "ann")
    assert len(training_rows(marks(), "dpo")[0]) == 5


def test_a_paused_round_goes_on_with_the_marks_it_began_with(
    loaded: Loaded, feedback: FeedbackStore, trainer: Trainer
):
    rate(feedback, 40)
    trainer.ending = TrainingResult(adapter=None, n_steps=7, interrupted=True)
    paused = look(loaded, feedback)
    assert paused.status == "paused"
    assert "paused after 7 steps of 60" in paused.sentence
    assert AdapterStore(feedback).records() == []
    rate(feedback, 20, start=40)  # they come later: the next round's
    trainer.ending = None
    assert look(loaded, feedback).status == "activated"
    assert trainer.jobs[1].rows == trainer.jobs[0].rows
    assert [one.status for one in TrainingRounds(feedback).records()] == ["interrupted", "done"]
    assert collect(feedback, role="assistant", models=["stand-in"], held_out=0.5).n_new > 0


def test_a_paused_round_whose_mark_was_changed_begins_anew(
    loaded: Loaded, feedback: FeedbackStore, trainer: Trainer
):
    rate(feedback, 40)
    trainer.ending = TrainingResult(adapter=None, n_steps=7, interrupted=True)
    look(loaded, feedback)
    trained = trainer.jobs[0].rows[0].key.split()[0]
    feedback.rate(Rating(interaction_id=trained, user_id="ann", thumbs="up"))
    trainer.ending = None
    assert look(loaded, feedback).status == "activated"
    assert trainer.jobs[1].rows != trainer.jobs[0].rows


def test_what_fails_changes_nothing_and_says_why(
    loaded: Loaded, feedback: FeedbackStore, trainer: Trainer
):
    rate(feedback, 40)
    trainer.ending = TrainingResult(
        adapter=None, n_steps=3, failure="the loss became NaN at step 3"
    )
    found = look(loaded, feedback)
    assert (found.status, found.version) == ("failed", None)
    assert "NaN at step 3" in found.sentence
    assert AdapterStore(feedback).records() == []
    (record,) = TrainingRounds(feedback).records()
    assert (record.status, record.reason) == ("failed", "the loss became NaN at step 3")


def test_what_fails_a_check_is_rejected_and_its_marks_stay_used(
    loaded: Loaded,
    feedback: FeedbackStore,
    trainer: Trainer,
    monkeypatch: pytest.MonkeyPatch,
):
    rate(feedback, 40)
    monkeypatch.setattr(rounds, "check_adapter", lambda *_a, **_k: (PASSED, FAILED))
    found = look(loaded, feedback)
    assert found.status == "rejected"
    assert (
        "did not pass 1 of 2 checks (reward); the base model answers as before" in found.sentence
    )
    adapters = AdapterStore(feedback)
    assert adapters.active("assistant") is None
    (one,) = adapters.records()
    assert (one.status, one.reason) == ("rejected", "Too far")
    assert adapters.checks(one.version) == (PASSED, FAILED)
    assert look(loaded, feedback).status == "waiting"  # or every look would train the same again


def test_a_candidate_of_a_killed_round_is_judged_first(
    loaded: Loaded,
    feedback: FeedbackStore,
    trainer: Trainer,
    monkeypatch: pytest.MonkeyPatch,
):
    rate(feedback, 40)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rounds, "check_adapter", killed)
    with pytest.raises(KeyboardInterrupt):
        look(loaded, feedback)
    (left,) = AdapterStore(feedback).records()
    assert left.status == "candidate"
    monkeypatch.setattr(rounds, "check_adapter", lambda *_a, **_k: (PASSED,))
    found = look(loaded, feedback)
    assert (found.status, found.version) == ("activated", left.version)
    assert len(trainer.jobs) == 1
    (record,) = TrainingRounds(feedback).records()
    assert (record.status, record.version) == ("done", left.version)
