"""Probe environments: each can be learned only by code that has one thing right.

Rewards of 1 or of plus and minus 1, eight copies, observations of one number.
"""

from dataclasses import dataclass

import numpy as np

from convergence_core.policy import (
    EnvironmentStep,
    Offer,
    PPOConfig,
    PPOState,
    choose,
    train,
)

N = 8
CONFIG = PPOConfig(
    input_dim=1,
    action_dim=2,
    hidden_dim=64,
    learning_rate=3e-3,
    gamma=0.9,
    value_clip=None,
    entropy_coef=0.0,
    n_epochs=10,
    batch_size=64,
    buffer_size=32 * N,
)
GAMMA = CONFIG.gamma


@dataclass(frozen=True)
class Rules:
    """What a probe pays, and when its episodes end."""

    length: int = 1
    cut: bool = False
    """Whether the end is a time limit."""
    random: bool = False
    """Whether observations are plus or minus 1; else 0, with two steps their number."""
    pays: str = "one"


class Probe:
    """Eight copies of a probe."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def offer(self) -> Offer:
        if self.rules.random:
            self.seen = self.rng.choice([-1.0, 1.0], size=(N, 1))
        elif self.rules.length == 2:
            self.seen = self.t[:, None].astype(float)
        else:
            self.seen = np.zeros((N, 1))
        return Offer(observations=self.seen, legal=np.ones((N, 2), dtype=bool))

    def reset(self, rng: np.random.Generator) -> Offer:
        # Copies begin at different steps, so that no row of a rollout ends all episodes at once.
        self.rng = rng
        self.t = np.arange(N) % self.rules.length
        return self.offer()

    def step(self, actions: np.ndarray) -> EnvironmentStep:
        sign = 2.0 * actions - 1.0
        rewards = {
            "one": np.ones(N),
            "seen": self.seen[:, 0],
            "last": (self.t == self.rules.length - 1).astype(float),
            "action": sign,
            "both": sign * self.seen[:, 0],
        }[self.rules.pays]
        self.t += 1
        ends = self.t >= self.rules.length
        final = self.seen.copy()
        self.t[ends] = 0
        cut = ends if self.rules.cut else np.zeros(N, dtype=bool)
        return EnvironmentStep(
            offer=self.offer(),
            rewards=rewards,
            terminated=ends & ~cut,
            truncated=cut,
            final_observations=final,
        )


def learned(rules: Rules, n_steps: int, seed: int = 0) -> PPOState:
    """Train on a probe."""
    rng = np.random.default_rng(seed)
    state = PPOState.begin(CONFIG, rng)
    for after, _, statistics in train(
        state, Probe(rules), CONFIG, n_updates=n_steps // CONFIG.buffer_size, rng=rng
    ):
        assert statistics.first_ratio_error < 1e-5, "the ratio is 1 before anything is learned"
        state = after
    return state


def values_at(state: PPOState, *seen: float) -> list[float]:
    observations = np.array(seen)[:, None]
    offer = Offer(observations=observations, legal=np.ones((len(seen), 2), dtype=bool))
    return [float(one) for one in choose(state.networks, offer).values]


def probability_of_second(state: PPOState, *seen: float) -> list[float]:
    observations = np.array(seen)[:, None]
    offer = Offer(observations=observations, legal=np.ones((len(seen), 2), dtype=bool))
    return [float(one) for one in choose(state.networks, offer).probabilities[:, 1]]


def close(found: list[float], expected: list[float], within: float) -> None:
    worst = max(abs(a - b) for a, b in zip(found, expected, strict=True))
    assert worst <= within, f"found {found}, expected {expected} within {within}"


def const(seed: int = 0) -> None:
    close(values_at(learned(Rules(), 4_096, seed), 0.0), [1.0], 0.05)


def obs(seed: int = 0) -> None:
    state = learned(Rules(random=True, pays="seen"), 4_096, seed)
    close(values_at(state, -1.0, 1.0), [-1.0, 1.0], 0.1)


def two(seed: int = 0) -> None:
    state = learned(Rules(length=2, pays="last"), 8_192, seed)
    close(values_at(state, 0.0, 1.0), [GAMMA, 1.0], 0.1)


def act(seed: int = 0) -> None:
    (right,) = probability_of_second(learned(Rules(pays="action"), 4_096, seed), 0.0)
    assert right >= 0.95, f"the better action has probability {right}"


def both(seed: int = 0) -> None:
    state = learned(Rules(random=True, pays="both"), 8_192, seed)
    low, high = probability_of_second(state, -1.0, 1.0)
    assert min(1.0 - low, high) >= 0.95, f"probabilities of the second action: {low}, {high}"


def trunc(seed: int = 0) -> None:
    """A time limit of ten steps is no end: the value is that of rewards for ever."""
    close(
        values_at(learned(Rules(length=10, cut=True), 16_384, seed), 0.0), [1 / (1 - GAMMA)], 1.0
    )


def term(seed: int = 0) -> None:
    """The observation does not tell the step, so the value is the mean over the ten steps."""
    expected = float(np.mean([(1 - GAMMA**k) / (1 - GAMMA) for k in range(1, 11)]))
    close(values_at(learned(Rules(length=10), 16_384, seed), 0.0), [expected], 1.0)


PROBES = {
    "const": const,
    "obs": obs,
    "two": two,
    "act": act,
    "both": both,
    "trunc": trunc,
    "term": term,
}


def trained(seed: int, n_updates: int = 3) -> tuple[PPOState, np.random.Generator, Probe]:
    """Return a policy after some updates, its generator and its environment."""
    rng = np.random.default_rng(seed)
    state, environment = PPOState.begin(CONFIG, rng), Probe(Rules(length=10, cut=True))
    for after, _, _ in train(state, environment, CONFIG, n_updates=n_updates, rng=rng):
        state = after
    return state, rng, environment
