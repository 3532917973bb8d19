"""Episodes of prompt changes in a world: rewards, legal actions, where they end.

    r_t = score_t - score_(t-1)                                                                    (1)

with both scores on the same cases (T. Zhang et al., "TEMPERA", 2023, section 3.3), so that the rewards of an
episode add up to what its prompt has gained. ``stop`` ends an episode, as does the last of its steps, and an
action that is not legal; both earn 0.

Notation: N environments, d numbers in an observation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from convergence_core.policy.distribution import Bools, Ints
from convergence_core.policy.network import Floats
from convergence_core.policy.prompt_state import N_PROGRESS, PROMPT_ACTIONS, STOP, PromptEpisode
from convergence_core.policy.rollout import EnvironmentStep, Offer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PromptSituation:
    """A prompt as it is now."""

    prompt: str
    embedding: Floats
    """(n,)."""
    score: float
    """As measured, in [0, 1]."""
    worth: float = 0.0
    """True score, where the world is simulated."""
    category: int = 0
    """Kind of the prompt, where the world is simulated."""
    history: tuple[str, ...] = ()
    """Changes that were made, in their order."""


class PromptWorld(Protocol):
    """Prompts to begin with, and what changes make of them."""

    @property
    def embedding_dim(self) -> int:
        """Numbers in an embedding."""

    def start(self, rng: np.random.Generator) -> PromptSituation:
        """Draw a prompt to begin with."""

    def changed(
        self, situation: PromptSituation, action: str, rng: np.random.Generator
    ) -> PromptSituation:
        """Make a change."""


class PromptEnvironment:
    """One prompt at a time, changed step by step."""

    def __init__(self, world: PromptWorld, *, max_steps: int = 5) -> None:
        """Begin over a world.

        Args:
            world: prompts and what changes make of them.
            max_steps: changes in one episode.
        """
        self._world, self._max_steps = world, max_steps
        self._situation: PromptSituation | None = None

    @property
    def dim(self) -> int:
        """Numbers in an observation, d."""
        return self._world.embedding_dim + N_PROGRESS

    @property
    def situation(self) -> PromptSituation:
        """The prompt as it is now.

        Raises:
            LookupError: no episode has begun.
        """
        if self._situation is None:
            raise LookupError("no episode has started")
        return self._situation

    def begin(self, rng: np.random.Generator) -> None:
        """Draw a prompt, and begin an episode with it."""
        self._situation = self._world.start(rng)

    def act(self, action: int, rng: np.random.Generator) -> tuple[float, bool]:
        """Do an action; return its reward, and whether the episode ended with it.

        Raises:
            LookupError: no episode has begun.
        """
        before, name = self.situation, PROMPT_ACTIONS[action]
        if name == STOP or not self.legal()[action]:
            return 0.0, True
        after = self._situation = self._world.changed(before, name, rng)
        return after.score - before.score, len(after.history) == self._max_steps  # (eq. 1)

    @property
    def episode(self) -> PromptEpisode:
        """The episode as it is now."""
        now = self.situation
        return PromptEpisode(history=now.history, max_steps=self._max_steps, score=now.score)

    def observation(self) -> Floats:
        """Return what a policy sees now, (d,)."""
        return self.episode.observation(self.situation.embedding)

    def legal(self) -> Bools:
        """Return which actions are legal now, (n_actions,)."""
        return self.episode.legal()


class PromptEnvironments:
    """N environments, stepped together.

    Where an episode ends, the next one begins within the same step, so that each row of a rollout is a real step.
    """

    def __init__(self, copies: Sequence[PromptEnvironment]) -> None:
        """Play these; each draws from a stream of its own."""
        self._copies = tuple(copies)
        self._streams: list[np.random.Generator] = []

    def reset(self, rng: np.random.Generator) -> Offer:
        """Begin an episode in each copy."""
        self._streams = [*rng.spawn(len(self._copies))]
        for environment, stream in zip(self._copies, self._streams, strict=True):
            environment.begin(stream)
        return self._offer()

    def step(self, actions: Ints) -> EnvironmentStep:
        """Do an action in each copy, (N,)."""
        rewards, ends, finals = [], [], []
        for environment, stream, action in zip(self._copies, self._streams, actions, strict=True):
            reward, is_over = environment.act(int(action), stream)
            rewards.append(reward)
            ends.append(is_over)
            finals.append(environment.observation())
            if is_over:
                environment.begin(stream)
        return EnvironmentStep(
            offer=self._offer(),
            rewards=np.array(rewards),
            terminated=np.array(ends),
            truncated=np.zeros(len(ends), dtype=bool),
            final_observations=np.stack(finals),
        )

    def _offer(self) -> Offer:
        return Offer(
            observations=np.stack([environment.observation() for environment in self._copies]),
            legal=np.stack([environment.legal() for environment in self._copies]),
        )
