"""Proximal policy optimization: gradients, advantages, clipping, and bugs that must not pass."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from convergence_core.policy.advantage import following_values
from convergence_core.policy.distribution import MaskedCategorical
from convergence_core.policy.learner import PPOState, improve
from convergence_core.policy.network import ActorCritic
from convergence_core.policy.objective import (
    Experience,
    divergence,
    normalized,
    objective,
    value_errors,
)
from convergence_core.policy.rollout import Offer, Rollout, choose
from convergence_core.policy.settings import PPOConfig

SMALL = PPOConfig(
    input_dim=3, action_dim=4, hidden_dim=6, entropy_coef=0.05, batch_size=16, buffer_size=48
)


def experience(
    n: int, config: PPOConfig, rng: np.random.Generator, networks: ActorCritic
) -> Experience:
    """Return masked choices of a policy somewhat older than ``networks``, in double precision."""
    legal = rng.random((n, config.action_dim)) < 0.6
    legal[np.arange(n), rng.integers(config.action_dim, size=n)] = True
    offer = Offer(observations=rng.normal(size=(n, config.input_dim)), legal=legal)
    choice = choose(networks, offer, rng)
    return Experience(
        observations=offer.observations,
        legal=legal,
        actions=choice.actions,
        log_probs=choice.log_probs + rng.normal(scale=0.3, size=n),
        values=choice.values + rng.normal(scale=0.3, size=n),
        advantages=rng.normal(size=n),
        returns=rng.normal(size=n),
    )


def a_rollout(
    state: PPOState, config: PPOConfig, rng: np.random.Generator, *, n_steps: int = 12, n: int = 4
) -> Rollout:
    """Return a rollout of random observations, masks, rewards and ends."""
    steps = (n_steps, n)
    legal = rng.random((*steps, config.action_dim)) < 0.6
    legal[..., -1] = True
    observations = rng.normal(size=(*steps, config.input_dim)).astype(state.networks.flat.dtype)
    flat = Offer(
        observations=observations.reshape(-1, config.input_dim),
        legal=legal.reshape(-1, config.action_dim),
    )
    choice = choose(state.networks, flat, rng)
    ends = rng.random(steps) < 0.15
    cut = ends & (rng.random(steps) < 0.5)
    return Rollout(
        version=state.version,
        observations=observations,
        legal=legal,
        actions=choice.actions.reshape(steps),
        log_probs=choice.log_probs.reshape(steps),
        values=choice.values.reshape(steps),
        rewards=rng.normal(size=steps),
        terminated=ends & ~cut,
        truncated=cut,
        final_values=np.where(cut, rng.normal(size=steps), 0.0),
        last_values=rng.normal(size=n),
    )


@pytest.mark.parametrize("value_clip", [None, 0.2])
def test_gradients_equal_finite_differences(value_clip: float | None):
    config = replace(SMALL, value_clip=value_clip)
    rng = np.random.default_rng(3)
    networks = ActorCritic.begin(3, config.hidden_sizes, 4, rng, dtype=np.float64)
    networks.flat[:] += rng.normal(scale=0.3, size=networks.flat.size)
    batch = experience(40, config, rng, networks)
    gradient = networks.copied()
    objective(networks, batch, config, gradient)
    h, scratch = 1e-6, networks.copied()
    for place in range(networks.flat.size):
        moved = networks.copied()
        moved.flat[place] += h
        up = objective(moved, batch, config, scratch).loss
        moved.flat[place] -= 2 * h
        down = objective(moved, batch, config, scratch).loss
        assert gradient.flat[place] == pytest.approx((up - down) / (2 * h), abs=2e-8, rel=1e-5)


def brute_force(rollout: Rollout, gamma: float, lam: float) -> np.ndarray:
    """Sum the discounted deltas of each trajectory, step by step."""
    n_steps, n = rollout.actions.shape
    found = np.zeros((n_steps, n))
    for column in range(n):
        for t in range(n_steps):
            weight = 1.0
            for later in range(t, n_steps):
                if rollout.terminated[later, column]:
                    following = 0.0
                elif rollout.truncated[later, column]:
                    following = rollout.final_values[later, column]
                elif later + 1 < n_steps:
                    following = rollout.values[later + 1, column]
                else:
                    following = rollout.last_values[column]
                delta = (
                    rollout.rewards[later, column]
                    + gamma * following
                    - rollout.values[later, column]
                )
                found[t, column] += weight * delta
                if rollout.terminated[later, column] or rollout.truncated[later, column]:
                    break
                weight *= gamma * lam
    return found


def test_advantages_equal_their_definition():
    rng = np.random.default_rng(0)
    state = PPOState.begin(SMALL, rng, dtype=np.float64)
    rollout = a_rollout(state, SMALL, rng, n_steps=37, n=3)
    assert rollout.terminated.any()
    assert rollout.truncated.any()
    found = rollout.experience(SMALL)
    expected = brute_force(rollout, SMALL.gamma, SMALL.gae_lambda)
    assert found.advantages == pytest.approx(expected.ravel(), abs=1e-12)
    assert found.returns == pytest.approx((expected + rollout.values).ravel(), abs=1e-12)


def test_a_step_that_terminates_and_is_cut_earns_nothing_more():
    yes = np.ones((1, 1), dtype=bool)
    found = following_values(
        np.ones((1, 1)),
        terminated=yes,
        truncated=yes,
        final_values=np.full((1, 1), 7.0),
        last_values=np.ones(1),
    )
    assert found.tolist() == [[0.0]]


def test_the_ratio_is_one_before_anything_is_learned():
    rng = np.random.default_rng(5)
    state = PPOState.begin(SMALL, rng, dtype=np.float64)
    _, seen = improve(state, a_rollout(state, SMALL, rng), SMALL, rng)
    assert seen.first_ratio_error < 1e-12
    # A minibatch as large as the choice multiplies in the same order: not even rounding is left.
    whole = replace(SMALL, batch_size=48, n_epochs=1)
    rollout = a_rollout(state, whole, rng)
    same = rollout.experience(whole)
    terms = objective(state.networks, same, whole, state.networks.copied())
    assert terms.ratio_error == 0.0
    assert terms.kl == 0.0
    assert terms.clip_fraction == 0.0


@pytest.mark.parametrize("stale", ["log_probs", "mask"])
def test_the_ratio_tells_a_stale_log_probability_and_another_mask(stale: str):
    rng = np.random.default_rng(5)
    state = PPOState.begin(SMALL, rng)
    rollout = a_rollout(state, SMALL, rng)
    wrong = (
        replace(rollout, log_probs=rollout.log_probs + 0.1)
        if stale == "log_probs"
        else replace(rollout, legal=np.ones_like(rollout.legal))
    )
    _, seen = improve(state, wrong, SMALL, rng)
    assert seen.first_ratio_error > 0.05


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.0, 1.0, 80.0, 1e4]))
def test_an_illegal_action_has_probability_and_gradient_zero(seed: int, scale: float):
    rng = np.random.default_rng(seed)
    legal = rng.random((9, 5)) < 0.5
    legal[np.arange(9), rng.integers(5, size=9)] = True
    logits = (scale * rng.normal(size=(9, 5))).astype(np.float32)
    found = MaskedCategorical.of(logits, legal)
    assert (found.probabilities[~legal] == 0.0).all()
    assert found.probabilities.sum(axis=1) == pytest.approx(np.ones(9), abs=1e-6)
    assert np.isfinite(found.entropy).all()
    assert (found.entropy <= np.log(legal.sum(axis=1)) + 1e-6).all()
    actions = found.sample(rng)
    assert legal[np.arange(9), actions].all()
    assert legal[np.arange(9), found.mode()].all()
    slopes = rng.normal(size=(2, 9)).astype(np.float32)
    gradient = found.gradient(actions, slopes[0], slopes[1])
    assert (gradient[~legal] == 0.0).all()
    assert np.isfinite(gradient).all()


def test_actions_are_drawn_as_often_as_their_probabilities_say():
    logits = np.tile(np.log([[0.5, 0.3, 0.2, 7.0]]), (20_000, 1))
    legal = np.tile([[True, True, True, False]], (20_000, 1))
    drawn = MaskedCategorical.of(logits, legal).sample(np.random.default_rng(1))
    shares = np.bincount(drawn, minlength=4) / 20_000
    # Four standard errors of a share of one half.
    assert shares == pytest.approx([0.5, 0.3, 0.2, 0.0], abs=4 * 0.5 / np.sqrt(20_000))


def test_a_row_without_a_legal_action_is_refused():
    with pytest.raises(ValueError, match="must allow an action in each row"):
        MaskedCategorical.of(np.zeros((2, 3)), np.array([[True] * 3, [False] * 3]))


@pytest.mark.parametrize("batch_size", [1, 47])
def test_constant_rewards_and_minibatches_of_one_learn_finite_weights(batch_size: int):
    config = replace(SMALL, batch_size=batch_size)
    rng = np.random.default_rng(2)
    state = PPOState.begin(config, rng)
    rollout = a_rollout(state, config, rng)
    equal = replace(
        rollout,
        rewards=np.ones_like(rollout.rewards),
        values=np.zeros_like(rollout.values),
        terminated=np.ones_like(rollout.terminated),
    )
    after, seen = improve(state, equal, config, rng)
    assert np.isfinite(after.networks.flat).all()
    assert np.isfinite([seen.policy_loss, seen.value_loss, seen.entropy, seen.gradient_norm]).all()
    assert seen.explained_variance is None, "equal returns have no variance to explain"
    assert seen.n_minibatches == 4 * -(-48 // batch_size)


def test_a_value_moves_no_farther_than_its_clip():
    old, returns = np.zeros(4), np.array([1.0, 1.0, 1.0, -1.0])
    values = np.array([0.1, 0.5, -0.5, -0.5])
    squares, slopes = value_errors(values, old, returns, 0.2)
    assert squares == pytest.approx([0.81, 0.64, 2.25, 0.64])
    assert slopes == pytest.approx([-1.8, 0.0, -3.0, 0.0]), "held beyond the clip, free to return"
    assert value_errors(values, old, returns, None)[1] == pytest.approx(2 * (values - returns))


def test_the_divergence_is_never_negative_and_nearly_half_the_square():
    ratios = np.random.default_rng(0).normal(scale=1e-3, size=1_000)
    assert divergence(ratios) == pytest.approx(np.mean(ratios**2) / 2, rel=0.02)
    assert divergence(np.zeros(3)) == 0.0


def test_an_update_stops_where_the_policy_has_moved_too_far():
    rng = np.random.default_rng(4)
    bold = replace(SMALL, learning_rate=0.05, n_epochs=30)
    state = PPOState.begin(bold, rng)
    rollout = a_rollout(state, bold, rng)
    _, free = improve(state, rollout, bold, np.random.default_rng(1))
    after, held = improve(state, rollout, replace(bold, target_kl=0.01), np.random.default_rng(1))
    assert not free.stopped_early
    assert free.n_minibatches == 90
    assert held.stopped_early
    assert held.n_minibatches < 90
    assert held.kl > 0.015
    assert after.n_gradient_steps == held.n_minibatches


def test_a_long_gradient_is_scaled_down_over_both_networks():
    rng = np.random.default_rng(4)
    state = PPOState.begin(SMALL, rng)
    rollout = a_rollout(state, SMALL, rng)
    huge = replace(rollout, rewards=1e4 * rollout.rewards)
    one = replace(SMALL, n_epochs=1, batch_size=48, value_clip=None)
    after, seen = improve(state, huge, one, rng)
    assert seen.gradient_norm > 100.0
    # After one step Adam's m is a tenth of the gradient.
    assert np.linalg.norm(10 * after.first_moment) == pytest.approx(0.5, rel=1e-4)


def test_the_rate_falls_linearly_to_zero_or_with_the_root_of_the_steps_where_no_end_is_known():
    config = replace(SMALL, total_steps=100)
    assert [config.rate(n) for n in (0, 50, 100, 150)] == [3e-4, 1.5e-4, 0.0, 0.0]
    known = [SMALL.rate(rollouts * SMALL.buffer_size) for rollouts in (0, 10, 40, 1_000)]
    assert known == pytest.approx([3e-4, 3e-4, 1.5e-4, 3e-5])


def test_adam_equals_its_definition():
    rng = np.random.default_rng(6)
    state = PPOState.begin(SMALL, rng, dtype=np.float64)
    config = replace(SMALL, n_epochs=2, batch_size=48)
    rollout = a_rollout(state, config, rng)
    after, _ = improve(state, rollout, config, np.random.default_rng(9))
    theta, m, v = state.networks.copied(), 0.0, 0.0
    draws = np.random.default_rng(9)
    whole = rollout.experience(config)
    for t in (1, 2):
        batch = whole.rows(draws.permutation(48))
        gradient = theta.copied()
        objective(theta, replace(batch, advantages=normalized(batch.advantages)), config, gradient)
        g: Any = gradient.flat * min(1.0, 0.5 / float(np.linalg.norm(gradient.flat)))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        theta.flat[:] -= 3e-4 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-5)
    assert after.networks.flat == pytest.approx(theta.flat, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_dim", 0), ("action_dim", 1.5), ("hidden_dim", 1), ("learning_rate", 0.0), ("total_steps", 0),
        ("gamma", 1.01), ("gae_lambda", -0.1), ("eps_clip", 0.0), ("value_clip", -1.0),
        ("entropy_coef", float("nan")), ("target_kl", float("inf")), ("batch_size", True),
    ],
)  # fmt: skip
def test_a_setting_out_of_range_is_refused_by_its_name(name: str, value: Any):
    with pytest.raises(ValueError, match=f"`{name}` must be .* but got"):
        PPOConfig(**{name: value})


def test_layers_begin_orthogonal_and_the_first_policy_nearly_uniform():
    networks = ActorCritic.begin(20, (16, 16, 8), 5, np.random.default_rng(0), dtype=np.float64)
    heads = {"policy": 0.01, "value": 1.0}
    for name, network in (("policy", networks.policy), ("value", networks.value)):
        for weights in network.weights[:-1]:
            assert weights.T @ weights == pytest.approx(2.0 * np.eye(weights.shape[1]), abs=1e-12)
        head = network.weights[-1]
        assert head.T @ head == pytest.approx(heads[name] ** 2 * np.eye(head.shape[1]), abs=1e-12)
        assert all((one == 0.0).all() for one in network.biases)
    offer = Offer(
        observations=np.random.default_rng(1).normal(size=(50, 20)),
        legal=np.ones((50, 5), dtype=bool),
    )
    assert choose(networks, offer).probabilities == pytest.approx(np.full((50, 5), 0.2), abs=0.02)


def test_only_steps_of_the_current_policy_are_learned_from():
    rng = np.random.default_rng(0)
    state = PPOState.begin(SMALL, rng)
    rollout = a_rollout(state, SMALL, rng)
    after, _ = improve(state, rollout, SMALL, rng)
    with pytest.raises(ValueError, match="version 1, but got version 0"):
        improve(after, rollout, SMALL, rng)
