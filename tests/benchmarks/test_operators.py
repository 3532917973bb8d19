"""Breeding operators chosen by a policy: what it sees, does, and keeps for PPO."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.optimizer.emphasis import (
    ACTIONS,
    EMPHASES,
    STATE_DIM,
    EmphasisStep,
    LearnedEmphasis,
    legal_actions,
)
from benchmarks.optimizer.operator_table import (
    LABELS,
    differences,
    mean_with_half_width,
    table,
)
from benchmarks.optimizer.operators import IDENTITY, SETTINGS, trained, uniform
from benchmarks.optimizer.opponents.base import Setup
from benchmarks.optimizer.records import Row
from benchmarks.optimizer.reporting import Results
from benchmarks.optimizer.spaces import Space as ProblemSpace, real
from benchmarks.optimizer.train_operators import HELD_OUT, TRAINED_ON, play, rollout_of
from convergence_core.policy import PPOConfig, PPOState, improve, pack, unpack
from convergence_core.policy.network import ActorCritic
from convergence_core.search.meta_optimizer import META_KEY
from convergence_core.search.sampler import SearchState
from convergence_core.search.samplers import ThompsonSampler
from convergence_core.space import Choice, Float, Space
from convergence_core.space.arrays import Encoding
from tests.support.operator_choices import memory_of, outcome, sampler, searched


def networks(seed: int = 0) -> ActorCritic:
    config = PPOConfig(input_dim=STATE_DIM, action_dim=len(ACTIONS), hidden_dim=8)
    return PPOState.begin(config, np.random.default_rng(seed)).networks


def policy_sampler() -> ThompsonSampler:
    """Return the default sampler with operators by a policy that has learned nothing."""
    chooser = LearnedEmphasis(networks=networks(), n_generations=6)
    return replace(sampler("fixed"), meta_optimizer=chooser)


def test_every_emphasis_but_the_balanced_one_is_a_mix_of_its_own():
    assert EMPHASES["balanced"] is None
    mixes = [mix for mix in EMPHASES.values() if mix is not None]
    assert len({(mix.shares, mix.exploration) for mix in mixes}) == len(ACTIONS) - 1


def test_a_policy_keeps_what_ppo_must_know_of_its_steps():
    states, _ = searched(policy_sampler())
    entry: Any = states[-1].memory[META_KEY]
    steps = [EmphasisStep.from_json(step) for step in entry["steps"]]
    assert len(steps) == 5  # one choice before each generation but the first
    assert all(
        np.isfinite(step.state).all() and step.state.shape == (STATE_DIM,) for step in steps
    )
    assert all(
        step.legal[step.action] and step.reward >= 0 and step.log_prob < 0 for step in steps
    )
    assert steps[0].state[0] == pytest.approx(1 / 6)
    assert any(step.reward > 0 for step in steps)


def test_the_reward_of_a_choice_is_the_leaders_gain_per_evaluation():
    chooser = LearnedEmphasis(networks=networks(), n_generations=6)
    memory = memory_of(chooser.learn({}, outcome([], [])))
    half = replace(outcome([], [], of_leader=0.8), n_cells=150)
    entry: Any = chooser.learn(memory, half)
    assert [EmphasisStep.from_json(step).reward for step in entry["steps"]] == [pytest.approx(1.6)]
    assert entry["n_flat"] == 0
    assert chooser.learn(memory_of(entry), outcome([], []))["n_flat"] == 1


def test_a_policy_that_was_told_one_action_takes_it():
    told = networks()
    told.policy.biases[-1][:] = [0.0, 0.0, 60.0, 0.0, 0.0, 0.0]
    chooser = LearnedEmphasis(networks=told, n_generations=6)
    memory = memory_of(chooser.learn({}, outcome([], [])))
    assert chooser.mix(memory) == EMPHASES["crossover"]


@pytest.mark.parametrize(
    ("parameters", "illegal"),
    [
        ({"a": Choice(kind="categorical", choices=("p", "q"))}, {"crossover", "large_step"}),
        ({"x": Float(min=0.0, max=1.0)}, {"crossover"}),
        (
            {"x": Float(min=0.0, max=1.0), "a": Choice(kind="categorical", choices=("p", "q"))},
            set(),
        ),
    ],
)
def test_what_would_do_nothing_of_its_own_is_not_offered(parameters, illegal):
    found = outcome([], [])
    encoding = Encoding.of(Space(parameters=parameters))
    legal = legal_actions(
        replace(found, competitors=replace(found.competitors, encoding=encoding))
    )
    assert {name for name, is_legal in zip(ACTIONS, legal, strict=True) if not is_legal} == illegal


@pytest.mark.parametrize("broken", [None, [], [1], "x", [[0.0], [True], 0, 0, 0, 0]])
def test_a_step_that_was_not_written_by_us_is_refused(broken):
    with pytest.raises(ValueError, match="not a step"):
        EmphasisStep.from_json(broken)


def test_a_search_that_is_taken_up_from_its_state_makes_the_same_choices():
    states, _ = searched(policy_sampler(), 4)
    again, _ = searched(policy_sampler(), 4)
    assert again[-1].memory[META_KEY] == states[-1].memory[META_KEY]
    stored = SearchState.from_json(json.loads(json.dumps(states[-1].to_json())))
    chooser: Any = policy_sampler().meta_optimizer
    assert chooser.mix(stored.memory) == chooser.mix(states[-1].memory)


def test_no_task_is_trained_on_and_held_out():
    assert len(TRAINED_ON) == len(HELD_OUT) == 11
    sets = [{name.partition(":")[2] for name in half} for half in (TRAINED_ON, HELD_OUT)]
    assert not sets[0] & sets[1]


def test_ppo_learns_from_whole_runs():
    state = PPOState.begin(SETTINGS, np.random.default_rng(0))
    runs = [play("fn0:rastrigin-5", seed, state.networks) for seed in (1_000, 1_001)]
    assert [len(run) for run in runs] == [9, 9]
    rollout = rollout_of(runs, state.version)
    assert rollout.terminated.sum(axis=0).tolist() == [1, 1]
    after, found = improve(state, rollout, SETTINGS, np.random.default_rng(0))
    assert found.first_ratio_error < 1e-5  # the steps are those that this policy chose
    assert found.n_steps == 18
    loaded, _, _ = unpack(pack(after, SETTINGS, IDENTITY), IDENTITY)
    assert np.array_equal(loaded.networks.flat, after.networks.flat)


def test_an_interval_over_tasks_is_that_of_its_strata():
    by_task = {"a": [1.0, 3.0], "b": [2.0, 2.0, 5.0]}
    mean, half = mean_with_half_width(by_task)
    assert mean == pytest.approx((2.0 + 3.0) / 2)
    parts = np.array([2.0 / 2 / 4, 3.0 / 3 / 4])
    freedom = parts.sum() ** 2 / (parts[0] ** 2 / 1 + parts[1] ** 2 / 2)
    assert half == pytest.approx(stats.t.ppf(0.975, freedom) * np.sqrt(parts.sum()))
    assert mean_with_half_width({"a": [1.0, 1.0]}) == (1.0, 0.0)
    with pytest.raises(ValueError, match="two seeds"):
        mean_with_half_width({"a": [1.0]})


def test_differences_are_paired_by_task_and_seed():
    fixed = {("a", 0): 0.1, ("a", 1): 0.2, ("b", 0): 0.5}
    runs = {("a", 1): 0.3, ("a", 0): 0.1, ("b", 1): 0.9}
    found = differences(runs, fixed, ("a", "b"))
    assert found == {"a": [pytest.approx(0.0), pytest.approx(10.0)]}


def test_the_stored_policy_is_read_and_chooses():
    space = ProblemSpace([real("x", 0.0, 1.0)])
    setup = Setup(space=space, seed=0, batch=10, budget=100)
    chooser = trained(setup)
    assert chooser.n_generations == 10
    entry = chooser.learn({}, outcome([], []))
    assert EmphasisStep.from_json(entry["pending"]).log_prob < 0
    assert not np.array_equal(chooser.networks.flat, uniform(setup).networks.flat)


def row(opponent: str, task: str, seed: int) -> Row:
    return Row(
        opponent=opponent,
        task=task,
        suite="suite",
        seed=seed,
        budget=100,
        true=0.0,
        true_best_seen=None,
        true_picked=None,
        n_points=1,
        n_cells=1,
        ask_ms=0.0,
        tell_ms=0.0,
        recommend_ms=0.0,
        worst_batch_ms=0.0,
    )


def test_the_table_counts_what_all_choosers_have_run():
    tasks = (*TRAINED_ON, *HELD_OUT)
    runs = {
        name: {(task, seed): 0.1 * i + 0.01 * seed for task in tasks for seed in range(2)}
        for i, name in enumerate(LABELS)
    }
    runs["ours"][tasks[0], 2] = 9.0  # nobody else has run that seed
    rows = tuple(row(name, task, seed) for name, own in runs.items() for task, seed in own)
    regrets = {(name, 100): own for name, own in runs.items()}
    results = Results(rows=rows, regrets=regrets, suite_of=dict.fromkeys(tasks, "suite"))
    found = table(results)
    assert "| `fixed` | 0.5 | - | - | - |" in found
    assert "| emphasis by PPO | 30.5 | +30.0 ± 0.0 | +30.0 ± 0.0 | +30.0 ± 0.0 |" in found
    assert "22 tasks, 2 seeds each, 100 evaluations" in found
    assert "21 tasks" in table(results, [HELD_OUT[0]])
