"""Audited pairs as training rows: only of judges that passed, never of held-out prompts, frozen with their round."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from convergence_core.feedback.records import Rating
from tasks.inputs.loader import load
from tasks.sao.dataset import dataset_of
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.tables.parquet_store import ParquetStore
from tasks.training import round as rounds
from tasks.training.jobs import TrainingJob, TrainingResult, TrainingRow
from tasks.training.marks import is_held_out_prompt
from tasks.training.preference_rows import training_rows_of_preferences
from tasks.training.round_settings import BaseModel
from tests.feedback.adapters import PASSED
from tests.feedback.answers import answer
from tests.support.planted_server import planted_server
from tests.support.preferring_runs import planted_world, write_preferring
from tests.support.stepped_runs import STORE, begin, play_generation

SIZE: dict[str, Any] = {
    "n_cases": 48,  # enough different items for a verdict after the first generation
    "optimization__evolution": {"population_size": 5, "generations": 2},
    "society__sao": {"every": 1, "n_samples": 20, "n_personas": 60, "audit_items": 60},
}
PERSONA = "You answer."


def written(folder: Path, *, lies: bool) -> Path:
    """Return a project with one round of preferences."""
    with planted_server(planted_world(lies=lies)) as server:
        write_preferring(folder, server.url, **SIZE)
        with begin(folder) as run:
            while run.should_continue():
                play_generation(run)
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("preferences"), lies=False)


def rows_of(project: Path, objective: Any, **more: Any) -> tuple[TrainingRow, ...]:
    name = load(project / "optimization.yaml").configuration.api.name
    given: dict[str, Any] = {"persona": PERSONA, "held_out": 0.0} | more
    return training_rows_of_preferences(ParquetStore(project / STORE), name, objective, **given)


def test_a_pair_trains_as_the_judge_saw_it(project: Path):
    pairs = dataset_of(ParquetStore(project / STORE), "codes").pairs
    rows = rows_of(project, "dpo")
    assert len(rows) == len(pairs) > 2
    for row, pair in zip(rows, reversed(pairs), strict=True):
        assert [message["content"] for message in row.messages] == [
            PERSONA,
            pair.comparison.prompt,
        ]
        assert (row.response, row.rejected) == (pair.chosen.text, pair.rejected.text)
        assert row.weight == pytest.approx(abs(2 * pair.judgement.q - 1))


@pytest.mark.parametrize(("objective", "targets"), [("qrpo", [0.75, 0.25]), ("kto", [1.0, 0.0])])
def test_objectives_of_single_answers_take_both(project: Path, objective: str, targets: Any):
    better, worse = rows_of(project, objective)[:2]
    (pair,) = rows_of(project, "dpo")[:1]
    assert [better.target, worse.target] == targets
    assert (better.response, worse.response) == (pair.response, pair.rejected)


def test_held_out_prompts_do_not_train(project: Path):
    rows, half = rows_of(project, "dpo"), rows_of(project, "dpo", held_out=0.5)
    assert 0 < len(half) < len(rows)
    for row in rows:
        is_kept = not is_held_out_prompt([("user", row.messages[1]["content"])], 0.5)
        assert (row in half) == is_kept


@pytest.mark.slow
def test_a_judge_that_fails_its_audit_trains_nothing(tmp_path: Path):
    project = written(tmp_path, lies=True)
    every = dataset_of(ParquetStore(project / STORE), "codes", anyway=True)
    assert every.pairs
    assert rows_of(project, "dpo") == ()


def test_a_paused_round_goes_on_with_the_rows_it_began_with(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    jobs: list[TrainingJob] = []

    def train(job: TrainingJob, folder: Path, **_: Any) -> TrainingResult:
        jobs.append(job)
        return TrainingResult(adapter=None, n_steps=1, interrupted=True)

    base = BaseModel(name="tiny", files=None, names=("stand-in",))  # type: ignore[arg-type]
    monkeypatch.setattr(rounds, "run_training", train)
    monkeypatch.setattr(rounds, "base_model", lambda _: base)
    monkeypatch.setattr(rounds, "check_adapter", lambda *_a, **_k: (PASSED,))  # fmt: skip
    training = {"min_ratings": 5, "held_out": 0.5, "batch_size": 2, "objective": "kto"}

    def look(role: str = "assistant", *, preferences: bool) -> rounds.RoundReport:
        keys = yaml.safe_load((project / "optimization.yaml").read_text("utf-8"))
        keys["feedback"] = {
            "roles": {"other": "You differ."},
            "training": training | {"preferences": preferences},
        }
        config = project / "training.yaml"
        config.write_text(yaml.safe_dump(keys), "utf-8")
        return rounds.train_role(load(config), feedback, role)

    with FeedbackStore(tmp_path / "feedback") as feedback:
        for k in range(40):
            for role in ("assistant", "other"):
                feedback.log(answer(f"{role}{k}", prompt=f"Question {k}?", role=role))
                feedback.rate(
                    Rating(
                        interaction_id=f"{role}{k}", user_id="ann", thumbs=("up", "down")[k % 2]
                    )
                )
        assert look(preferences=True).status == "paused"
        rows = jobs[0].rows
        synthetic = [row for row in rows if row.key.startswith("preference ")]
        assert 0 < len(synthetic) < len(rows)
        monkeypatch.setattr(rounds, "training_rows_of_preferences", lambda *_a, **_k: ())
        assert look(preferences=True).status == "paused"
        assert jobs[1].rows == rows
        assert look("other", preferences=True).status == "paused"
        assert not [row for row in jobs[2].rows if row.key.startswith("preference ")]
