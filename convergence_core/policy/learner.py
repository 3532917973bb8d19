"""Updates of a policy by proximal policy optimization (PPO).

J. Schulman et al., arXiv 1707.06347, Alg. 1.

Weights move by Adam (D. Kingma, J. Ba, arXiv 1412.6980, Alg. 1) with epsilon 1e-5:

    m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g^2
    theta = theta - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)

Minibatches are drawn again in each epoch; advantages are normalized within each of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import DTypeLike

from convergence_core.policy.network import ActorCritic, Floats
from convergence_core.policy.objective import Experience, ObjectiveTerms, normalized, objective
from convergence_core.policy.rollout import Rollout, VectorEnvironment, collect
from convergence_core.policy.settings import PPOConfig

B1, B2, EPSILON = 0.9, 0.999, 1e-5
BLOCK = 32_768
"""Number of weights that Adam updates per block, so that they fit a second-level cache."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PPOState:
    """Learned state of a policy."""

    networks: ActorCritic
    first_moment: Floats
    """Adam's m, (n_parameters,)."""
    second_moment: Floats
    """Adam's v, (n_parameters,)."""
    n_gradient_steps: int
    """Adam's t."""
    version: int
    """Number of updates."""
    n_steps: int
    """Number of environment steps learned from."""

    @classmethod
    def begin(
        cls, config: PPOConfig, rng: np.random.Generator, *, dtype: DTypeLike = np.float32
    ) -> Self:
        """Return an untrained policy, which is nearly uniform."""
        networks = ActorCritic.begin(
            config.input_dim, config.hidden_sizes, config.action_dim, rng, dtype=dtype
        )
        return cls(
            networks=networks,
            first_moment=np.zeros_like(networks.flat),
            second_moment=np.zeros_like(networks.flat),
            n_gradient_steps=0,
            version=0,
            n_steps=0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStatistics:
    """Diagnostics of one update."""

    version: int
    """Version of the policy after it."""
    n_steps: int
    """Total number of environment steps learned from."""
    learning_rate: float
    n_minibatches: int
    """Number of gradient steps."""
    stopped_early: bool
    """Whether the divergence exceeded its limit."""
    policy_loss: float
    """Mean over minibatches."""
    value_loss: float
    """Mean over minibatches."""
    entropy: float
    """Mean over minibatches, in nats."""
    kl: float
    """Divergence from the policy that chose at the last minibatch, in nats."""
    clip_fraction: float
    """Mean over minibatches of the share of ratios outside the clip."""
    first_ratio_error: float
    """Largest distance of a ratio from 1 before the first step: 0 up to rounding, unless a
    log-probability is stale or the mask differs.
    """
    gradient_norm: float
    """Mean over minibatches, before clipping."""
    explained_variance: float | None
    """1 - var(R - V) / var(R) of the rollout; ``None`` if all returns are equal."""
    mean_reward: float
    """Mean reward of one step."""


def improve(
    state: PPOState, rollout: Rollout, config: PPOConfig, rng: np.random.Generator
) -> tuple[PPOState, UpdateStatistics]:
    """Return the policy after one update, and its diagnostics.

    Args:
        state: the policy that chose; it stays as it is.
        rollout: what it did.
        config: settings.
        rng: draws the minibatches.

    Raises:
        ValueError: another version chose.
        FloatingPointError: weights would not be finite.
    """
    if rollout.version != state.version:
        raise ValueError(
            f"a rollout must come from the current policy, version {state.version}, but got version "
            f"{rollout.version}; archive it and collect again"
        )
    experience = rollout.experience(config)
    steps = _Descent(state, config.rate(state.n_steps), config)
    for batch in minibatches(experience, config, rng):
        if not steps.make(batch):
            break
    if not np.isfinite(steps.networks.flat).all():
        raise FloatingPointError(
            "weights must stay finite; lower `learning_rate`, or scale the rewards to about 1"
        )
    after = PPOState(
        networks=steps.networks,
        first_moment=steps.m,
        second_moment=steps.v,
        n_gradient_steps=steps.t,
        version=state.version + 1,
        n_steps=state.n_steps + experience.actions.size,
    )
    return after, _statistics(after, steps, experience, float(rollout.rewards.mean()))


def minibatches(
    experience: Experience, config: PPOConfig, rng: np.random.Generator
) -> Iterator[Experience]:
    """Yield the minibatches of all epochs, with normalized advantages; the last of an epoch may be small."""
    n = experience.actions.size
    for _ in range(config.n_epochs):
        order = rng.permutation(n)
        for start in range(0, n, config.batch_size):
            batch = experience.rows(order[start : start + config.batch_size])
            yield replace(batch, advantages=normalized(batch.advantages))


def train(
    state: PPOState,
    environment: VectorEnvironment,
    config: PPOConfig,
    *,
    n_updates: int,
    rng: np.random.Generator,
) -> Iterator[tuple[PPOState, Rollout, UpdateStatistics]]:
    """Yield the policy after each update, with the rollout that it learned from.

    The environments are reset first. Each rollout has at most ``buffer_size`` transitions, but at
    least one step.
    """
    offer = environment.reset(rng)
    n_steps = max(1, config.buffer_size // len(offer.observations))
    for _ in range(n_updates):
        rollout, offer = collect(
            state.networks, environment, offer, n_steps=n_steps, version=state.version, rng=rng
        )
        state, statistics = improve(state, rollout, config, rng)
        yield state, rollout, statistics


class _Descent:
    """Gradient steps of one update, on a copy of the weights."""

    def __init__(self, state: PPOState, rate: float, config: PPOConfig) -> None:
        self.networks = state.networks.copied()
        self.m, self.v = state.first_moment.copy(), state.second_moment.copy()
        self.t = state.n_gradient_steps
        self.rate = rate
        self.stopped_early = False
        self.terms: list[ObjectiveTerms] = []
        self.norms: list[float] = []
        self._config = config
        self._gradient = state.networks.copied()

    def make(self, batch: Experience) -> bool:
        """Make one step unless the policy has moved too far; return whether it was made."""
        terms = objective(self.networks, batch, self._config, self._gradient)
        self.terms.append(terms)
        limit = self._config.target_kl
        if limit is not None and terms.kl > 1.5 * limit:
            self.stopped_early = True
            return False
        gradient = self._gradient.flat
        norm = float(np.sqrt(np.dot(gradient, gradient)))
        self.norms.append(norm)
        if norm > self._config.max_grad_norm:
            gradient *= self._config.max_grad_norm / norm
        self._adam(gradient)
        return True

    def _adam(self, gradient: Floats) -> None:
        self.t += 1
        step = self.rate / (1.0 - B1**self.t)
        shrink = 1.0 / np.sqrt(1.0 - B2**self.t)
        for start in range(0, gradient.size, BLOCK):
            part = slice(start, start + BLOCK)
            g, m, v = gradient[part], self.m[part], self.v[part]
            m *= B1
            m += (1.0 - B1) * g
            v *= B2
            g *= g
            g *= 1.0 - B2
            v += g
            np.sqrt(v, out=g)
            g *= shrink
            g += EPSILON
            np.divide(m, g, out=g)
            g *= step
            self.networks.flat[part] -= g


def _statistics(
    after: PPOState, steps: _Descent, experience: Experience, mean_reward: float
) -> UpdateStatistics:
    returns = experience.returns.astype(np.float64)
    spread = float(returns.var())
    return UpdateStatistics(
        version=after.version,
        n_steps=after.n_steps,
        learning_rate=steps.rate,
        n_minibatches=len(steps.norms),
        stopped_early=steps.stopped_early,
        policy_loss=float(np.mean([term.policy_loss for term in steps.terms])),
        value_loss=float(np.mean([term.value_loss for term in steps.terms])),
        entropy=float(np.mean([term.entropy for term in steps.terms])),
        kl=steps.terms[-1].kl,
        clip_fraction=float(np.mean([term.clip_fraction for term in steps.terms])),
        first_ratio_error=steps.terms[0].ratio_error,
        gradient_norm=float(np.mean(steps.norms)) if steps.norms else 0.0,
        explained_variance=(
            1.0 - float((returns - experience.values).var()) / spread if spread > 0 else None
        ),
        mean_reward=mean_reward,
    )
