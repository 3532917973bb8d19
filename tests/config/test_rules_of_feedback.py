"""Rules of ``feedback``: what a round of training may be told, and what belongs to the checkpoint."""

import json
from typing import Any

import pytest

from convergence_core.config import parse_mapping
from convergence_core.config.feedback import TrainingConfig
from tests.support.config_examples import MINIMAL, edited, problems_of


def training(**fields: Any) -> dict[str, Any]:
    return {"feedback": {"training": fields}}


def test_training_has_the_documented_defaults():
    default = parse_mapping(MINIMAL).feedback.training
    assert default == TrainingConfig()
    assert (default.base_model_path, default.rater, default.objective) == (None, None, "auto")
    assert (default.batch_size, default.steps) == (4, 60)
    assert (default.learning_rate, default.beta, default.held_out) == (3e-4, 0.05, 0.2)
    assert (default.max_seq_length, default.min_ratings) == (512, 20)
    tried = default.live_test
    assert (tried.enabled, tried.share, tried.max_ratings) == (True, 0.5, 200)


def test_written_keys_are_read():
    written = {
        "base_model_path": "models/mine", "batch_size": 2,
        "max_seq_length": 1024, "objective": "kto", "learning_rate": 1e-4, "beta": 0.2, "steps": 5,
        "min_ratings": 50, "held_out": 0.5, "games": True,
        "rater": "checks:rate",
        "reward": {
            "rating": 2.0, "similarity": 0.5, "style": 0.25, "length": 1.0, "length_words": 40,
            "mode": "multiplicative",
        },
        "live_test": {"enabled": False, "share": 0.25, "max_ratings": 30},
    }  # fmt: skip
    found = parse_mapping(edited(training(**written), MINIMAL)).feedback.training
    assert found.model_dump() == written


@pytest.mark.parametrize(
    ("key", "value"), [("share", 0.0), ("share", 1.0), ("max_ratings", 0), ("enabled", "perhaps")]
)
def test_a_test_on_live_traffic_out_of_range_is_refused_by_its_key(key: str, value: Any):
    (problem,) = problems_of(training(live_test={key: value}), MINIMAL)
    assert problem.key == f"feedback.training.live_test.{key}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("batch_size", 0), ("steps", 0), ("held_out", 1.0), ("held_out", 0.0), ("beta", 0.0)),
        *(("learning_rate", 1.0), ("objective", "ppo"), ("rater", "rate")),
        *(("max_seq_length", 1), ("min_ratings", 1), ("base_model_path", "")),
    ],
)
def test_values_out_of_range_are_refused_by_their_key(key: str, value: Any):
    (problem,) = problems_of(training(**{key: value}), MINIMAL)
    assert problem.key == f"feedback.training.{key}"


@pytest.mark.parametrize("objective", ["auto", "qrpo"])
def test_one_answer_is_no_batch_to_compare_within(objective: str):
    (problem,) = problems_of(training(batch_size=1, objective=objective), MINIMAL)
    assert problem.key == "feedback.training.batch_size"
    assert "objective: kto" in problem.fix
    assert problems_of(training(batch_size=1, objective="kto"), MINIMAL) == []


def test_a_plain_safety_model_is_a_folder_and_a_table_is_an_endpoint():
    def safety(model: Any) -> dict[str, Any]:
        return {"feedback": {"safety": {"model": model}}}

    found = parse_mapping(edited(safety("./guard"), MINIMAL))
    model = found.feedback.safety.model
    assert model is not None
    assert (model.form, model.model) == ("folder", "./guard")
    assert parse_mapping(json.loads(found.to_json())) == found
    found = parse_mapping(
        edited(safety({"model": "g", "base_url": "http://127.0.0.1:9"}), MINIMAL)
    )
    model = found.feedback.safety.model
    assert model is not None
    assert (model.form, model.endpoint) == ("moderation", "http://127.0.0.1:9")
    (problem,) = problems_of(safety({"model": "openai/omni-moderation-latest"}), MINIMAL)
    assert problem.key == "feedback.safety.model.api_key_env"
