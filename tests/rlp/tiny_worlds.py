"""Worlds of the tiny language model as generations of RLP: thoughts of known worth, predictions."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from convergence_core.rlp.bins import N_BINS
from convergence_core.rlp.commitments import Commitment, Thought
from convergence_core.rlp.learner import RlpState, RlpUpdate, learn
from convergence_core.rlp.outcomes import CandidateOutcomes
from convergence_core.rlp.policy import N_FEATURES
from convergence_core.rlp.replay import Replay
from tasks.mock.tiny_model import (
    FIRST_BIN,
    Setting,
    Story,
    WorldTrial,
    any_setting,
    encode,
    outcome,
    think,
    tiny_model,
)

NOTHING = ("none",)
STRATEGIES = ("oracle", "partial", "vague", "foreign", "inverted")


@dataclass(frozen=True)
class World:
    """A hidden optimum, two trials told, and trials to be predicted."""

    optimum: Setting
    history: tuple[WorldTrial, ...]
    trials: tuple[WorldTrial, ...]

    def prompt(self, trial: WorldTrial, thought: Sequence[str]) -> str:
        story = Story(
            optimum=self.optimum,
            history=self.history,
            kind="none",
            thought=tuple(thought),
            trial=trial,
        )
        return story.prompt()

    def forecast(self, trial: WorldTrial, thought: Sequence[str]) -> np.ndarray:
        """The ten bins as the model expects them, (10,)."""
        row = tiny_model().row(encode(self.prompt(trial, thought)))
        bins = row[FIRST_BIN : FIRST_BIN + N_BINS]
        return np.asarray(bins / bins.sum())

    def thought(self, strategy: str, rng: random.Random) -> tuple[str, ...]:
        """What a strategy's thinker writes about this world."""
        match strategy:
            case "oracle" | "partial" | "vague":
                return think(self.optimum, strategy, rng)
            case "foreign":
                return think(any_setting(rng), "oracle", rng)
            case "inverted":
                turned = replace(self.optimum, temperature=10 - self.optimum.temperature)
                return think(turned, "oracle", rng)
            case _:
                raise ValueError(strategy)


def any_world(rng: random.Random, *, n_history: int = 2, n_trials: int = 4) -> World:
    optimum = any_setting(rng)

    def trial() -> WorldTrial:
        setting = any_setting(rng)
        return WorldTrial(setting=setting, outcome=outcome(setting, optimum, rng))

    history = tuple(trial() for _ in range(n_history))
    return World(optimum, history, tuple(trial() for _ in range(n_trials)))


def commit(
    state: RlpState,
    world: World,
    generation: int,
    *,
    n: int,
    rng: np.random.Generator,
    read: "Read | None" = None,
) -> Commitment:
    """Draw strategies, think and predict, as the tasks do over the wire.

    Args:
        read: forecasts of a world with a thought, in place of the model in this process.
    """
    s = np.zeros(N_FEATURES)
    s[0] = 1.0
    actions = state.policy.draw(s, n, rng)
    logs = state.policy.log_probabilities(s)
    words = random.Random(int(rng.integers(2**31)))
    thoughts, forecasts = [], {}
    for index, action in enumerate(actions):
        strategy = "none" if action == 0 else state.strategies[action - 1]
        text = NOTHING if action == 0 else world.thought(strategy, words)
        thought = Thought(
            thought_id=f"{generation}-{index}",
            generation=generation,
            index=index,
            action=action,
            strategy=strategy,
            log_old=float(logs[action]),
            text=" ".join(text),
        )
        thoughts.append(thought)
        if action:
            forecasts[thought.thought_id] = (read or by_subject)(world, text)
    silent = (read or by_subject)(world, NOTHING)
    return Commitment(
        generation=generation,
        state=s,
        thoughts=tuple(thoughts),
        estimator="echo",
        forecasts=forecasts,
        no_thought=silent,
        statistical={name: np.full(N_BINS, 1.0 / N_BINS) for name in silent},
        subjects=tuple(silent),
    )


def by_subject(world: World, text: Sequence[str]) -> dict[str, np.ndarray]:
    return {f"c{i}": world.forecast(t, text) for i, t in enumerate(world.trials)}


Read: TypeAlias = Callable[[World, Sequence[str]], Mapping[str, np.ndarray]]
"""What reads the forecasts of a world's trials with a thought."""


def outcomes_of(world: World) -> CandidateOutcomes:
    return CandidateOutcomes(observed={f"c{i}": t.outcome for i, t in enumerate(world.trials)})


def permuted(commitment: Commitment, _: World, rng: np.random.Generator) -> Commitment:
    """Rewards permuted among the thoughts of a generation: they owe nothing to the strategies."""
    names = [*commitment.forecasts]
    order = rng.permutation(len(names))
    forecasts = {
        name: commitment.forecasts[names[i]] for name, i in zip(names, order, strict=True)
    }
    return replace(commitment, forecasts=forecasts)


@dataclass
class Course:
    """What a run of generations ended with."""

    state: RlpState
    replay: Replay
    lessons: list[RlpUpdate]
    mean_policy: np.ndarray


def run_course(
    seed: int,
    *,
    n_generations: int = 60,
    bend: Callable[[Commitment, World, np.random.Generator], Commitment] | None = None,
    read: Read | None = None,
) -> Course:
    """Learn over worlds; ``bend`` changes a commitment before it is scored, ``read`` see ``commit``."""
    rng, worlds = np.random.default_rng(seed), random.Random(seed)
    state, replay = RlpState.first(STRATEGIES), Replay()
    lessons, policies = [], []
    s = np.zeros(N_FEATURES)
    s[0] = 1.0
    for generation in range(n_generations):
        world = any_world(worlds)
        commitment = commit(state, world, generation, n=4, rng=rng, read=read)
        if bend is not None:
            commitment = bend(commitment, world, rng)
        state, lesson, replay = learn(
            state,
            commitment,
            outcomes_of(world),
            next_features=s,
            rng=rng,
            replay=replay,
        )
        lessons.append(lesson)
        policies.append(state.policy.probabilities(s))
    return Course(state, replay, lessons, np.mean(policies, axis=0))


def mean_gain(lessons: Sequence[RlpUpdate]) -> float:
    """Mean reward of what was drawn, the silent ones included."""
    return float(np.mean([r for lesson in lessons for r in lesson.rewards.values()]))


def probabilities(state: RlpState) -> Mapping[str, float]:
    """The policy at the constant state, by name."""
    s = np.zeros(N_FEATURES)
    s[0] = 1.0
    names = ("none", *state.strategies)
    return dict(zip(names, state.policy.probabilities(s).tolist(), strict=True))
