"""Simulated world of prompts for an environment."""

from dataclasses import replace

import numpy as np

from convergence_core.policy.prompt_environment import PromptSituation
from convergence_core.policy.prompt_state import PROMPT_ACTIONS, STOP

_CHANGES = tuple(name for name in PROMPT_ACTIONS if name != STOP)


class SimulatedPrompts:
    """Prompts of several categories: what a change is worth depends on it, and on the changes before.

    A prompt is the direction of its category with as much noise. Each change adds what a table of category and
    change says and, for each change before it, what a table of the pair says; the score is measured with noise.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        n_categories: int = 8,
        embedding_dim: int = 64,
        order_effect: float = 0.03,
        noise: float = 0.02,
    ) -> None:
        """Draw the tables.

        Args:
            seed: of the world.
            n_categories: kinds of prompts.
            embedding_dim: numbers in an embedding.
            order_effect: standard deviation of what a pair of changes adds; 0: their order does not matter.
            noise: standard deviation of a measured score.
        """
        rng = np.random.default_rng([77, seed])
        n = len(_CHANGES)
        self.embedding_dim = embedding_dim
        self.gains = rng.normal(0.03, 0.08, size=(n_categories, n))
        """Of a change by itself, (n_categories, n_changes)."""
        self.pairs = order_effect * rng.normal(size=(n_categories, n, n))
        """Added by a change (last axis) after another one, (n_categories, n_changes, n_changes)."""
        directions = rng.normal(size=(n_categories, embedding_dim))
        self.directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        """Of the categories' embeddings, length 1, (n_categories, embedding_dim)."""
        self.noise = noise

    def start(self, rng: np.random.Generator) -> PromptSituation:
        """See ``PromptWorld``; the true score is .5."""
        category = int(rng.integers(len(self.directions)))
        noise = rng.normal(scale=self.embedding_dim**-0.5, size=self.embedding_dim)
        return PromptSituation(
            prompt=f"category {category}",
            embedding=(self.directions[category] + noise).astype(np.float32),
            score=self._measured(0.5, rng),
            worth=0.5,
            category=category,
        )

    def changed(
        self, situation: PromptSituation, action: str, rng: np.random.Generator
    ) -> PromptSituation:
        """See ``PromptWorld``."""
        c, a = situation.category, _CHANGES.index(action)
        before = [_CHANGES.index(name) for name in situation.history]
        gain = float(self.gains[c, a] + self.pairs[c, before, a].sum())
        worth = min(1.0, max(0.0, situation.worth + gain))
        return replace(
            situation,
            prompt=f"{situation.prompt}, {action}",
            worth=worth,
            score=self._measured(worth, rng),
            history=(*situation.history, action),
        )

    def _measured(self, worth: float, rng: np.random.Generator) -> float:
        return min(1.0, max(0.0, worth + self.noise * float(rng.normal())))
