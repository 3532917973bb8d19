"""Baselines of a store's policy, rebuilt from what each of them has played."""

from dataclasses import dataclass

from convergence_core.policy import N_PROGRESS, PROMPT_ACTIONS, FixedSequence, LinearThompson
from convergence_core.policy.gate import BANDIT, PolicyName
from tasks.store.policy.round_store import RoundStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A baseline with what it has learned."""

    name: PolicyName
    policy: LinearThompson | FixedSequence


def baseline_of(rounds: RoundStore, name: PolicyName, embedding_dim: int) -> Baseline:
    """Return a baseline that has learned from its own episodes, in the order they were played.

    Args:
        rounds: the episodes.
        name: ``bandit`` or ``sequence``.
        embedding_dim: numbers in an embedding.
    """
    n_features = embedding_dim + N_PROGRESS
    policy: LinearThompson | FixedSequence = (
        LinearThompson(n_features, len(PROMPT_ACTIONS)) if name == BANDIT else FixedSequence()
    )
    for episode in rounds.episodes(policy=name, with_steps=True):
        if all(step.state.size == n_features for step in episode.steps):
            policy.learn(episode.steps)
    return Baseline(name=name, policy=policy)
