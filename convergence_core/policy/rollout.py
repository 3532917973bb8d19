"""Rollouts: steps of a frozen policy in environments.

An environment gives the first observation of the next episode together with the last one of the
episode that ended (``SAME_STEP`` in Gymnasium's words), so that every row of a rollout is one real
step.

Notation: T steps of N environments, d numbers in an observation.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from convergence_core.policy.advantage import following_values, generalized_advantages
from convergence_core.policy.distribution import Bools, Ints, MaskedCategorical
from convergence_core.policy.network import ActorCritic, Floats
from convergence_core.policy.objective import Experience
from convergence_core.policy.settings import PPOConfig


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offer:
    """Observations and legal actions of each environment before a choice."""

    observations: Floats
    """(N, d)."""
    legal: Bools
    """(N, n_actions)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EnvironmentStep:
    """Response of each environment to an action."""

    offer: Offer
    """Offer before the next choice; after the end of an episode, that of the next episode."""
    rewards: Floats
    """(N,)."""
    terminated: Bools
    """Whether the episode ended naturally, (N,)."""
    truncated: Bools
    """Whether a limit cut the episode, (N,)."""
    final_observations: Floats
    """Last observation of the episodes that were cut, (N, d); other rows are not read."""


class VectorEnvironment(Protocol):
    """N copies of an environment, stepped together."""

    def reset(self, rng: np.random.Generator) -> Offer:
        """Start N episodes; later ones use the same generator."""

    def step(self, actions: Ints) -> EnvironmentStep:
        """Apply an action in each environment, (N,)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyChoice:
    """Actions of a policy, with the data for an update; (n,) each."""

    actions: Ints
    log_probs: Floats
    """Log-probabilities in nats."""
    values: Floats
    """Expected discounted return."""
    probabilities: Floats
    """(n, n_actions)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rollout:
    """T steps of N environments under one version of a policy."""

    version: int
    """Version of the policy that chose."""
    observations: Floats
    """(T, N, d)."""
    legal: Bools
    """(T, N, n_actions)."""
    actions: Ints
    """(T, N)."""
    log_probs: Floats
    """Log-probabilities of the actions when chosen, in nats, (T, N)."""
    values: Floats
    """Values at the time of the choice, (T, N)."""
    rewards: Floats
    """(T, N)."""
    terminated: Bools
    """(T, N)."""
    truncated: Bools
    """(T, N)."""
    final_values: Floats
    """Value of the observation at which an episode was cut, (T, N); 0 elsewhere."""
    last_values: Floats
    """Value of the observation after the last row, (N,)."""

    def experience(self, config: PPOConfig) -> Experience:
        """Return its T N transitions with advantages and returns."""
        following = following_values(
            self.values,
            terminated=self.terminated,
            truncated=self.truncated,
            final_values=self.final_values,
            last_values=self.last_values,
        )
        advantages = generalized_advantages(
            self.rewards,
            self.values,
            following,
            self.terminated | self.truncated,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
        )
        precision = self.values.dtype
        return Experience(
            observations=self.observations.reshape(-1, self.observations.shape[-1]),
            legal=self.legal.reshape(-1, self.legal.shape[-1]),
            actions=self.actions.ravel(),
            log_probs=self.log_probs.ravel(),
            values=self.values.ravel(),
            advantages=advantages.ravel().astype(precision),
            returns=(advantages + self.values).ravel().astype(precision),
        )


def choose(
    networks: ActorCritic, offer: Offer, rng: np.random.Generator | int | None = None
) -> PolicyChoice:
    """Return one legal action per row: sampled, given, or else the most likely."""
    observations = offer.observations.astype(networks.flat.dtype, copy=False)
    chosen = MaskedCategorical.of(networks.policy.layers(observations)[-1], offer.legal)
    if isinstance(rng, int):
        actions = np.full(len(observations), rng)
    else:
        actions = chosen.mode() if rng is None else chosen.sample(rng)
    return PolicyChoice(
        actions=actions,
        log_probs=chosen.log_prob(actions),
        values=values_of(networks, observations),
        probabilities=chosen.probabilities,
    )


def values_of(networks: ActorCritic, observations: Floats) -> Floats:
    """Return the value of each observation, (n,)."""
    precise = observations.astype(networks.flat.dtype, copy=False)
    return networks.value.layers(precise)[-1][:, 0]


def collect(
    networks: ActorCritic,
    environment: VectorEnvironment,
    offer: Offer,
    *,
    n_steps: int,
    version: int,
    rng: np.random.Generator,
) -> tuple[Rollout, Offer]:
    """Run T steps; return them, and the offer after the last one.

    Args:
        networks: Networks that choose; unchanged.
        environment: Environment after a reset or earlier steps.
        offer: Its current offer.
        n_steps: T, 1 or more.
        version: Version of the networks.
        rng: Random generator for the actions.
    """
    offers, choices, steps, finals = [], [], [], []
    for _ in range(n_steps):
        choice = choose(networks, offer, rng)
        step = environment.step(choice.actions)
        final = np.zeros_like(choice.values)
        if step.truncated.any():
            cut = step.truncated
            final[cut] = values_of(networks, step.final_observations[cut])
        offers.append(offer)
        choices.append(choice)
        steps.append(step)
        finals.append(final)
        offer = step.offer
    rollout = Rollout(
        version=version,
        observations=np.stack([offer.observations for offer in offers]).astype(
            networks.flat.dtype, copy=False
        ),
        legal=np.stack([offer.legal for offer in offers]),
        actions=np.stack([choice.actions for choice in choices]),
        log_probs=np.stack([choice.log_probs for choice in choices]),
        values=np.stack([choice.values for choice in choices]),
        rewards=np.stack([step.rewards for step in steps]),
        terminated=np.stack([step.terminated for step in steps]),
        truncated=np.stack([step.truncated for step in steps]),
        final_values=np.stack(finals),
        last_values=values_of(networks, offer.observations),
    )
    return rollout, offer
