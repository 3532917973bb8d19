"""Demonstration of the policy, or its service.

::

    python -m convergence.policy                 # trains on simulated prompts, without a service
    python -m convergence.policy --server 8765   # starts `convergence policy serve` on this port
"""

import argparse
import os
import sys

import numpy as np

from convergence.__main__ import run
from convergence_core.policy.distribution import Ints
from convergence_core.policy.learner import PPOState, train
from convergence_core.policy.prompt_state import N_PROGRESS, PROMPT_ACTIONS, STOP, PromptEpisode
from convergence_core.policy.rollout import EnvironmentStep, Offer
from convergence_core.policy.settings import PPOConfig

_COPIES = 32
_CATEGORIES = 8
_DIM = 64
_UPDATES = 8


class _SimulatedPrompts:
    """Episodes of prompts whose embedding is that of their category, which decides what a change gains."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._embeddings = rng, rng.normal(size=(_CATEGORIES, _DIM))
        self._gains = rng.normal(0.03, 0.08, size=(_CATEGORIES, len(PROMPT_ACTIONS)))

    def reset(self, rng: np.random.Generator) -> Offer:
        """Begin an episode in each copy."""
        self._rng = rng
        self._copies = [self._begun() for _ in range(_COPIES)]
        return self._offer()

    def step(self, actions: Ints) -> EnvironmentStep:
        """Apply a change in each copy; ``stop`` and the last step end an episode."""
        rewards, ends = np.zeros(_COPIES), np.zeros(_COPIES, dtype=bool)
        for k, action in enumerate(actions):
            category, episode = self._copies[k]
            name, before = PROMPT_ACTIONS[action], episode.score or 0.0
            if name != STOP:
                score = float(np.clip(before + self._gains[category, action], 0.0, 1.0))
                episode = PromptEpisode(history=(*episode.history, name), score=score)
                self._copies[k], rewards[k] = (category, episode), score - before
            ends[k] = name == STOP or len(episode.history) == episode.max_steps
        final = self._offer().observations
        for k in np.flatnonzero(ends).tolist():
            self._copies[k] = self._begun()
        return EnvironmentStep(
            offer=self._offer(),
            rewards=rewards,
            terminated=ends,
            truncated=np.zeros_like(ends),
            final_observations=final,
        )

    def _begun(self) -> tuple[int, PromptEpisode]:
        return int(self._rng.integers(_CATEGORIES)), PromptEpisode(score=0.5)

    def _offer(self) -> Offer:
        seen = [episode.observation(self._embeddings[c]) for c, episode in self._copies]
        legal = [episode.legal() for _, episode in self._copies]
        return Offer(observations=np.stack(seen), legal=np.stack(legal))


def demonstrate() -> None:
    """Train a policy on simulated prompts, and print the mean reward of each update."""
    rng = np.random.default_rng(0)
    config = PPOConfig(
        input_dim=_DIM + N_PROGRESS,
        action_dim=len(PROMPT_ACTIONS),
        buffer_size=1024,
        learning_rate=1e-3,
    )
    prompts, state = _SimulatedPrompts(rng), PPOState.begin(config, rng)
    print("Simulated prompts: no service, no model.")
    for _, rollout, statistics in train(state, prompts, config, n_updates=_UPDATES, rng=rng):
        mean = float(rollout.rewards.sum()) / max(1, int(rollout.terminated.sum()))
        print(f"update {statistics.version}: mean reward of an episode {mean:+.3f}")


if __name__ == "__main__":
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        # Our matrices are small, and a second BLAS thread spends more time waiting than computing.
        # NumPy reads this variable when it loads, which has already happened.
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "convergence.policy", *sys.argv[1:]])  # noqa: S606 - this program
    parser = argparse.ArgumentParser(prog="python -m convergence.policy")
    parser.add_argument(
        "--server", type=int, metavar="PORT", help="start the service on this port"
    )
    port = parser.parse_args().server
    if port is None:
        demonstrate()
    else:
        sys.exit(run(["policy", "serve", "--port", str(port)]))
