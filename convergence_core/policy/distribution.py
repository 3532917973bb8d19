"""Categorical distribution over legal actions.

    pi(a) = exp(z_a) / sum over legal b of exp(z_b) for a legal action, 0 for another one           (1)
    H = -sum over legal a of pi(a) ln pi(a)                                                         (2)
    d ln pi(a) / dz_j = [a = j] - pi(j),   dH / dz_j = -pi(j) (ln pi(j) + H)                         (3)

Both gradients are 0 for an illegal action (S. Huang, S. Ontanon, "A closer look at invalid action masking in
policy gradient algorithms", 2022), where the mask of the choice is used again in the update.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from convergence_core.policy.network import Floats

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MaskedCategorical:
    """Distributions of n choices."""

    probabilities: Floats
    """(n, n_actions); exactly 0 for an illegal action."""
    log_probabilities: Floats
    """(n, n_actions); minus infinity for an illegal action."""
    entropy: Floats
    """Entropy in nats, (n,)."""

    @classmethod
    def of(cls, logits: Floats, legal: Bools) -> Self:
        """Return the distributions (eq. 1, 2).

        Args:
            logits: (n, n_actions).
            legal: (n, n_actions).

        Raises:
            ValueError: the shapes differ, or no action of a row is legal.
        """
        if logits.shape != legal.shape:
            raise ValueError(f"`legal` must have shape {logits.shape}, but got {legal.shape}")
        if not legal.any(axis=1).all():
            raise ValueError(
                "`legal` must allow an action in each row; let `stop` always be legal"
            )
        z = np.where(legal, logits, -np.inf).astype(logits.dtype, copy=False)
        z = z - z.max(axis=1, keepdims=True)
        weights = np.exp(z)
        total = weights.sum(axis=1, keepdims=True)
        probabilities = weights / total
        log_probabilities = z - np.log(total)
        entropy = -np.sum(probabilities * np.where(legal, log_probabilities, 0.0), axis=1)
        return cls(
            probabilities=probabilities,
            log_probabilities=log_probabilities,
            entropy=entropy.astype(logits.dtype, copy=False),
        )

    def sample(self, rng: np.random.Generator) -> Ints:
        """Draw an action for each row, (n,).

        The largest of ``ln pi(a)`` plus Gumbel noise is a draw (E. Gumbel, 1954), and never an illegal one,
        which rounding in a cumulated sum could let through.
        """
        noise = rng.gumbel(size=self.log_probabilities.shape)
        drawn: Ints = np.argmax(self.log_probabilities + noise, axis=1)
        return drawn

    def mode(self) -> Ints:
        """Return the most likely action of each row, the first of equals, (n,)."""
        actions: Ints = np.argmax(self.log_probabilities, axis=1)
        return actions

    def log_prob(self, actions: Ints) -> Floats:
        """Return the log-probability of one action of each row, in nats, (n,)."""
        picked: Floats = self.log_probabilities[np.arange(actions.size), actions]
        return picked

    def gradient(self, actions: Ints, of_log_prob: Floats, of_entropy: Floats) -> Floats:
        """Return dE/dz from dE/d ln pi(a) and dE/dH, both (n,) (eq. 3)."""
        p: NDArray[Any] = self.probabilities
        g = -p * of_log_prob[:, None]
        g[np.arange(actions.size), actions] += of_log_prob
        surprise = np.where(p > 0, self.log_probabilities, 0.0) + self.entropy[:, None]
        g -= p * surprise * of_entropy[:, None]
        return g
