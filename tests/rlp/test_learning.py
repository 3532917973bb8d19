"""The policy learns which thoughts predict, and nothing where rewards mean nothing."""

import json
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from convergence_core.records import canonical_json
from convergence_core.rlp.learner import RlpState
from tasks.mock.mock_server import MockServer
from tasks.rlp.elicited_channel import CHANNELS
from tasks.rlp.model_calls import Model
from tasks.rlp.probability_channels import Prediction, PredictionSide
from tests.rlp.thoughts import helps
from tests.rlp.tiny_wording import PlainAsker, TinyWords, with_model
from tests.rlp.tiny_worlds import (
    NOTHING,
    STRATEGIES,
    Read,
    World,
    any_world,
    mean_gain,
    outcomes_of,
    permuted,
    probabilities,
    run_course,
)

SEEDS = range(8)


@pytest.mark.statistical
@pytest.mark.slow
def test_the_policy_finds_the_thought_that_predicts():
    for seed in SEEDS:
        course = run_course(seed)
        p = probabilities(course.state)
        assert p["oracle"] >= 0.8, (seed, p)
        assert mean_gain(course.lessons[-10:]) >= 0.6, seed
        assert helps(course.state)
        assert course.state.weights.values[1 + STRATEGIES.index("oracle")] > 0.8
        assert 0.9 <= course.state.t_cal <= 1.2


@pytest.mark.statistical
@pytest.mark.slow
def test_over_the_wire_the_policy_learns_the_same():
    """The real client, the real server and its probabilities in place of the model in this process."""
    with MockServer() as server:
        found = run_course(0, n_generations=20, read=reading(server))
    alone = run_course(0, n_generations=20)
    assert [[*lesson.rewards] for lesson in found.lessons] == [
        [*lesson.rewards] for lesson in alone.lessons
    ]
    for lesson, expected in zip(found.lessons, alone.lessons, strict=True):
        assert [*lesson.rewards.values()] == pytest.approx([*expected.rewards.values()], abs=1e-4)
    assert [*probabilities(found.state).values()] == pytest.approx(
        [*probabilities(alone.state).values()], abs=1e-3
    )


@pytest.mark.statistical
@pytest.mark.slow
def test_over_the_wire_a_thought_is_worth_what_it_says():
    words = random.Random(3)
    gains: dict[str, list[float]] = {
        kind: [] for kind in ("oracle", "partial", "vague", "shuffled")
    }
    with MockServer() as server:
        read, worlds = reading(server), [any_world(random.Random(seed)) for seed in range(150)]
        oracles = [world.thought("oracle", words) for world in worlds]
        for i, world in enumerate(worlds):
            observed = outcomes_of(world).observed
            base = read(world, NOTHING)
            thoughts = {
                "oracle": oracles[i],
                "partial": world.thought("partial", words),
                "vague": world.thought("vague", words),
                "shuffled": oracles[i - 1],
            }
            for kind, thought in thoughts.items():
                told = read(world, thought)
                gains[kind] += [
                    float(np.log(told[s][b] / base[s][b])) for s, b in observed.items()
                ]
    mean = {kind: float(np.mean(found)) for kind, found in gains.items()}
    assert mean["oracle"] >= 0.9, mean
    assert 0.2 <= mean["partial"] <= 0.45, mean
    assert abs(mean["vague"]) <= 0.05, mean
    assert mean["shuffled"] <= -1.2, mean


def reading(server: MockServer) -> Read:
    """Return what reads forecasts off a server."""

    def read(world: World, thought: Sequence[str]) -> Mapping[str, np.ndarray]:
        parts = [world.prompt(trial, thought).partition(" cfg ") for trial in world.trials]
        questions = {f"c{i}": f"cfg {question}" for i, (_, _, question) in enumerate(parts)}
        arm = PredictionSide(label="arm", context=parts[0][0], questions=questions)

        async def work(model: Model) -> Prediction:
            return await CHANNELS["chat"](model, TinyWords()).predict(arm, PlainAsker())

        return with_model(server, work).forecasts

    return read


@pytest.mark.statistical
@pytest.mark.slow
def test_rewards_that_owe_nothing_to_the_strategy_teach_nothing():
    courses = [run_course(seed, bend=permuted) for seed in SEEDS]
    found = [list(probabilities(course.state).values()) for course in courses]
    mean = np.mean(found, axis=0)
    assert mean.max() <= 0.35, mean
    assert np.mean([mean_gain(course.lessons[-10:]) for course in courses]) < 0.2


def test_an_update_changes_the_parameters_and_a_reload_keeps_every_bit():
    course = run_course(1, n_generations=4)
    state = course.state
    assert state.policy.sha256 != RlpState.first(STRATEGIES).policy.sha256
    again = RlpState.from_json(json.loads(canonical_json(state.to_json())), {})
    s = np.linspace(-1.0, 1.0, 7)
    assert again.policy.probabilities(s).tobytes() == state.policy.probabilities(s).tobytes()
    assert again.policy.sha256 == state.policy.sha256
    assert canonical_json(again.to_json()) == canonical_json(state.to_json())
    with pytest.raises(ValueError, match="not a state"):
        RlpState.from_json({"a": 1}, {})


def test_the_same_seed_learns_the_same():
    first, second = run_course(3, n_generations=5), run_course(3, n_generations=5)
    assert canonical_json(first.state.to_json()) == canonical_json(second.state.to_json())


def test_silence_earns_nothing_and_failed_thoughts_earn_no_reward():
    course = run_course(2, n_generations=20)
    silent = [
        lesson.rewards[name]
        for lesson in course.lessons
        for name in lesson.rewards
        if name not in lesson.e_values
    ]
    assert silent
    assert set(silent) == {0.0}
