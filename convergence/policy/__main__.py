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
from convergence_core.policy.learner import PPOState, train
from convergence_core.policy.prompt_environment import PromptEnvironment, PromptEnvironments
from convergence_core.policy.prompt_state import PROMPT_ACTIONS
from convergence_core.policy.settings import PPOConfig
from tasks.policy.prompt_worlds import SimulatedPrompts

_COPIES = 32
_UPDATES = 8


def demonstrate() -> None:
    """Train a policy on simulated prompts, and print the mean reward of each update."""
    world, rng = SimulatedPrompts(), np.random.default_rng(0)
    copies = [PromptEnvironment(world) for _ in range(_COPIES)]
    config = PPOConfig(
        input_dim=copies[0].dim,
        action_dim=len(PROMPT_ACTIONS),
        buffer_size=1024,
        learning_rate=1e-3,
    )
    state = PPOState.begin(config, rng)
    print("Simulated prompts: no service, no model.")
    environments = PromptEnvironments(copies)
    for _, rollout, statistics in train(state, environments, config, n_updates=_UPDATES, rng=rng):
        n_episodes = max(1, int(rollout.terminated.sum()))
        mean = float(rollout.rewards.sum()) / n_episodes
        print(f"update {statistics.version}: mean reward of an episode {mean:+.3f}")


if __name__ == "__main__":
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        # Our matrices are small, and a second BLAS thread spends more time waiting for work than doing it.
        # NumPy reads this when it is loaded, which the package has done by now.
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "convergence.policy", *sys.argv[1:]])  # noqa: S606 - itself
    parser = argparse.ArgumentParser(prog="python -m convergence.policy")
    parser.add_argument(
        "--server", type=int, metavar="PORT", help="start the service on this port"
    )
    port = parser.parse_args().server
    if port is None:
        demonstrate()
    else:
        sys.exit(run(["policy", "serve", "--port", str(port)]))
