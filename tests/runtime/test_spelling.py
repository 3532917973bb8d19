"""The original's settings: those that mean something here work, the others say why not."""

from pathlib import Path
from typing import Any

import pytest

import convergence
from convergence_core.errors import ConfigurationError

ARMS = [{"arm_id": "a", "params": {}}]
EVALUATOR = {
    "metrics": [
        {"name": "helpful", "weight": 1.0},
        {"name": "short", "weight": 0.5, "normalize": True},
    ],
    "custom_evaluator": {"enabled": False, "module": None, "function": None},
}


def test_metrics_of_an_evaluator_make_the_reward(tmp_path: Path):
    config = {
        "default_arms": ARMS,
        "reward_evaluator": EVALUATOR,
        "selection_strategy": {"use_stability": False, "exploration_bonus": 0},
    }
    settings = convergence.configure_runtime_sync("orig", config=config, storage=tmp_path / "s")
    assert [metric.name for metric in settings.reward_metrics] == ["helpful", "short"]
    chosen = convergence.runtime_select_sync("orig", user_id="u")
    told = convergence.runtime_update_sync(
        "orig", user_id="u", decision_id=chosen.decision_id, signals={"helpful": 1.0, "short": 0.4}
    )
    assert told["reward"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"cache_ttl_seconds": 30}, "cache_ttl_seconds"),
        ({"selection_strategy": {}}, "selection_strategy.use_stability"),
        (
            {"selection_strategy": {"use_stability": False, "exploration_bonus": 0.1}},
            "selection_strategy.exploration_bonus",
        ),
        ({"selection_strategy": "best"}, "selection_strategy"),
        (
            {"reward_evaluator": {"custom_evaluator": {"enabled": True, "function": "f"}}},
            "reward_evaluator.custom_evaluator",
        ),
        (
            {"reward_evaluator": {"metrics": [{"name": "x", "weight": 1, "normalize": False}]}},
            "reward_evaluator.metrics.0.normalize",
        ),
        ({"reward_evaluator": {"metrics": [{"weight": 1}]}}, "reward_metrics.0.name"),
    ],
)
def test_what_has_no_meaning_here_is_refused_with_its_reason(
    tmp_path: Path, config: dict[str, Any], key: str
):
    with pytest.raises(ConfigurationError) as caught:
        convergence.configure_runtime_sync(
            "orig", config={"default_arms": ARMS, **config}, storage=tmp_path / "s"
        )
    assert [problem.key for problem in caught.value.problems] == [key]
