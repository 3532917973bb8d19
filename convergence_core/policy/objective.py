"""Objective of proximal policy optimization, with its gradient.

J. Schulman et al., "Proximal policy optimization algorithms", arXiv 1707.06347:

    rho = pi(a) / pi_old(a)
    L_clip = mean of min(rho A, clip(rho, 1 - eps, 1 + eps) A)                                      (7)
    E = -L_clip + c_v (V - R)^2 - c_e H                                                             (9)

to be made small. Where values are clipped, (V - R)^2 is the larger of itself and of (V_clip - R)^2, with V_clip
the value moved from the old one by at most ``value_clip``. The divergence from the old policy is estimated by
mean of (rho - 1) - ln rho (J. Schulman, "Approximating KL divergence", 2020, k3), which is never negative.
"""

from dataclasses import dataclass, fields

import numpy as np

from convergence_core.policy.distribution import Bools, Ints, MaskedCategorical
from convergence_core.policy.network import ActorCritic, Floats
from convergence_core.policy.settings import PPOConfig

ZERO_SPREAD = 1e-6
"""Share of the largest advantage below which a spread is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Experience:
    """Transitions for an update, n of them."""

    observations: Floats
    """(n, n_inputs)."""
    legal: Bools
    """Legal actions at the time of the choice, (n, n_actions)."""
    actions: Ints
    """(n,)."""
    log_probs: Floats
    """ln pi_old(a), (n,)."""
    values: Floats
    """V_old, (n,)."""
    advantages: Floats
    """(n,)."""
    returns: Floats
    """R, the target of V, (n,)."""

    def rows(self, chosen: Ints) -> "Experience":
        """Return the transitions of these rows."""
        return Experience(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveTerms:
    """Terms of the objective on one minibatch."""

    loss: float
    """E of eq. 9."""
    policy_loss: float
    """Minus L_clip."""
    value_loss: float
    """Mean squared error of values, the larger one where they are clipped."""
    entropy: float
    """Mean over choices, in nats."""
    kl: float
    """Divergence from the policy that chose, in nats."""
    clip_fraction: float
    """Share of choices whose ratio lies outside 1 +- eps."""
    ratio_error: float
    """Largest distance of a ratio from 1."""


def normalized(advantages: Floats) -> Floats:
    """Return advantages with mean 0 and standard deviation 1.

    A single advantage is returned unchanged, because it has no spread; equal ones become 0.
    """
    if advantages.size < 2:
        return advantages
    centred = advantages - advantages.mean()
    spread = centred.std()
    if spread <= ZERO_SPREAD * np.abs(advantages).max():
        return np.zeros_like(advantages)
    scaled: Floats = centred / spread
    return scaled


def clipped_surrogate(
    log_ratios: Floats, advantages: Floats, eps_clip: float
) -> tuple[Floats, Floats]:
    """Return min(rho A, clip(rho) A) of each choice, and its derivative by ln pi(a); both (n,) (eq. 7)."""
    ratios = np.exp(log_ratios)
    plain = ratios * advantages
    clipped = np.clip(ratios, 1.0 - eps_clip, 1.0 + eps_clip) * advantages
    # Where the clipped term is the smaller one, the ratio lies outside, and the term is constant.
    return np.minimum(plain, clipped), np.where(plain <= clipped, plain, 0.0)


def value_errors(
    values: Floats, old: Floats, returns: Floats, value_clip: float | None
) -> tuple[Floats, Floats]:
    """Return the squared error of each value, and its derivative by the value; both (n,)."""
    error = values - returns
    squares, slopes = error * error, 2.0 * error
    if value_clip is None:
        return squares, slopes
    held = old + np.clip(values - old, -value_clip, value_clip) - returns
    larger = held * held > squares
    # The clipped value is constant wherever it differs from the value itself.
    return np.where(larger, held * held, squares), np.where(larger, 0.0, slopes)


def divergence(log_ratios: Floats) -> float:
    """Return the k3 estimate of the KL divergence from the old policy, in nats."""
    wide = log_ratios.astype(np.float64)
    return float(np.mean(np.expm1(wide) - wide))


def objective(
    networks: ActorCritic, batch: Experience, config: PPOConfig, into: ActorCritic
) -> ObjectiveTerms:
    """Return the terms on one minibatch, and write the gradient of E into ``into`` (eq. 9).

    The advantages are taken as they are.
    """
    n = batch.actions.size
    policy_layers = networks.policy.layers(batch.observations)
    value_layers = networks.value.layers(batch.observations)
    chosen = MaskedCategorical.of(policy_layers[-1], batch.legal)
    log_ratios = chosen.log_prob(batch.actions) - batch.log_probs
    surrogate, by_log_prob = clipped_surrogate(log_ratios, batch.advantages, config.eps_clip)
    squares, by_value = value_errors(
        value_layers[-1][:, 0], batch.values, batch.returns, config.value_clip
    )
    by_logits = chosen.gradient(
        batch.actions, -by_log_prob / n, np.full_like(log_ratios, -config.entropy_coef / n)
    )
    networks.policy.backward(policy_layers, by_logits, into.policy)
    networks.value.backward(value_layers, (config.value_coef / n * by_value)[:, None], into.value)
    policy_loss, value_loss = -float(surrogate.mean()), float(squares.mean())
    entropy = float(chosen.entropy.mean())
    distance = np.abs(np.expm1(log_ratios))
    return ObjectiveTerms(
        loss=policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy,
        policy_loss=policy_loss,
        value_loss=value_loss,
        entropy=entropy,
        kl=divergence(log_ratios),
        clip_fraction=float(np.mean(distance > config.eps_clip)),
        ratio_error=float(distance.max()),
    )
