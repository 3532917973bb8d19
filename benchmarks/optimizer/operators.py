"""Choosers of breeding operators that only the benchmark has: baselines, and policies in files."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.optimizer.emphasis import (
    ACTIONS,
    STATE_DIM,
    STATE_NAME,
    LearnedEmphasis,
)
from benchmarks.optimizer.opponents.base import Setup
from convergence_core.policy import PolicyIdentity, PPOConfig, PPOState, unpack

IDENTITY = PolicyIdentity(embedding=STATE_NAME, actions=ACTIONS)
TRAINED = Path(__file__).parent / "data" / "operators.safetensors"
"""Written by ``train_operators``."""

SETTINGS = PPOConfig(
    input_dim=STATE_DIM,
    action_dim=len(ACTIONS),
    hidden_dim=32,
    learning_rate=1e-3,
    n_epochs=8,
    batch_size=64,
    buffer_size=256,
    target_kl=0.03,
)
"""Of the policy, in the product as well."""


def n_generations_of(setup: Setup) -> int:
    """Return the generations of a run."""
    return -(-setup.budget // setup.batch)


def uniform(setup: Setup) -> LearnedEmphasis:
    """Return a chooser by equal chances: the policy before it has learned anything, heads at 0."""
    networks = PPOState.begin(SETTINGS, np.random.default_rng(0)).networks.copied()
    networks.flat[:] = 0.0
    return LearnedEmphasis(networks=networks, n_generations=n_generations_of(setup))


def trained(setup: Setup) -> LearnedEmphasis:
    """Return the chooser that ``train_operators`` wrote."""
    state, _, _ = unpack(TRAINED.read_bytes(), IDENTITY)
    return LearnedEmphasis(networks=state.networks, n_generations=n_generations_of(setup))


OWN: Mapping[str, Callable[[Setup], LearnedEmphasis]] = {"uniform": uniform, "ppo": trained}
"""Choosers by name, beside those of ``optimization.meta_optimizer``."""
