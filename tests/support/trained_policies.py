"""Policies that are trained for a moment, with their generator and environment."""

import numpy as np

from convergence_core.policy.learner import PPOState, train
from convergence_core.policy.rollout import EnvironmentStep, Offer
from convergence_core.policy.settings import PPOConfig

N = 8
CONFIG = PPOConfig(
    input_dim=1,
    action_dim=2,
    hidden_dim=64,
    learning_rate=3e-3,
    gamma=0.9,
    value_clip=None,
    entropy_coef=0.0,
    n_epochs=10,
    batch_size=64,
    buffer_size=32 * N,
)


class Ten:
    """Eight copies of an environment that pays 1 for each of ten steps and is then cut."""

    def offer(self) -> Offer:
        self.seen = np.zeros((N, 1))
        return Offer(observations=self.seen, legal=np.ones((N, 2), dtype=bool))

    def reset(self, rng: np.random.Generator) -> Offer:
        self.t = np.arange(N)
        return self.offer()

    def step(self, actions: np.ndarray) -> EnvironmentStep:
        self.t += 1
        ends = self.t >= 10
        self.t[ends] = 0
        return EnvironmentStep(
            offer=self.offer(),
            rewards=np.ones(N),
            terminated=np.zeros(N, dtype=bool),
            truncated=ends,
            final_observations=self.seen.copy(),
        )


def trained(seed: int, n_updates: int = 3) -> tuple[PPOState, np.random.Generator, Ten]:
    """Return a policy after some updates, its generator and its environment."""
    rng = np.random.default_rng(seed)
    state, environment = PPOState.begin(CONFIG, rng), Ten()
    for after, _, _ in train(state, environment, CONFIG, n_updates=n_updates, rng=rng):
        state = after
    return state, rng, environment
