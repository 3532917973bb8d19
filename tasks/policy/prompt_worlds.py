"""Worlds of prompts for an environment, simulated or scored by a function."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from convergence_core.config.prompts import OperatorName
from convergence_core.judges.text_features import hashed_ngrams
from convergence_core.policy.prompt_environment import PromptSituation
from convergence_core.policy.prompt_state import PROMPT_ACTIONS, REFLECT, STOP
from convergence_core.prompts.twins import written_by_rules

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
        self.excluded: tuple[str, ...] = ()
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


class ScoredPrompts:
    """Prompts of yours, changed by rules or a function, and scored by a function."""

    def __init__(
        self,
        prompts: Sequence[str],
        score: Callable[[str], float],
        *,
        change: Callable[[str, str], str | None] | None = None,
        embed: Callable[[str], Sequence[float]] | None = None,
        embedding_dim: int = 1536,
    ) -> None:
        """Keep the prompts.

        Args:
            prompts: those to begin with.
            score: prompt → its mean score on the same cases each time, in [0, 1]; asked once for each text.
            change: (prompt, action) → the text after it, ``None``: there is none; by default rules.
            embed: prompt → its embedding; by default hashed n-grams, which know no meanings.
            embedding_dim: numbers in an embedding.

        Raises:
            ValueError: no prompt is given.
        """
        if not prompts:
            raise ValueError("`prompts` must hold at least one prompt, but is empty")
        self.embedding_dim = embedding_dim
        # Rules have no failures to look at.
        self.excluded: tuple[str, ...] = (REFLECT,) if change is None else ()
        self._prompts, self._score = tuple(prompts), score
        self._change, self._embed = change, embed
        self._scores: dict[str, float] = {}

    @property
    def n_evaluations(self) -> int:
        """Texts that were scored so far."""
        return len(self._scores)

    def start(self, rng: np.random.Generator) -> PromptSituation:
        """See ``PromptWorld``."""
        return self._situation(self._prompts[int(rng.integers(len(self._prompts)))], ())

    def changed(
        self, situation: PromptSituation, action: str, rng: np.random.Generator
    ) -> PromptSituation:
        """See ``PromptWorld``; a change that gives no text leaves the prompt as it is."""
        text: str | None
        if self._change is not None:
            text = self._change(situation.prompt, action)
        else:
            operator = cast("OperatorName", action)
            text = written_by_rules(operator, (situation.prompt,), (), rng).text
        return self._situation(text or situation.prompt, (*situation.history, action))

    def _situation(self, prompt: str, history: tuple[str, ...]) -> PromptSituation:
        score = self._scores.get(prompt)
        if score is None:
            score = self._scores[prompt] = float(self._score(prompt))
        embedding: Any = (
            hashed_ngrams(prompt, self.embedding_dim)
            if self._embed is None
            else self._embed(prompt)
        )
        return PromptSituation(
            prompt=prompt,
            embedding=np.asarray(embedding, dtype=np.float64),
            score=score,
            history=history,
        )
