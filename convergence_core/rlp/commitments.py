"""What is fixed before any outcome of a generation is known: thoughts, and what they predict.

A commitment holds everything that scoring needs but the outcomes, so a reader of the tables can
check every gain, and a resumed run scores what was committed and nothing else.

Notation: G thoughts drawn, m candidates (or pairs) whose outcome is predicted, ``subjects``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from convergence_core.rlp.regions import Region

Estimator: TypeAlias = Literal["echo", "decisions", "chat", "elicited", "pairwise", "verdict"]
"""Rungs of the ladder of probability channels, best first; ``verdict`` is for judges alone."""
ESTIMATORS: tuple[Estimator, ...] = ("echo", "decisions", "chat", "elicited", "pairwise")

Forecasts: TypeAlias = Mapping[str, np.ndarray]
"""Subject → distribution of its outcome as the channel gave it, (n_outcomes,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """One text, written before the outcomes it is judged by."""

    thought_id: str
    generation: int
    index: int
    """Number among the thoughts drawn in its generation, from 0."""
    action: int
    """Of the policy; 0: nothing is thought."""
    strategy: str
    log_old: float
    """log pi_old of the action when it was drawn."""
    text: str = ""
    sha256: str = ""
    """Of ``text``."""
    prompt_sha256: str = ""
    regions: tuple[Region, ...] = ()
    committed_us: int | None = None
    """When the text was durable; ``None``: there is none."""
    tokens: int | None = None
    cost_usd: float | None = None
    reason: str | None = None
    """Why it earns no reward (refused, cut off, failed); ``None``: it may earn one."""

    @property
    def is_silent(self) -> bool:
        """Whether it is the action "no thought"."""
        return self.action == 0

    @property
    def speaks(self) -> bool:
        """Whether it has a text that may be judged."""
        return not self.is_silent and self.reason is None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Commitment:
    """A generation's thoughts and predictions."""

    generation: int
    state: np.ndarray
    """s_g, (N_FEATURES,)."""
    thoughts: tuple[Thought, ...]
    """All that were drawn, the silent and the failed ones included."""
    estimator: Estimator | None = None
    """Which rung predicted; ``None``: none, so that nothing is scored."""
    forecasts: Mapping[str, Forecasts] = field(default_factory=dict)
    """Thought → what was predicted with it; a missing subject voids that pair alone."""
    no_thought: Forecasts = field(default_factory=dict)
    """What the same model predicted without a thought."""
    statistical: Forecasts = field(default_factory=dict)
    """What the statistical posterior predicted."""
    rescored: Mapping[str, Forecasts] = field(default_factory=dict)
    """Thought of an earlier generation → what is predicted with it now."""
    committed_us: int | None = None
    """When the last prediction was durable; ``None``: there is none."""
    subjects: tuple[str, ...] = ()
    """What is predicted: candidates, or pairs ``a|b``, in the order they were chosen."""
    notes: tuple[str, ...] = ()
    """What went wrong, for people."""


def pair_of(first: str, second: str) -> str:
    """Return the subject of a pair of candidates."""
    return f"{first}|{second}"


def pairs_among(candidate_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Return neighbours as pairs, each candidate in one: outcomes of pairs stay apart."""
    return list(zip(candidate_ids[::2], candidate_ids[1::2], strict=False))
