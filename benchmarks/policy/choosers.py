"""Choosers of changes that a learned policy has to beat: two bandits.

Both see what a policy sees, the observation and the mask, and learn from the reward of each single change. ``stop`` is worth 0 to them: they end an episode where no change is expected, or drawn, to be worth more.
"""

import itertools
from typing import Final, Protocol

import numpy as np

from convergence_core.policy.distribution import Bools, Ints
from convergence_core.policy.network import Floats
from convergence_core.policy.prompt_state import PROMPT_ACTIONS, STOP
from convergence_core.policy.rollout import Offer

N_CHANGES: Final = len(PROMPT_ACTIONS) - 1
"""Actions but ``stop``, which is the last one."""
STOPS: Final = PROMPT_ACTIONS.index(STOP)
REWARD_SD: Final = 0.05
"""Of one reward around its mean, and of the prior of a mean, as the bandits suppose."""


class Chooser(Protocol):
    """Chooses among legal actions and may learn from rewards."""

    def choose(self, offer: Offer, category: Ints, rng: np.random.Generator | None) -> Ints:
        """Return an action for each of N copies.

        Args:
            offer: observations and masks.
            category: of the prompts, (N,); only a chooser that says so looks at it.
            rng: draws; ``None``: the choice that is thought best.
        """
        ...

    def learn(self, offer: Offer, category: Ints, actions: Ints, rewards: Floats) -> None:
        """Learn from what was chosen, (N,) each."""
        ...


def random_legal(offer: Offer, rng: np.random.Generator) -> Ints:
    """Return each legal action, ``stop`` too, with the same probability, (N,)."""
    drawn: Ints = np.argmax(np.where(offer.legal, rng.random(offer.legal.shape), -1.0), axis=1)
    return drawn


class CategoryThompson:
    """Thompson sampling over change and category: one normal posterior for each pair.

    The category is told to it as a number, which no other chooser here is told.
    """

    def __init__(self, n_categories: int, sd: float = REWARD_SD) -> None:
        self._sd = sd
        self.n = np.zeros((n_categories, N_CHANGES))
        self.sums = np.zeros((n_categories, N_CHANGES))

    def choose(self, offer: Offer, category: Ints, rng: np.random.Generator | None) -> Ints:
        """See ``Chooser``."""
        # Prior N(0, sd^2) and rewards of the same spread: one reward weighs as much as the prior.
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
    """Return the legal change of the highest worth in each row, ``stop`` where none is above 0."""
    allowed = np.where(legal[:, :N_CHANGES], worth, -np.inf)
    best = np.argmax(allowed, axis=1)
    ends = np.take_along_axis(allowed, best[:, None], axis=1)[:, 0] <= 0.0
    found: Ints = np.where(ends, STOPS, best)
    return found


def sequences(most: int) -> list[tuple[int, ...]]:
    """Return all sequences of different changes, from none up to ``most`` of them."""
    return [s for n in range(most + 1) for s in itertools.permutations(range(N_CHANGES), n)]
