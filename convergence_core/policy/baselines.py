"""Baseline policies: linear Thompson sampling, and the best fixed sequence.

Both have the interface ``choose(state, legal) -> action`` and ``learn(episode)``.

``LinearThompson`` sees the state, and earns the reward of each action by itself: what an action makes possible later
it does not see (S. Agrawal, N. Goyal, "Thompson sampling for contextual bandits with linear payoffs", 2013, Alg. 1).
For the state x, with a constant, and each action,

    A = I + sum x x^T,    w = A^-1 sum r x,    x . w ~ N(its mean, v x^T A^-1 x)                   (3)

where we depart from the paper in v, a reward's variance instead of its bound with logarithms.

``FixedSequence`` sees no state but which actions are legal, which where each is used once tells what was done before:
all episodes with the same legal actions get the same sequence. It finds the best one by posterior sampling of a Markov
decision process with the legal actions as its states (I. Osband, D. Russo, B. Van Roy, "(More) efficient reinforcement
learning via posterior sampling", 2013, Alg. 1):

    r(m, a) ~ N(S / (n + k), v / (n + k))                                                          (1)
    Q(m, a) = r(m, a) + sum_m' p(m' | m, a) max_a' Q(m', a')                                       (2)

We depart from the paper in p, which is the share of successors seen and is not drawn: it is nearly always one.

Notation: m legal actions, n rewards of a in m, S their sum, k the weight of the prior mean 0, v the variance of a reward.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from convergence_core.policy.distribution import Bools
from convergence_core.policy.network import Floats

REWARD_VARIANCE: Final = 0.01
"""Of the difference of two mean scores over some ten cases."""

Draw = Callable[[float, float], float]
"""(mean, standard deviation) → a draw, or the mean."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TakenStep:
    """One step of an episode."""

    state: Floats
    """Before the action, (d,)."""
    legal: Bools
    """(n_actions,)."""
    action: int
    reward: float


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
        return self._weights @ x, np.sqrt(self._variance * ((self._inverse @ x) @ x))  # (eq. 3)

    def tell(self, state: Floats, action: int, reward: float) -> None:
        """Learn from one finite reward."""
        x, inverse, weights = _with_constant(state), self._inverse[action], self._weights[action]
        along = inverse @ x
        scale = 1.0 / (1.0 + x @ along)
        # (A + x x^T)^-1 = A^-1 - A^-1 x x^T A^-1 / (1 + x^T A^-1 x)  (J. Sherman, W. J. Morrison, 1950)
        inverse -= scale * np.multiply.outer(along, along)
        weights += along * (scale * (reward - x @ weights))
        self.n += 1

    def learn(self, episode: Sequence[TakenStep]) -> None:
        """Learn from the reward of each step.

        Raises:
            ValueError: a reward is not finite.
        """
        _check(episode)
        for step in episode:
            self.tell(step.state, step.action, step.reward)


class _Outcomes:
    """What came of an action where some actions were legal."""

    def __init__(self) -> None:
        self.n = 0
        self.total = 0.0
        self.next: dict[tuple[bool, ...], int] = {}
        """Legal actions after it → how often; steps that ended the episode are in none."""


class FixedSequence:
    """Best sequence of actions that does not look at the state."""

    def __init__(self, *, variance: float = REWARD_VARIANCE, prior_weight: float = 1.0) -> None:
        """Begin with the prior: every action is expected to earn 0.

        Args:
            variance: of a reward, above 0.
            prior_weight: how many rewards the prior is worth, above 0.

        Raises:
            ValueError: an argument is out of range.
        """
        if not (variance > 0 and prior_weight > 0):
            raise ValueError(
                f"`variance` and `prior_weight` must be above 0, but got {variance} and {prior_weight}"
            )
        self._variance, self._prior = variance, prior_weight
        self._seen: dict[tuple[bool, ...], dict[int, _Outcomes]] = {}

    def choose(
        self,
        state: Floats,  # noqa: ARG002 - of the interface; a fixed sequence does not look at it
        legal: Bools,
        rng: np.random.Generator | None = None,
    ) -> int:
        """Return a legal action: the best of a drawn process, or of the mean one without a generator."""
        if rng is None:
            return self._likeliest(_key(legal))
        worth = self._worth(_key(legal), _drawing(rng), {})
        return max(worth, key=lambda action: worth[action])

    def sequence(self, legal: Bools, stop: int | None = None) -> tuple[int, ...]:
        """Return the actions that it takes one after the other by the means, up to where nothing more was seen.

        Args:
            legal: at the beginning, (n_actions,).
            stop: action that ends an episode, left out; ``None`` if none does.
        """
        actions: list[int] = []
        mask: tuple[bool, ...] | None = _key(legal)
        while mask is not None:
            action = self._likeliest(mask)
            outcomes = self._seen.get(mask, {}).get(action)
            if action == stop or outcomes is None:
                break
            actions.append(action)
            after = outcomes.next
            mask = max(after, key=lambda arm: after[arm]) if after else None
        return tuple(actions)

    def learn(self, episode: Sequence[TakenStep]) -> None:
        """Learn from an episode, whose steps are in their order.

        Raises:
            ValueError: a reward is not finite.
        """
        _check(episode)
        for at, step in enumerate(episode):
            outcomes = self._seen.setdefault(_key(step.legal), {}).setdefault(
                step.action, _Outcomes()
            )
            outcomes.n += 1
            outcomes.total += step.reward
            if at + 1 < len(episode):
                key = _key(episode[at + 1].legal)
                outcomes.next[key] = outcomes.next.get(key, 0) + 1

    def _likeliest(self, mask: tuple[bool, ...]) -> int:
        """Return the best action by the means, of those that were tried."""
        worth = self._worth(mask, _drawing(None), {})
        tried = self._seen.get(mask) or worth
        return max(tried, key=lambda action: worth[action])

    def _worth(
        self, mask: tuple[bool, ...], draw: Draw, known: dict[tuple[bool, ...], float]
    ) -> dict[int, float]:
        """Return Q of each legal action (eq. 2); ``known`` holds the values of masks computed before."""
        seen = self._seen.get(mask, {})
        future = {}
        for action, outcomes in seen.items():
            future[action] = 0.0
            for after, times in outcomes.next.items():
                if after not in known:
                    known[after] = 0.0  # a process that comes back to where it was ends there
                    known[after] = max(self._worth(after, draw, known).values())
                future[action] += times / outcomes.n * known[after]
        # What was never done leads as far as the best that was: else no one would find out.
        farthest = max(future.values(), default=0.0)
        means = {}
        for action in (at for at, is_on in enumerate(mask) if is_on):
            outcomes = seen.get(action, _Outcomes())
            n = outcomes.n + self._prior
            reward = draw(outcomes.total / n, (self._variance / n) ** 0.5)  # (eq. 1)
            means[action] = reward + future.get(action, farthest)
        return means


def _drawing(rng: np.random.Generator | None) -> Draw:
    if rng is None:
        return lambda mean, _: mean
    return lambda mean, sd: float(rng.normal(mean, sd))


def _key(legal: Bools) -> tuple[bool, ...]:
    return tuple(bool(flag) for flag in legal)


def _with_constant(state: Floats) -> NDArray[np.float64]:
    return np.concatenate(([1.0], state)).astype(np.float64)


def _check(episode: Sequence[TakenStep]) -> None:
    for step in episode:
        if not np.isfinite(step.reward):
            raise ValueError(f"`reward` must be finite, but got {step.reward}")
        if not step.legal[step.action]:
            raise ValueError(f"`action` must be legal, but got {step.action}")
