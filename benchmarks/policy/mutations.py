"""Simulated choice of mutations: what a change of a prompt is worth depends on the prompt's category.

Prompts of eight categories are vectors of 1,536 numbers: the category's direction with as much noise as signal,
of length 1. Five changes in a row; each adds to the score what a table of category and change says. A random
choice and the best one are known exactly, so that a policy's share of the gap between them is.
"""

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.policy.cartpole import told
from convergence_core.policy import (
    EnvironmentStep,
    Offer,
    PPOConfig,
    PPOState,
    choose,
    train,
)

N_CATEGORIES, N_ACTIONS, N_STEPS, DIMENSION = 8, 5, 5, 1536
COPIES = 64
STEPS = 20_480
CONFIG = PPOConfig(input_dim=DIMENSION, action_dim=N_ACTIONS, total_steps=STEPS)
"""The defaults, and a rate that falls to 0 at the end."""


class Mutations:
    """Copies of the task; the world is drawn from a seed of its own."""

    def __init__(self, n: int, world_seed: int) -> None:
        world = np.random.default_rng([77, world_seed])
        self.n = n
        self.worth = world.normal(0.03, 0.08, size=(N_CATEGORIES, N_ACTIONS))
        """Gain of a change, (n_categories, n_actions)."""
        directions = world.normal(size=(N_CATEGORIES, DIMENSION))
        self._directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        self._rng = world
        self.category = np.zeros(n, dtype=np.int64)
        self._observations = np.zeros((n, DIMENSION), dtype=np.float32)
        self._t = 0

    @property
    def random_score(self) -> float:
        """Mean score of uniform choices."""
        return N_STEPS * float(self.worth.mean())

    @property
    def best_score(self) -> float:
        """Mean score of the best choices."""
        return N_STEPS * float(self.worth.max(axis=1).mean())

    def _begin(self) -> Offer:
        self.category = self._rng.integers(N_CATEGORIES, size=self.n)
        noise = self._rng.normal(scale=DIMENSION**-0.5, size=(self.n, DIMENSION))
        seen = self._directions[self.category] + noise
        seen /= np.linalg.norm(seen, axis=1, keepdims=True)
        self._observations, self._t = seen.astype(np.float32), 0
        return self._offer()

    def _offer(self) -> Offer:
        return Offer(
            observations=self._observations, legal=np.ones((self.n, N_ACTIONS), dtype=bool)
        )

    def reset(self, rng: np.random.Generator) -> Offer:
        """Draw a prompt for each copy."""
        self._rng = rng
        return self._begin()

    def step(self, actions: np.ndarray) -> EnvironmentStep:
        """Change each prompt; the fifth change ends the episode."""
        rewards = self.worth[self.category, actions]
        self._t += 1
        over = self._t == N_STEPS
        final = self._observations
        return EnvironmentStep(
            offer=self._begin() if over else self._offer(),
            rewards=rewards,
            terminated=np.full(self.n, over),
            truncated=np.zeros(self.n, dtype=bool),
            final_observations=final,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one seed learned."""

    random_score: float
    best_score: float
    drawn: float
    """Share of the gap from random to best, of drawn actions on 2,000 new prompts."""
    greedy: float
    """The same of the likeliest actions."""
    first_ratio_error: float
    """Largest over the updates."""
    cpu_s: float
    """Of the training."""


def learn(seed: int, n_steps: int = STEPS) -> Share:
    """Train on one world."""
    rng = np.random.default_rng(seed)
    environment = Mutations(COPIES, seed)
    began = time.process_time()
    state, errors = PPOState.begin(CONFIG, rng), []
    updates = n_steps // (CONFIG.buffer_size // COPIES * COPIES)
    for after, _, seen in train(state, environment, CONFIG, n_updates=updates, rng=rng):
        state = after
        errors.append(seen.first_ratio_error)
    cpu_s = time.process_time() - began
    gap = environment.best_score - environment.random_score
    shares = [
        (score(state, seed, drawn=drawn) - environment.random_score) / gap
        for drawn in (True, False)
    ]
    return Share(
        random_score=environment.random_score,
        best_score=environment.best_score,
        drawn=shares[0],
        greedy=shares[1],
        first_ratio_error=max(errors),
        cpu_s=cpu_s,
    )


def score(state: PPOState, seed: int, *, drawn: bool, n: int = 2_000) -> float:
    """Return the mean score of new prompts, weighted so that each category counts the same."""
    rng = np.random.default_rng([5, seed])
    environment = Mutations(n, seed)
    offer = environment.reset(rng)
    category, total = environment.category.copy(), np.zeros(n)
    for _ in range(N_STEPS):
        step = environment.step(choose(state.networks, offer, rng if drawn else None).actions)
        total += step.rewards
        offer = step.offer
    return float(np.mean([total[category == one].mean() for one in range(N_CATEGORIES)]))


def report(n_seeds: int) -> None:
    """Print a table of seeds."""
    print("| seed | random | best | share of the gap, drawn | greedy | CPU s |")
    print("|---|---|---|---|---|---|")
    drawn, greedy = [], []
    for seed in range(n_seeds):
        one = learn(seed)
        drawn.append(one.drawn)
        greedy.append(one.greedy)
        print(
            f"| {seed} | {one.random_score:.3f} | {one.best_score:.3f} | {one.drawn:.3f} "
            f"| {one.greedy:.3f} | {one.cpu_s:.1f} |",
            flush=True,
        )
    print(f"| mean | | | {told(drawn)} | {told(greedy)} | |")
