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
"""Probability channels, best first; ``verdict`` is for judges alone."""
ESTIMATORS: tuple[Estimator, ...] = ("chat_echo", "echo", "chat", "elicited")

NO_THOUGHT_ARM: Final = "none"
"""The arm of the same model without a thought."""
UNMOVED: Final = 1e-9
"""Probabilities that differ by no more are the same."""

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
    """Of the policy; 0: no thought."""
    strategy: str
    log_old: float
    """log pi_old of the action when it was drawn."""
    text: str = ""
    sha256: str = ""
    """Of ``text``."""
    prompt_sha256: str = ""
    prompt: str = ""
    """What the model was asked: messages as JSON."""
    regions: tuple[Region, ...] = ()
    dropped: tuple[str, ...] = ()
    """Why regions that it named were clipped to nothing."""
    committed_us: int | None = None
    """When the text was durable; ``None``: there is none."""
    tokens: int | None = None
    cost_usd: float | None = None
    reason: str | None = None
    """Why it earns no reward (refused, cut off, failed); ``None``: it may earn one."""

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
    """Channel of the predictions; ``None``: none, so that nothing is scored."""
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
    """Candidates that are predicted, in the order they were chosen."""
    notes: tuple[str, ...] = ()
    """Faults, for people."""
    censored: Mapping[str, Mapping[str, tuple[bool, ...]]] = field(default_factory=dict)
    """Thought, or ``none``, → subject → which outcomes lay outside of what the server told: their
    probabilities are bounds."""

    def is_censored(self, thought_id: str, subject: str, outcome: int) -> bool:
        """Whether an outcome's probability is a bound in one of the two arms at least."""
        arms = (self.censored.get(name, {}) for name in (thought_id, NO_THOUGHT_ARM))
        return any(subject in arm and arm[subject][outcome] for arm in arms)

    def moved_nothing(self, thought_id: str) -> bool:
        """Whether a thought was read and left every prediction as it was without it."""
        forecasts = self.forecasts.get(thought_id, {})
        shared = forecasts.keys() & self.no_thought.keys()
        gaps = (np.abs(forecasts[name] - self.no_thought[name]).max() for name in shared)
        return bool(shared) and all(gap <= UNMOVED for gap in gaps)

    def ignored_reason(self, thought: Thought) -> str | None:
        """Return why a thought has no weight in the draws; ``None``: it has.

        A thought whose predictions cannot be read has shown nothing, and one that moved no prediction
        said nothing. Both are known before any outcome.
        """
        if not thought.is_written:
            return thought.reason or "nothing was thought"
        if not self.forecasts.get(thought.thought_id):
            return self.note_on(thought) or "nothing was predicted with it"
        return "it moved no prediction" if self.moved_nothing(thought.thought_id) else None

    def note_on(self, thought: Thought) -> str | None:
        """Return the first fault of a thought's predictions; ``None``: there is none."""
        return next((note for note in self.notes if note.startswith(thought.thought_id)), None)

    @property
    def weighted(self) -> tuple[Thought, ...]:
        """Thoughts that have a weight in the draws."""
        return tuple(t for t in self.thoughts if self.ignored_reason(t) is None)
