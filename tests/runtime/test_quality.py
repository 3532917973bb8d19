"""Mode ``quality``: the cheapest arm whose mean reward is held, end to end."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convergence
from tests.runtime import requests
from tests.runtime.requests import select, update

ARMS: list[dict[str, Any]] = [
    {"arm_id": "large", "params": {"model": "large"}, "cost": 5.0},
    {"arm_id": "small", "params": {"model": "small"}, "cost": 1.0},
    {"arm_id": "tiny", "params": {"model": "tiny"}},
]
QUALITY = {"large": 0.95, "small": 0.92, "tiny": 0.6}
COSTS = {"large": 5.0, "small": 2.0, "tiny": 0.1}
CONFIG = {"default_arms": ARMS, "mode": "quality", "least_quality": 0.8, "seed": 3}


def configured(path: Path, **settings: object) -> str:
    return requests.configured(path, **{**CONFIG, **settings})


def served(system: str, n: int, seed: int = 0) -> list[str]:
    """Serve requests and give their rewards; return the arms that served."""
    rng, arms = np.random.default_rng(seed), []
    for _ in range(n):
        found = select(system)
        reward = float(rng.random() < QUALITY[found.arm_id])
        update(system, found, reward=reward, cost=COSTS[found.arm_id])
        arms.append(found.arm_id)
    return arms


def standing(system: str) -> dict[str, dict[str, Any]]:
    return {arm["arm_id"]: arm for arm in convergence.runtime_quality_sync(system)}


def test_requests_go_to_the_cheapest_arm_that_holds_the_quality(tmp_path: Path):
    system = configured(tmp_path, explore_cheaper=0.4)
    arms = served(system, 700)
    found = standing(system)
    assert {name: one["standing"] for name, one in found.items()} == {
        "large": "holds", "small": "holds", "tiny": "fails"
    }  # fmt: skip
    assert [name for name, one in found.items() if one["serves"]] == ["small"]
    assert arms[-100:].count("small") > 90
    assert found["small"]["low"] >= 0.8 > found["tiny"]["high"]
    # Costs are those that came with rewards, whatever was stated.
    assert {name: one["cost"] for name, one in found.items()} == pytest.approx(COSTS)


def test_a_propensity_is_the_share_of_the_plan(tmp_path: Path):
    system = configured(tmp_path, explore_cheaper=0.3, floor=0.0)
    found = [select(system) for _ in range(300)]
    chances = {one.arm_id: one.metadata["propensity"] for one in found}
    # None holds yet, so the first of equals serves and the others get their chance.
    assert chances == pytest.approx({"large": 0.7, "small": 0.15, "tiny": 0.15})
    counts = {name: sum(one.arm_id == name for one in found) for name in chances}
    for name, chance in chances.items():
        # Five standard deviations.
        assert abs(counts[name] - 300 * chance) < 5 * (300 * chance * (1 - chance)) ** 0.5


def test_a_night_counts_for_nothing_in_what_is_held(tmp_path: Path):
    arms = [{**ARMS[0], "prior_mean": 0.99, "prior_sd": 0.001}, ARMS[1]]
    system = configured(tmp_path, default_arms=arms)
    assert {one["standing"] for one in standing(system).values()} == {"undecided"}


def test_a_retired_arm_serves_no_more_and_keeps_its_share_of_the_error(tmp_path: Path):
    system = configured(tmp_path, explore_cheaper=0.4)
    served(system, 300)
    before = standing(system)
    convergence.runtime_retire_arm_sync(system, "large")
    after = standing(system)
    assert "large" not in after
    assert after["small"]["low"] == before["small"]["low"]
    assert "large" not in served(system, 40)


@pytest.mark.parametrize("cost", [-1.0, float("nan"), float("inf")])
def test_a_cost_that_is_none_is_refused_and_nothing_is_stored(tmp_path: Path, cost: float):
    system = configured(tmp_path)
    found = select(system)
    with pytest.raises(ValueError, match="cost"):
        update(system, found, reward=1.0, cost=cost)
    assert update(system, found, reward=1.0)["status"] == "ok"
