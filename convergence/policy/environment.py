"""Gymnasium environment of prompt changes: ``convergence/PromptMutation-v0``.

::

    import gymnasium
    import convergence.policy.environment

    environment = gymnasium.make("convergence/PromptMutation-v0")

Needs the extra ``policy``. Importing this module registers the environment.
"""

from collections.abc import Sequence
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

from convergence.policy.prompt_worlds import PromptSituation, PromptWorld, SimulatedPrompts
from convergence_core.policy import (
    N_PROGRESS,
    PROMPT_ACTIONS,
    STOP,
    EnvironmentStep,
    Offer,
    PromptEpisode,
)
from convergence_core.policy.distribution import Bools, Ints
from convergence_core.policy.network import Floats

ENVIRONMENT_ID: Final = "convergence/PromptMutation-v0"


class PromptMutationEnvironment(gymnasium.Env[Floats, np.int64]):
    """Changes of one prompt: an observation is what the served policy sees, an action one of its actions.

    The reward is the score after a change less the score before it, less the price of the change. ``stop`` ends the
    episode, as does the last of its steps, and an action that is not legal: it changes nothing and earns 0. ``info``
    holds ``action_mask``, ``prompt`` and ``score``; ``action_masks`` is what maskable policies ask.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - of the interface

    def __init__(
        self,
        world: PromptWorld | None = None,
        *,
        max_steps: int = 5,
        prices: Sequence[float] | None = None,
    ) -> None:
        """Begin over a world.

        Args:
            world: prompts and what changes make of them; by default a simulated one.
            max_steps: changes in one episode.
            prices: reward that each action costs, in the order of ``PROMPT_ACTIONS``; ``None``: nothing.

        Raises:
            ValueError: there is not one price for each action.
        """
        self._world: PromptWorld = world or SimulatedPrompts()
        self._max_steps = max_steps
        self._prices = tuple(prices or [0.0] * len(PROMPT_ACTIONS))
        if len(self._prices) != len(PROMPT_ACTIONS):
            raise ValueError(
                f"`prices` must have {len(PROMPT_ACTIONS)} numbers, but got {len(self._prices)}"
            )
        size = self._world.embedding_dim + N_PROGRESS
        self.observation_space = spaces.Box(-1.0, 1.0, (size,), np.float32)
        self.action_space = spaces.Discrete(len(PROMPT_ACTIONS))
        self._situation: PromptSituation | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Draw a prompt."""
        super().reset(seed=seed, options=options)
        self._situation = self._world.start(self.np_random)
        return self._observation(), self._info()

    def step(self, action: np.int64) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Do an action.

        Raises:
            gymnasium.error.ResetNeeded: no episode has begun.
        """
        before, name = self._now(), PROMPT_ACTIONS[int(action)]
        is_legal = bool(self.action_masks()[int(action)])
        if name == STOP or not is_legal:
            return self._observation(), 0.0, True, False, self._info() | {"is_legal": is_legal}
        after = self._situation = self._world.changed(before, name, self.np_random)
        reward = after.score - before.score - self._prices[int(action)]
        is_over = len(after.history) == self._max_steps
        return self._observation(), reward, is_over, False, self._info() | {"is_legal": True}

    def action_masks(self) -> Bools:
        """Return which actions are legal, (n_actions,)."""
        return self._episode().legal(self._world.excluded)

    def _now(self) -> PromptSituation:
        if self._situation is None:
            raise gymnasium.error.ResetNeeded("`reset` must be called before anything else")
        return self._situation

    def _episode(self) -> PromptEpisode:
        now = self._now()
        return PromptEpisode(history=now.history, score=now.score, max_steps=self._max_steps)

    def _observation(self) -> Floats:
        return self._episode().observation(self._now().embedding)

    def _info(self) -> dict[str, Any]:
        now = self._now()
        mask = self.action_masks().astype(np.int8)
        return {"action_mask": mask, "prompt": now.prompt, "score": now.score}


class EnvironmentCopies:
    """Copies of the environment, stepped together, as a policy of ``convergence_core`` plays them.

    Where an episode ends, the next one begins within the same step, so that each row of a rollout is a real step.
    """

    def __init__(self, copies: Sequence[PromptMutationEnvironment]) -> None:
        """Play these; each draws from a stream of its own."""
        self._copies = tuple(copies)

    def reset(self, rng: np.random.Generator) -> Offer:
        """Begin an episode in each copy."""
        seeds = rng.integers(2**31, size=len(self._copies))
        seen = [
            one.reset(seed=int(seed))[0] for one, seed in zip(self._copies, seeds, strict=True)
        ]
        return self._offer(seen)

    def step(self, actions: Ints) -> EnvironmentStep:
        """Do an action in each copy, (n,)."""
        n = len(self._copies)
        seen, finals = [], []
        rewards, terminated, truncated = np.zeros(n), np.zeros(n, bool), np.zeros(n, bool)
        for at, (one, action) in enumerate(zip(self._copies, actions, strict=True)):
            observation, rewards[at], terminated[at], truncated[at], _ = one.step(action)
            finals.append(observation)
            seen.append(one.reset()[0] if terminated[at] or truncated[at] else observation)
        return EnvironmentStep(
            offer=self._offer(seen),
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            final_observations=np.stack(finals),
        )

    def _offer(self, seen: list[Floats]) -> Offer:
        masks = [one.action_masks() for one in self._copies]
        return Offer(observations=np.stack(seen), legal=np.stack(masks))


if ENVIRONMENT_ID not in gymnasium.registry:
    gymnasium.register(
        id=ENVIRONMENT_ID, entry_point=f"{__name__}:{PromptMutationEnvironment.__name__}"
    )
