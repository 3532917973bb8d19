"""Thoughts and predictions of a generation, fixed before any of its outcomes.

A commitment holds everything that scoring needs but the outcomes, so a reader of the tables can
check every gain, and a resumed run scores what was committed and nothing else.

Notation: G thoughts drawn, m candidates whose outcome is predicted, ``subjects``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np

from convergence_core.rlp.bins import TENTHS, RewardBins
from convergence_core.rlp.regions import Region

Estimator: TypeAlias = Literal["chat_echo", "echo", "chat", "elicited", "verdict"]
"""Probability channels, best first; ``verdict`` is for judges only."""
ESTIMATORS: tuple[Estimator, ...] = ("chat_echo", "echo", "chat", "elicited")

NO_THOUGHT_ARM: Final = "none"
"""Arm of the same model without a hypothesis."""
UNMOVED: Final = 1e-9
"""Probabilities that differ by at most this count as equal."""

Forecasts: TypeAlias = Mapping[str, np.ndarray]
"""Subject → distribution of its outcome as reported by the channel, (n_outcomes,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """One hypothesis, written before the outcomes that score it."""

    thought_id: str
    generation: int
    index: int
    """Index among the hypotheses of its generation, from 0."""
    action: int
    """Strategy index; 0 means no hypothesis."""
    strategy: str
    log_old: float
    """log pi_old of the action at the time of the choice."""
    text: str = ""
    sha256: str = ""
    """SHA-256 of ``text``."""
    prompt_sha256: str = ""
    prompt: str = ""
    """Prompt to the model: messages as JSON."""
    regions: tuple[Region, ...] = ()
    dropped: tuple[str, ...] = ()
    """Why the hypothesis's regions were clipped to nothing."""
    committed_us: int | None = None
    """Time when the text was durable; ``None`` without a text."""
    tokens: int | None = None
    cost_usd: float | None = None
    reason: str | None = None
    """Why it earns no reward (refused, cut off, failed); ``None`` if it may earn one."""

    @property
    def is_no_op(self) -> bool:
        """Whether it is the action "no thought"."""
        return self.action == 0

    @property
    def is_written(self) -> bool:
        """Whether it has a text that may be judged."""
        return not self.is_no_op and self.reason is None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Commitment:
    """A generation's thoughts and predictions."""

    generation: int
    state: np.ndarray
    """s_g, (N_FEATURES,)."""
    thoughts: tuple[Thought, ...]
    """All that were drawn, those without a text included."""
    bins: RewardBins = TENTHS
    easier: Mapping[str, float] = field(default_factory=dict)
    """Case → by how much its rewards are known to lie above the mean over cases; taken off outcomes."""
    estimator: Estimator | None = None
    """Channel of the predictions; ``None`` without one, so that nothing is scored."""
    forecasts: Mapping[str, Forecasts] = field(default_factory=dict)
    """Hypothesis → predictions with it; a missing subject voids only that pair."""
    no_thought: Forecasts = field(default_factory=dict)
    """Predictions of the same model without a hypothesis."""
    statistical: Forecasts = field(default_factory=dict)
    """Predictions of the statistical posterior."""
    rescored: Mapping[str, Forecasts] = field(default_factory=dict)
    """Hypothesis of an earlier generation → present predictions with it."""
    committed_us: int | None = None
    """Time when the last prediction was durable; ``None`` without one."""
    subjects: tuple[str, ...] = ()
    """Candidates with predictions, in the order of their choice."""
    notes: tuple[str, ...] = ()
    """Failures, for display."""
    censored: Mapping[str, Mapping[str, tuple[bool, ...]]] = field(default_factory=dict)
    """Hypothesis, or ``none``, → subject → which outcomes the server's answer omitted, so that
    their probabilities are bounds."""

    def is_censored(self, thought_id: str, subject: str, outcome: int) -> bool:
        """Whether an outcome's probability is a bound in at least one of the two arms."""
        arms = (self.censored.get(name, {}) for name in (thought_id, NO_THOUGHT_ARM))
        return any(subject in arm and arm[subject][outcome] for arm in arms)

    def moved_nothing(self, thought_id: str) -> bool:
        """Whether a hypothesis left every prediction unchanged."""
        forecasts = self.forecasts.get(thought_id, {})
        shared = forecasts.keys() & self.no_thought.keys()
        gaps = (np.abs(forecasts[name] - self.no_thought[name]).max() for name in shared)
        return bool(shared) and all(gap <= UNMOVED for gap in gaps)

    def ignored_reason(self, thought: Thought) -> str | None:
        """Return why a thought has no weight in the draws; ``None`` if it has.

        A thought whose predictions cannot be read has shown nothing, and one that moved no prediction
        said nothing. Both are known before any outcome.
        """
        if not thought.is_written:
            return thought.reason or "nothing was thought"
        if not self.forecasts.get(thought.thought_id):
            return self.note_on(thought) or "nothing was predicted with it"
        return "it moved no prediction" if self.moved_nothing(thought.thought_id) else None

    def note_on(self, thought: Thought) -> str | None:
        """Return the first failure of a hypothesis's predictions; ``None`` without one."""
        return next((note for note in self.notes if note.startswith(thought.thought_id)), None)

    @property
    def weighted(self) -> tuple[Thought, ...]:
        """Hypotheses with a weight in the draws."""
        return tuple(t for t in self.thoughts if self.ignored_reason(t) is None)
