"""Probes that only right code learns, and planted bugs that each must be caught."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from convergence_core.policy import (
    ActorCritic,
    Offer,
    PPOConfig,
    Rollout,
    choose,
    following_values,
    generalized_advantages,
    learner,
    objective as objectives,
    rollout as rollouts,
)
from convergence_core.policy.objective import Experience, clipped_surrogate, normalized, objective
from tests.support.policy_probes import PROBES


def clip_unit() -> None:
    """One gradient step on one choice: does the actor move?"""
    rng = np.random.default_rng(0)
    config = PPOConfig(input_dim=2, action_dim=3, hidden_dim=4, entropy_coef=0.0, value_coef=0.0)
    networks = ActorCritic.begin(2, config.hidden_sizes, 3, rng, dtype=np.float64)
    offer = Offer(observations=rng.normal(size=(1, 2)), legal=np.ones((1, 3), dtype=bool))
    choice = choose(networks, offer, rng)
    table = [
        (+1, 1.5, 0), (+1, 0.5, +1), (-1, 1.5, -1), (-1, 0.5, 0), (+1, 1.0, +1), (-1, 1.0, -1),
    ]  # fmt: skip
    for sign, ratio, direction in table:
        batch = Experience(
            observations=offer.observations,
            legal=offer.legal,
            actions=choice.actions,
            log_probs=choice.log_probs - np.log(ratio),
            values=choice.values,
            advantages=np.array([float(sign)]),
            returns=choice.values,
        )
        gradient = networks.copied()
        objective(networks, batch, config, gradient)
        moved = networks.copied()
        moved.flat[:] -= 1e-3 * gradient.flat
        before = choose(networks, offer).probabilities[0, choice.actions[0]]
        after = choose(moved, offer).probabilities[0, choice.actions[0]]
        found = int(np.sign(np.round(after - before, 15)))
        assert found == direction, f"advantage {sign}, ratio {ratio}: moved by {after - before}"


def test_the_actor_moves_only_where_the_clip_allows():
    clip_unit()


@pytest.mark.parametrize("name", PROBES)
def test_probe_is_learned(name: str):
    PROBES[name]()


def no_ends(values: Any, **rest: Any) -> Any:
    nothing = np.zeros_like(rest["terminated"])
    return following_values(values, **{**rest, "terminated": nothing, "truncated": nothing})


def later(ends: np.ndarray) -> np.ndarray:
    return np.vstack((np.zeros_like(ends[:1]), ends[:-1]))


def ignores_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rollouts, "following_values", no_ends)
    patch.setattr(
        rollouts,
        "generalized_advantages",
        lambda r, v, f, ends, **k: generalized_advantages(r, v, f, np.zeros_like(ends), **k),
    )


def done_off_by_one(patch: pytest.MonkeyPatch) -> None:
    def shifted(values: Any, **rest: Any) -> Any:
        ends = {name: later(rest[name]) for name in ("terminated", "truncated")}
        return following_values(values, **{**rest, **ends})

    patch.setattr(rollouts, "following_values", shifted)
    patch.setattr(
        rollouts,
        "generalized_advantages",
        lambda r, v, f, ends, **k: generalized_advantages(r, v, f, later(ends), **k),
    )


def advantage_sign(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(learner, "normalized", lambda advantages: -normalized(advantages))


def returns_are_advantages(patch: pytest.MonkeyPatch) -> None:
    right = Rollout.experience

    def wrong(self: Rollout, config: PPOConfig) -> Experience:
        found = right(self, config)
        return replace(found, returns=found.advantages)

    patch.setattr(Rollout, "experience", wrong)


def truncation_as_termination(patch: pytest.MonkeyPatch) -> None:
    def wrong(values: Any, **rest: Any) -> Any:
        ends = rest["terminated"] | rest["truncated"]
        return following_values(values, **{**rest, "terminated": ends})

    patch.setattr(rollouts, "following_values", wrong)


def inverted_ratio(patch: pytest.MonkeyPatch) -> None:
    def wrong(log_ratios: Any, advantages: Any, eps: float) -> Any:
        surrogate, slope = clipped_surrogate(-log_ratios, advantages, eps)
        return surrogate, -slope

    patch.setattr(objectives, "clipped_surrogate", wrong)


def larger_of_both(patch: pytest.MonkeyPatch) -> None:
    def wrong(log_ratios: Any, advantages: Any, eps: float) -> Any:
        plain = np.exp(log_ratios) * advantages
        clipped = np.clip(np.exp(log_ratios), 1 - eps, 1 + eps) * advantages
        inside = np.abs(np.exp(log_ratios) - 1) <= eps
        return np.maximum(plain, clipped), np.where((plain > clipped) | inside, plain, 0.0)

    patch.setattr(objectives, "clipped_surrogate", wrong)


def no_clip(patch: pytest.MonkeyPatch) -> None:
    def wrong(log_ratios: Any, advantages: Any, eps: float) -> Any:
        plain = np.exp(log_ratios) * advantages
        return plain, plain

    patch.setattr(objectives, "clipped_surrogate", wrong)


BUGS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (ignores_done, PROBES["const"]),
    (ignores_done, PROBES["two"]),
    (done_off_by_one, PROBES["two"]),
    (advantage_sign, PROBES["act"]),
    (advantage_sign, PROBES["both"]),
    (returns_are_advantages, PROBES["const"]),
    (returns_are_advantages, PROBES["obs"]),
    (truncation_as_termination, PROBES["trunc"]),
    (inverted_ratio, PROBES["act"]),
    (inverted_ratio, clip_unit),
    (larger_of_both, clip_unit),
    (no_clip, clip_unit),
]


@pytest.mark.parametrize(("plant", "check"), BUGS, ids=lambda one: one.__name__)
def test_a_planted_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()
