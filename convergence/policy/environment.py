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

from convergence_core.policy.distribution import Bools
from convergence_core.policy.network import Floats
from convergence_core.policy.prompt_environment import PromptEnvironment, PromptWorld
from convergence_core.policy.prompt_state import PROMPT_ACTIONS
from tasks.policy.prompt_worlds import SimulatedPrompts

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
        self._inner = PromptEnvironment(
            world or SimulatedPrompts(), max_steps=max_steps, prices=prices
        )
        self._has_begun = False
        self.observation_space = spaces.Box(-1.0, 1.0, (self._inner.dim,), np.float32)
        self.action_space = spaces.Discrete(len(PROMPT_ACTIONS))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Draw a prompt."""
        super().reset(seed=seed, options=options)
        self._inner.begin(self.np_random)
        self._has_begun = True
        return self._inner.observation(), self._info()

    def step(self, action: np.int64) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Do an action.

        Raises:
            gymnasium.error.ResetNeeded: no episode has begun.
        """
        if not self._has_begun:
            raise gymnasium.error.ResetNeeded("`reset` must be called before anything else")
        is_legal = bool(self.action_masks()[action])
        reward, is_over = self._inner.act(int(action), self.np_random)
        info = self._info() | {"is_legal": is_legal}
        return self._inner.observation(), reward, is_over, False, info

    def action_masks(self) -> Bools:
        """Return which actions are legal, (n_actions,)."""
        return self._inner.legal()

    def _info(self) -> dict[str, Any]:
        now = self._inner.situation
        mask = self.action_masks().astype(np.int8)
        return {"action_mask": mask, "prompt": now.prompt, "score": now.score}


if ENVIRONMENT_ID not in gymnasium.registry:
    gymnasium.register(
        id=ENVIRONMENT_ID, entry_point=f"{__name__}:{PromptMutationEnvironment.__name__}"
    )
