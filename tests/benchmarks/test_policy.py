"""Benchmarks of the policy: dynamics, the known best, and what is learned."""

import numpy as np
import pytest

from benchmarks.policy.cartpole import LIMIT, SOLVED, CartPole, moved, solve
from benchmarks.policy.mutations import N_STEPS, Mutations, learn


def test_carts_move_as_gymnasium_moves_them():
    gymnasium = pytest.importorskip("gymnasium")
    theirs = gymnasium.make("CartPole-v1").unwrapped
    rng = np.random.default_rng(0)
    for seed in range(5):
        theirs.reset(seed=seed)
        ours = np.array([theirs.state])
        for _ in range(60):
            action = int(rng.integers(2))
            seen, _, terminated, _, _ = theirs.step(action)
            ours = moved(ours, np.array([action]))
            assert ours[0] == pytest.approx(np.array(theirs.state), abs=1e-12)
            assert ours[0].astype(np.float32) == pytest.approx(seen, abs=1e-6)
            if terminated:
                break


def test_a_pole_that_is_pushed_to_one_side_alone_falls():
    environment = CartPole(2)
    environment.reset(np.random.default_rng(0))
    lengths = np.zeros(2)
    for t in range(1, 12):
        step = environment.step(np.array([0, 1]))
        ended = step.terminated & (lengths == 0)
        lengths[ended] = t
        # Pushed to the left, a pole falls to the right; the next episode stands.
        assert (step.final_observations[ended, 2] * np.array([1, -1])[ended] > 0.2).all()
        assert (np.abs(step.offer.observations[ended]) <= 0.05).all()
    assert ((lengths >= 8) & (lengths <= 11)).all()


def test_a_pole_that_stands_for_500_steps_is_cut_and_not_fallen():
    environment = CartPole(1)
    environment.reset(np.random.default_rng(0))
    environment.t[:] = LIMIT - 1
    step = environment.step(np.array([0]))
    assert step.truncated.tolist() == [True]
    assert step.terminated.tolist() == [False]
    assert environment.t.tolist() == [0]


def test_random_and_best_mutations_score_what_the_table_says():
    environment = Mutations(4_000, world_seed=1)
    rng = np.random.default_rng(0)
    environment.reset(rng)
    category = environment.category.copy()
    drawn, best = np.zeros(4_000), np.zeros(4_000)
    for t in range(N_STEPS):
        best += environment.worth[category].max(axis=1)
        step = environment.step(rng.integers(5, size=4_000))
        drawn += step.rewards
        assert step.terminated.all() == (t == N_STEPS - 1)
    assert environment.best_score == pytest.approx(best.mean(), abs=0.02)
    assert environment.random_score == pytest.approx(
        drawn.mean(), abs=4 * drawn.std() / 4_000**0.5
    )


@pytest.mark.slow
def test_cartpole_is_solved_within_its_bar():
    found = solve(0)
    assert found.solved_at is not None
    assert found.last >= SOLVED
    assert found.greedy == 500.0


@pytest.mark.slow
def test_the_best_mutation_of_each_category_is_learned():
    found = learn(0)
    assert found.first_ratio_error < 1e-5
    assert found.greedy >= 0.96
    assert found.drawn >= 0.8
