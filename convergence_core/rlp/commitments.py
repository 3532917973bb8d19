"""A generation's thought and forecasts, fixed before any of its outcomes.

A commitment holds everything for scoring except the outcomes. So a reader of the tables can check
every gain, and a resumed run scores exactly the committed forecasts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np

from convergence_core.records import Params
from convergence_core.rlp.quantiles import Quantiles

ThoughtKind: TypeAlias = Literal["none", "notes", "start"]
ACTIONS: Final[tuple[ThoughtKind, ...]] = ("none", "notes")
"""Actions of the policy: forecasts alone, or notes first. ``start``, before the first generation,
is not an action.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedSetting:
    """Setting that the model proposes for evaluation."""

    candidate_id: str
    params: Params
    forecast: Quantiles | None
    """Forecast of its score; ``None`` if the model gave no readable one."""


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
    """Omitted parts of the reply, with reasons."""
    committed_us: int | None = None
    """Time when the reply was durable; ``None`` without one."""
    tokens: int | None = None
    """Number of tokens in the reply."""
    cost_usd: float | None = None
    reason: str | None = None
    """Why it has no content (refused, cut off, unreadable, failed); ``None`` if it has."""

    @property
    def shown(self) -> str:
        """Text to display: its notes, or else the reply."""
        return self.notes or self.text


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Commitment:
    """A generation's thought, and the posterior's forecasts of the same candidates."""

    generation: int
    state: np.ndarray
    """s_g, (N_FEATURES,)."""
    thought: Thought | None = None
    """``None`` if the model was not called because no place could be advised."""
    subjects: tuple[str, ...] = ()
    """Candidates chosen without the thought, in the order of their choice."""
    posterior: Mapping[str, Quantiles] = field(default_factory=dict)
    """Candidate → forecast of the search's posterior."""
    easier: Mapping[str, float] = field(default_factory=dict)
    """Case → estimated excess of its scores over the mean of all cases; subtracted from outcomes.
    """
    committed_us: int | None = None
    """Time when the reply was durable; ``None`` without one."""

    @property
    def forecasts(self) -> Mapping[str, Quantiles]:
        """Candidate chosen without the thought → the model's forecast."""
        return {} if self.thought is None else self.thought.forecasts

    @property
    def settings(self) -> Sequence[ProposedSetting]:
        """Settings that the model proposed."""
        return () if self.thought is None else self.thought.settings
