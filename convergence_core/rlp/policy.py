"""Policy over actions: a softmax, moved by clipped policy gradients.

Where the paper trains weights, this trains a policy pi_theta(k|s) over kinds of thoughts. k = 0
writes no notes, so that the policy can learn not to. Its update is the paper's clipped objective
(arXiv 2510.01265, eq. 8) with an added entropy bonus:

    minimize  -E[min(rho A, clip(rho, .8, 1.2) A)] - .01 H(pi),   rho = pi_theta / pi_old

by plain gradient steps of .5, four passes over the last three generations in minibatches of 64.
Steps with rho > 2 are dropped, and the passes end when the mean KL from the policy before the
update exceeds .02.

The value V(s) = w^T s follows a ridge regression of the last thirty generations in steps of .1.

Notation: s state (d,), theta (K+1, d), A total advantage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.policy.objective import clipped_surrogate
from convergence_core.records import Json, canonical_json, sha256_hex

N_FEATURES: Final = 4
ENTROPY_WEIGHT: Final = 0.01
STEP: Final = 0.5
CLIP_EPSILON: Final = 0.2
"""Change of a probability ratio beyond which the objective is clipped."""
KL_TARGET: Final = 0.02
"""Divergence from the policy before an update, in nats, at which the update stops."""
N_PASSES: Final = 4
N_GENERATIONS: Final = 3
BATCH: Final = 64
MAX_RATIO: Final = 2.0
RIDGE: Final = 1.0
VALUE_WINDOW: Final = 30
VALUE_STEP: Final = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class ActionPolicy:
    """pi_theta."""

    theta: np.ndarray
    """(n_actions, N_FEATURES)."""

    @classmethod
    def uniform(cls, n_actions: int) -> "ActionPolicy":
        """Return the policy with equal probabilities."""
        return cls(np.zeros((n_actions, N_FEATURES)))

    @classmethod
    def of(cls, probabilities: Sequence[float]) -> "ActionPolicy":
        """Return the policy with these probabilities in every state."""
        theta = np.zeros((len(probabilities), N_FEATURES))
        theta[:, 0] = np.log(probabilities)  # s_0 = 1
        return cls(theta)

    def probabilities(self, state: np.ndarray) -> np.ndarray:
        """Return pi(k|s), (n_actions,) for a state (d,), (n, n_actions) for states (n, d)."""
        return np.asarray(np.exp(self.log_probabilities(state)), np.float64)

    def log_probabilities(self, state: np.ndarray) -> np.ndarray:
        """Return log pi(k|s), in the same shape."""
        z = state @ self.theta.T  # theta s
        z = z - z.max(axis=-1, keepdims=True)
        return np.asarray(z - np.log(np.exp(z).sum(axis=-1, keepdims=True)), np.float64)

    def draw(self, state: np.ndarray, n: int, rng: np.random.Generator) -> list[int]:
        """Return n actions drawn from pi(.|s)."""
        p = self.probabilities(state)
        return [int(k) for k in rng.choice(len(p), size=n, p=p)]

    @property
    def sha256(self) -> str:
        """Hash of the parameters, which changes with every effective update."""
        return sha256_hex(canonical_json(self.to_json()))

    def to_json(self) -> Json:
        """Return nested lists from which ``from_json`` makes the same bits."""
        rows: Json = self.theta.tolist()
        return rows

    @classmethod
    def from_json(cls, value: Json) -> "ActionPolicy":
        """Rebuild what ``to_json`` wrote."""
        return cls(np.array(value, np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Thoughts to learn from, one entry each."""

    states: np.ndarray
    """(n, N_FEATURES)."""
    actions: np.ndarray
    """(n,), integers."""
    log_old: np.ndarray
    """log pi_old(k|s) at the time of the choice, (n,)."""
    advantages: np.ndarray
    """A-hat, (n,)."""

    @classmethod
    def none(cls) -> "Steps":
        """Return no steps."""
        nothing = np.zeros(0)
        return cls(np.zeros((0, N_FEATURES)), nothing.astype(int), nothing, nothing)

    def take(self, rows: np.ndarray) -> "Steps":
        """Return the steps of these rows."""
        return Steps(
            self.states[rows], self.actions[rows], self.log_old[rows], self.advantages[rows]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Statistics of an update."""

    loss: float
    """Loss of the clipped objective with entropy, on the last minibatch."""
    kl: float
    """Mean KL from the policy before the update, in nats."""
    grad_norm: float
    """Norm of the last gradient."""
    n_steps: int
    """Number of gradient steps."""
    n_dropped: int
    """Number of thoughts left out of the last minibatch because their ratio exceeded 2."""
    entropy: float
    """Mean entropy of the updated policy, in nats."""


def improve(
    policy: ActionPolicy, steps: Steps, rng: np.random.Generator
) -> tuple[ActionPolicy, Update]:
    """Return the policy after an update, and its statistics.

    Args:
        policy: Policy before.
        steps: Thoughts of the last generations; without any, nothing changes.
        rng: Random generator for the order of minibatches.
    """
    n = len(steps.actions)
    if n == 0:
        return policy, Update(loss=0, kl=0, grad_norm=0, n_steps=0, n_dropped=0, entropy=0)
    theta = policy.theta.copy()
    before = policy.log_probabilities(steps.states)  # (n, n_actions)
    loss = kl = norm = 0.0
    n_steps = n_dropped = 0
    for _ in range(N_PASSES):
        order = rng.permutation(n)
        for begin in range(0, n, BATCH):
            batch = steps.take(order[begin : begin + BATCH])
            loss, gradient, n_dropped = _gradient(ActionPolicy(theta), batch)
            norm = float(np.linalg.norm(gradient))
            theta = theta - STEP * gradient
            n_steps += 1
        after = ActionPolicy(theta).log_probabilities(steps.states)
        kl = float(np.mean(np.sum(np.exp(before) * (before - after), axis=1)))  # KL(old, new)
        if kl > KL_TARGET:
            break
    improved = ActionPolicy(theta)
    logs = improved.log_probabilities(steps.states)
    entropy = float(np.mean(-np.sum(np.exp(logs) * logs, axis=1)))
    return improved, Update(
        loss=loss,
        kl=max(kl, 0.0),
        grad_norm=norm,
        n_steps=n_steps,
        n_dropped=n_dropped,
        entropy=entropy,
    )


def _gradient(policy: ActionPolicy, steps: Steps) -> tuple[float, np.ndarray, int]:
    """Return loss, its gradient (n_actions, d), and the number of dropped rows."""
    actions, advantages = steps.actions, steps.advantages
    logs = policy.log_probabilities(steps.states)  # (n, n_actions)
    p = np.exp(logs)
    log_ratios = logs[np.arange(len(actions)), actions] - steps.log_old  # ln rho, (n,)
    surrogate, slope = clipped_surrogate(log_ratios, advantages, CLIP_EPSILON)  # (RLP eq. 8)
    kept = np.exp(log_ratios) <= MAX_RATIO
    n = max(1, int(kept.sum()))
    # d(rho A)/dlogit_j = rho A (1[j = k] - pi_j)
    pull = np.where(kept, slope, 0.0)[:, None]
    of_logits = -pull * ((np.arange(p.shape[1]) == actions[:, None]) - p) / n
    # dH/dlogit_j = -pi_j (log pi_j + H)
    entropy = -np.sum(p * logs, axis=1)
    of_logits += ENTROPY_WEIGHT * p * (logs + entropy[:, None]) / len(actions)
    loss = -float(surrogate[kept].sum()) / n - ENTROPY_WEIGHT * float(entropy.mean())
    return loss, of_logits.T @ steps.states, int((~kept).sum())


@dataclass(frozen=True, slots=True, eq=False)
class ValueFunction:
    """V(s) = w^T s."""

    weights: np.ndarray
    """(N_FEATURES,)."""

    @classmethod
    def zero(cls) -> "ValueFunction":
        """Return V = 0."""
        return cls(np.zeros(N_FEATURES))

    def of(self, states: np.ndarray) -> np.ndarray:
        """Return V of states, (n, d) → (n,)."""
        return np.asarray(states @ self.weights, np.float64)

    def after(self, states: np.ndarray, targets: np.ndarray) -> "ValueFunction":
        """Return w + .1 (w_ridge - w), with lambda = 1 over the last thirty generations.

        Args:
            states: (n, d), oldest first.
            targets: returns, (n,).
        """
        x, y = states[-VALUE_WINDOW:], targets[-VALUE_WINDOW:]
        ridge = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y)
        return ValueFunction(self.weights + VALUE_STEP * (ridge - self.weights))
