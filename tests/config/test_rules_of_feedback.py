"""Rules of ``feedback``: what a round of training may be told, and what belongs to the checkpoint."""

from typing import Any

import pytest

from convergence_core.config import parse_mapping
from tests.support.config_examples import MINIMAL, edited, problems_of


def training(**fields: Any) -> dict[str, Any]:
    return {"feedback": {"training": fields}}


def test_written_keys_are_read():
    written = {
        "base_model_path": "models/mine", "batch_size": 2,
        "max_seq_length": 1024, "objective": "kto", "learning_rate": 1e-4, "beta": 0.2, "steps": 5,
        "min_ratings": 50, "held_out": 0.5, "preferences": True,
        "rater": "checks:rate",
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
