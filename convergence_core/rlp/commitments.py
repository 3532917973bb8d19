"""A generation's thought and forecasts, fixed before any of its outcomes.

A commitment holds everything that scoring needs but the outcomes, so a reader of the tables can
check every gain, and a resumed run scores what was committed and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np

from convergence_core.records import Params
from convergence_core.rlp.quantiles import Quantiles

ThoughtKind: TypeAlias = Literal["none", "notes", "start"]
ACTIONS: Final[tuple[ThoughtKind, ...]] = ("none", "notes")
"""Actions of the policy: forecasts alone, or notes first. ``start``, before the first generation, is no action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedSetting:
    """Setting that the model wants to see evaluated."""

    candidate_id: str
    params: Params
    forecast: Quantiles | None
    """Of its score; ``None`` if the model gave none that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """One answer of the model, written before the outcomes that score it."""

    thought_id: str
    generation: int
    kind: ThoughtKind
    log_propensity: float = 0.0
    """Log-probability of the kind at the time of the choice."""
    text: str = ""
    """The whole reply."""
    sha256: str = ""
    """SHA-256 of ``text``."""
    prompt: str = ""
    """Prompt to the model: messages as JSON."""
    prompt_sha256: str = ""
    notes: str = ""
    forecasts: Mapping[str, Quantiles] = field(default_factory=dict)
    """Candidate → forecast of its score."""
    settings: tuple[ProposedSetting, ...] = ()
    dropped: tuple[str, ...] = ()
    """What of the reply was left out, and why."""
    committed_us: int | None = None
    """Time when the reply was durable; ``None`` without one."""
    tokens: int | None = None
    """Of the reply."""
    cost_usd: float | None = None
    reason: str | None = None
    """Why it says nothing (refused, cut off, unreadable, failed); ``None`` if it does."""

    @property
    def shown(self) -> str:
        """What people read of it: its notes, or else the reply."""
        return self.notes or self.text


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Commitment:
    """A generation's thought, and the posterior's forecasts of the same candidates."""

    generation: int
    state: np.ndarray
    """s_g, (N_FEATURES,)."""
    thought: Thought | None = None
    """``None`` if the model was not asked, since no place could be advised."""
    subjects: tuple[str, ...] = ()
    """Candidates chosen without the thought, in the order of their choice."""
    posterior: Mapping[str, Quantiles] = field(default_factory=dict)
    """Candidate → forecast of the search's posterior."""
    easier: Mapping[str, float] = field(default_factory=dict)
    """Case → by how much its scores are known to lie above the mean over cases; taken off outcomes."""
    committed_us: int | None = None
    """Time when the reply was durable; ``None`` without one."""

    @property
    def forecasts(self) -> Mapping[str, Quantiles]:
        """Candidate chosen without the thought → the model's forecast."""
        return {} if self.thought is None else self.thought.forecasts

    @property
    def settings(self) -> Sequence[ProposedSetting]:
        """Settings of the model's own."""
        return () if self.thought is None else self.thought.settings
