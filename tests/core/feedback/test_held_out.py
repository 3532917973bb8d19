"""Comparison of two adapters by their answers to held-out prompts."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from convergence_core.feedback.held_out import HeldOutAnswer, compare_held_out

Floats = NDArray[np.float64]


def answers(
    rewards: Sequence[float | None] | Floats,
    log_ratios: Sequence[float] | Floats | None = None,
    text: str = "It is Lima, the capital.",
    per_prompt: int = 1,
) -> list[HeldOutAnswer]:
    return [
        HeldOutAnswer(
            prompt_key=f"p{k // per_prompt}",
            text=text,
            reward=reward,
            log_ratio=None if log_ratios is None else log_ratios[k],
        )
        for k, reward in enumerate(rewards)
    ]


def test_a_better_adapter_is_seen_better_and_its_distance_measured():
    rng = np.random.default_rng(1)
    old = rng.uniform(0.2, 0.6, 60)
    new = old + 0.2 + rng.normal(0, 0.05, 60)
    # Log-ratios of two normals .5 standard deviations apart, whose divergence is .5 ** 2 / 2.
    ratios = rng.normal(0.125, 0.5, 60)
    found = compare_held_out(answers(new, ratios), answers(old))
    assert found.n_prompts == 60
    assert found.reward_difference is not None
    assert 0.1 < found.reward_difference.low < 0.2 < found.reward_difference.high < 0.3
    assert found.kl_nats is not None
    assert found.kl_nats.low < 0.125 < found.kl_nats.high
    assert found.kl_nats.high - found.kl_nats.low == pytest.approx(
        2 * 2.001 * float(np.std(np.expm1(-ratios) + ratios)) / math.sqrt(60), rel=0.02
    )
    assert found.well_formed is not None
    assert found.well_formed.mean == 1.0
    assert 0.9 < found.well_formed.low < 1.0  # never of width zero


def test_an_interval_counts_prompts_and_not_their_answers():
    old = answers([0.5] * 40, per_prompt=4)
    new = answers([0.6, 0.8] * 20, [0.0] * 40, per_prompt=4)
    found = compare_held_out(new, old)
    assert found.n_prompts == 10
    assert found.reward_difference is not None
    assert found.reward_difference.n_cases == 10
    assert found.reward_difference.mean == pytest.approx(0.2)
    assert found.well_formed is not None
    assert found.well_formed.n_groups == 10


def test_what_is_not_measured_is_missing():
    new = answers([0.5, 0.5, None], [0.1, math.nan, 0.2])
    found = compare_held_out(new, answers([0.5, 0.5, 0.5]))
    assert found.reward_difference is None
    assert found.kl_nats is None  # NaN is no measurement
    assert compare_held_out(answers([1.0]), answers([0.0])).kl_nats is None


def test_faults_of_form_are_counted():
    new = answers([0.5] * 4, text="no " * 20) + answers([0.5] * 4, text="")
    found = compare_held_out(new, answers([0.5] * 4))
    assert found.well_formed is not None
    assert found.well_formed.mean == 0.0
    assert found.well_formed.high > 0.0


@pytest.mark.parametrize(("new", "old"), [([], []), ([0.5], []), ([0.5, 0.5], [0.5])])
def test_adapters_that_answered_other_prompts_are_not_compared(new: list[float], old: list[float]):
    with pytest.raises(ValueError, match="the same prompts"):
        compare_held_out(answers(new), answers(old))


def test_the_divergence_of_a_new_adapter_is_never_negative():
    few = compare_held_out(answers([None] * 4, [-0.4, -0.3, 0.1, -0.2]), answers([None] * 4))
    assert few.kl_nats is not None
    assert 0 <= few.kl_nats.low <= few.kl_nats.mean < 0.1
