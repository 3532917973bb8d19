"""Linear Thompson sampling, the baseline of a policy.

It sees the state, and earns the reward of each action by itself: what an action makes possible later
it does not see (S. Agrawal, N. Goyal, "Thompson sampling for contextual bandits with linear payoffs", 2013, Alg. 1).
For the state x, with a constant, and each action,

    A = I + sum x x^T,    w = A^-1 sum r x,    x . w ~ N(its mean, v x^T A^-1 x)                   (1)

where we depart from the paper in v, a reward's variance instead of its bound with logarithms.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from convergence_core.policy.distribution import Bools
from convergence_core.policy.network import Floats

REWARD_VARIANCE: Final = 0.01
"""Of the difference of two mean scores over some ten cases."""


class LinearThompson:
    """Linear Thompson sampling on the state, one weight vector for each action."""

    def __init__(
        self, n_features: int, n_actions: int, *, variance: float = REWARD_VARIANCE
    ) -> None:
        """Begin with the prior: every action is expected to earn 0.

        Args:
            n_features: numbers in a state, d.
            n_actions: actions.
            variance: of a reward given the state, and of each weight before anything is seen; above 0.

        Raises:
            ValueError: an argument is out of range.
        """
        if not variance > 0:
            raise ValueError(f"`variance` must be above 0, but got {variance}")
        self._variance = variance
        self._inverse = np.tile(np.eye(n_features + 1), (n_actions, 1, 1))
        self._weights = np.zeros((n_actions, n_features + 1))
        self.n = 0
        """Rewards learned from."""

    def choose(self, state: Floats, legal: Bools, rng: np.random.Generator | None = None) -> int:
        """Return a legal action: the largest of draws of what each earns, or of the means without a generator."""
        means, sds = self.moments(state)
        worth = means if rng is None else means + sds * rng.standard_normal(means.size)
        return int(np.argmax(np.where(legal, worth, -np.inf)))

    def moments(self, state: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of what each action earns, (n_actions,) each."""
        x = _with_constant(state)
        return self._weights @ x, np.sqrt(self._variance * ((self._inverse @ x) @ x))  # (eq. 1)

    def tell(self, state: Floats, action: int, reward: float) -> None:
        """Learn from one reward."""
        x, inverse, weights = _with_constant(state), self._inverse[action], self._weights[action]
        along = inverse @ x
        scale = 1.0 / (1.0 + x @ along)
        # (A + x x^T)^-1 = A^-1 - A^-1 x x^T A^-1 / (1 + x^T A^-1 x)  (J. Sherman, W. J. Morrison, 1950)
        inverse -= scale * np.multiply.outer(along, along)
        weights += along * (scale * (reward - x @ weights))
        self.n += 1


def _with_constant(state: Floats) -> NDArray[np.float64]:
    return np.concatenate(([1.0], state)).astype(np.float64)
