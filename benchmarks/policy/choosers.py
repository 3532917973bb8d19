"""Two bandits that choose changes: the baselines of a learned policy.

Both see the policy's observation and mask, and learn from the reward of each single change. They value
``stop`` at 0, so they end an episode when no change has a higher expected or sampled value.
"""

import itertools
from typing import Final, Protocol

import numpy as np

from convergence_core.policy.distribution import Bools, Ints
from convergence_core.policy.network import Floats
from convergence_core.policy.prompt_state import PROMPT_ACTIONS, STOP
from convergence_core.policy.rollout import Offer

N_CHANGES: Final = len(PROMPT_ACTIONS) - 1
"""Number of actions except ``stop``, the last one."""
STOPS: Final = PROMPT_ACTIONS.index(STOP)
REWARD_SD: Final = 0.05
"""Standard deviation that the bandits assume for rewards and for the prior of their means."""


class Chooser(Protocol):
    """Protocol for choosing legal actions and learning from rewards."""

    def choose(self, offer: Offer, category: Ints, rng: np.random.Generator | None) -> Ints:
        """Return an action for each of N copies.

        Args:
            offer: Observations and masks.
            category: Prompt categories, (N,). Only ``CategoryThompson`` reads them.
            rng: Random generator; ``None`` means the greedy choice.
        """
        ...

    def learn(self, offer: Offer, category: Ints, actions: Ints, rewards: Floats) -> None:
        """Learn from actions and rewards, each (N,)."""
        ...


def random_legal(offer: Offer, rng: np.random.Generator) -> Ints:
    """Draw uniformly among legal actions, including ``stop``, (N,)."""
    drawn: Ints = np.argmax(np.where(offer.legal, rng.random(offer.legal.shape), -1.0), axis=1)
    return drawn


class CategoryThompson:
    """Thompson sampling with one normal posterior per category and change.

    Only this chooser receives the category as a number.
    """

    def __init__(self, n_categories: int, sd: float = REWARD_SD) -> None:
        self._sd = sd
        self.n = np.zeros((n_categories, N_CHANGES))
        self.sums = np.zeros((n_categories, N_CHANGES))

    def choose(self, offer: Offer, category: Ints, rng: np.random.Generator | None) -> Ints:
        """See ``Chooser``."""
        # Prior N(0, sd^2) and rewards have the same spread: one reward weighs as much as the prior.
        n = 1.0 + self.n[category]
        worth = self.sums[category] / n
        if rng is not None:
            worth = worth + self._sd / np.sqrt(n) * rng.normal(size=worth.shape)
        return best_of(worth, offer.legal)

    def learn(self, offer: Offer, category: Ints, actions: Ints, rewards: Floats) -> None:  # noqa: ARG002 - looks at none
        """See ``Chooser``."""
        kept = actions != STOPS
        np.add.at(self.n, (category[kept], actions[kept]), 1.0)
        np.add.at(self.sums, (category[kept], actions[kept]), rewards[kept])


class StateThompson:
    """Linear Thompson sampling on the observation (S. Agrawal, N. Goyal, 2013, Alg. 1).

    For the state x, with a constant, and each action, A = I + sum x x^T, w = A^-1 sum r x and
    x . w ~ N(its mean, v x^T A^-1 x), with a reward's variance v in place of the paper's bound with logarithms.
    """

    def __init__(self, n_observed: int, sd: float = REWARD_SD) -> None:
        self._sd = sd
        self._inverse = np.tile(np.eye(n_observed + 1), (N_CHANGES, 1, 1))
        self._weights = np.zeros((N_CHANGES, n_observed + 1))

    def choose(self, offer: Offer, category: Ints, rng: np.random.Generator | None) -> Ints:  # noqa: ARG002 - looks at none
        """See ``Chooser``."""
        worth = np.zeros((len(offer.legal), N_CHANGES))
        for row, x in enumerate(_with_constant(offer)):
            worth[row] = self._weights @ x
            if rng is not None:
                sd = np.sqrt(self._sd**2 * ((self._inverse @ x) @ x))
                worth[row] += sd * rng.normal(size=N_CHANGES)
        return best_of(worth, offer.legal)

    def learn(self, offer: Offer, category: Ints, actions: Ints, rewards: Floats) -> None:  # noqa: ARG002 - looks at none
        """See ``Chooser``."""
        for x, action, reward in zip(_with_constant(offer), actions, rewards, strict=True):
            if action != STOPS:
                inverse, weights = self._inverse[action], self._weights[action]
                along = inverse @ x
                scale = 1.0 / (1.0 + x @ along)
                # (A + x x^T)^-1 = A^-1 - A^-1 x x^T A^-1 / (1 + x^T A^-1 x)  (J. Sherman, W. J. Morrison, 1950)
                inverse -= scale * np.multiply.outer(along, along)
                weights += along * (scale * (float(reward) - x @ weights))


def _with_constant(offer: Offer) -> Floats:
    ones = np.ones((len(offer.observations), 1))
    return np.concatenate((ones, offer.observations.astype(np.float64)), axis=1)


def best_of(worth: Floats, legal: Bools) -> Ints:
    """Return the highest-valued legal change of each row, or ``stop`` if none exceeds 0."""
    allowed = np.where(legal[:, :N_CHANGES], worth, -np.inf)
    best = np.argmax(allowed, axis=1)
    ends = np.take_along_axis(allowed, best[:, None], axis=1)[:, 0] <= 0.0
    found: Ints = np.where(ends, STOPS, best)
    return found


def sequences(most: int) -> list[tuple[int, ...]]:
    """Return all sequences of up to ``most`` distinct changes, including the empty one."""
    return [s for n in range(most + 1) for s in itertools.permutations(range(N_CHANGES), n)]
