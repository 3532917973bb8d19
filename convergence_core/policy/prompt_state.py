"""State and legal actions of a policy that chooses changes of a prompt.

An observation holds the prompt's embedding at length 1, the use count of each action, the last
action, the share of finished steps, the main category of the failures, and the score with a flag
that it is known. An action is used once in an episode. ``stop`` is always legal: if every episode
had to use all actions and their effects added up, no choice would matter and nothing could be
learned.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.errors import PolicyRequestError
from convergence_core.policy.distribution import Bools
from convergence_core.policy.network import Floats
from convergence_core.records import CATEGORIES, Category

MUTATION_ACTIONS: Final = (
    "try-catch-style",
    "context-reduction",
    "expansion",
    "constraint-addition",
    "task-decomposition",
)
"""Edits that need only the prompt."""
REFLECT: Final = "reflect"
"""A rewriting that needs failures, or cases with their answers."""
STOP: Final = "stop"
PROMPT_ACTIONS: Final = (*MUTATION_ACTIONS, REFLECT, STOP)
"""All actions, in the order of the logits."""
N_PROGRESS: Final = 2 * len(PROMPT_ACTIONS) + 1 + len(CATEGORIES) + 2
"""Number of features in an observation after the embedding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptEpisode:
    """An episode of changes of one prompt, up to now.

    Raises:
        PolicyRequestError: the history breaks a rule.
    """

    history: tuple[str, ...] = ()
    """Earlier actions, in order; never ``stop``."""
    max_steps: int = 5
    """Maximum changes in one episode, 1 or more."""
    category: Category = "none"
    """Main category of the prompt's failures."""
    score: float | None = None
    """Current mean score of the prompt, in [0, 1]; ``None`` if unknown."""

    def __post_init__(self) -> None:
        if STOP in self.history:
            rule = ", ".join(PROMPT_ACTIONS[:-1])
            raise PolicyRequestError(f"`history` must hold actions among {rule}, but got {STOP!r}")
        if len(set(self.history)) < len(self.history):
            raise PolicyRequestError("`history` must name each action at most once")
        if len(self.history) > self.max_steps:
            raise PolicyRequestError(
                f"`history` must have at most {self.max_steps} actions, but got {len(self.history)}"
            )

    def observation(self, embedding: Sequence[float] | Floats) -> Floats:
        """Return what the policy sees, (len(embedding) + N_PROGRESS,).

        Raises:
            PolicyRequestError: the embedding is no direction: a number is not finite, or all are 0.
        """
        used = [float(name in self.history) for name in PROMPT_ACTIONS]
        last = [float(self.history[-1:] == (name,)) for name in PROMPT_ACTIONS]
        kind = [float(name == self.category) for name in CATEGORIES]
        known = self.score is not None
        rest = [*used, *last, len(self.history) / self.max_steps, *kind, self.score or 0.0, known]
        return np.concatenate((direction(embedding), np.array(rest, dtype=np.float32)))

    def legal(self, excluded: Collection[str] = ()) -> Bools:
        """Return which actions are legal, (n_actions,).

        Unused actions and ``stop`` are legal; after ``max_steps`` changes only ``stop`` is.

        Args:
            excluded: Actions that cannot be applied; ``stop`` always can.
        """
        is_over = len(self.history) == self.max_steps
        barred = ({*PROMPT_ACTIONS} if is_over else {*self.history, *excluded}) - {STOP}
        return np.array([name not in barred for name in PROMPT_ACTIONS])


def direction(embedding: Sequence[float] | Floats) -> Floats:
    """Return an embedding at length 1, in 32 bits.

    Raises:
        PolicyRequestError: it has none: a number is not finite, or all are 0.
    """
    vector = np.asarray(embedding, dtype=np.float64)
    largest = float(np.abs(vector).max(initial=0.0))
    if not 0.0 < largest < math.inf:
        raise PolicyRequestError("`embedding` must hold finite numbers, not all of them 0")
    vector = vector / largest  # else squares of huge or tiny numbers leave the range
    unit: Floats = (vector / np.sqrt(vector @ vector)).astype(np.float32)
    return unit
