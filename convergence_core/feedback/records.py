"""Records of logged answers, ratings and comparisons, and the rating scales.

A *rating* is a person's mark of one answer from 1 to 5; *thumbs* are a binary mark. An unmarked
answer has no reward: it is missing, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

from convergence_core.errors import FeedbackRefusedError, Problem
from convergence_core.records import Json

LABELS: Final[Mapping[int, str]] = {
    1: "Poor",
    2: "Average",
    3: "Good",
    4: "Excellent",
    5: "Outstanding",
}
"""Rating → label."""
LOWEST, HIGHEST = min(LABELS), max(LABELS)
SCALE: Final = ", ".join(f"{rating} {label}" for rating, label in LABELS.items())
"""Description of the scale, for prompts and messages."""

Thumbs = Literal["up", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """Message of a prompt."""

    role: str
    """``system``, ``user`` or ``assistant``."""
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """One logged prompt with its answer."""

    interaction_id: str
    source: str
    """Origin of the answer, e.g. ``chat`` or ``api``."""
    event_id: str
    """The source's id of the event; logging it again stores nothing."""
    role: str
    """Persona that answered, e.g. ``assistant``."""
    user_id: str
    """Recipient of the answer."""
    model: str
    messages: tuple[ChatMessage, ...]
    """Prompt; its last message is the question."""
    response: str
    created_us: int
    """Time of the answer."""
    conversation_id: str | None = None
    adapter_version: str | None = None
    """Version of the adapter that answered; ``None`` if there is none or it is unknown."""
    template_hash: str | None = None
    """SHA-256 of the prompt template; ``None`` if unknown."""
    sampling: Mapping[str, Json] = field(default_factory=dict)
    """Sampling settings, e.g. ``temperature``."""
    logprobs: tuple[float, ...] | None = None
    """Log-probability of each token of the response, nats; ``None`` if not reported."""
    n_input_tokens: int | None = None
    n_output_tokens: int | None = None
    latency_s: float | None = None
    """Seconds until the response was complete."""
    cost_usd: float | None = None
    system: str | None = None
    """System whose arm answered; ``None`` if no arm was chosen."""
    decision_id: str | None = None
    """Decision that chose the arm; a rating rewards it."""
    is_shared: bool = False
    """Whether other users may rate it."""
    thinking: str | None = None
    """The model's reasoning before the response, not part of it; ``None`` if unknown."""

    def is_same_answer(self, other: "Interaction") -> bool:
        """Return whether a reader cannot distinguish two answers."""
        return self.response.strip() == other.response.strip()

    @property
    def asked(self) -> tuple[ChatMessage, ...]:
        """Prompt without system messages, whose wording may differ between arms."""
        return tuple(message for message in self.messages if message.role != "system")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """A user's mark of one answer: 1 to 5, or thumbs."""

    interaction_id: str
    user_id: str
    """Rater."""
    rating: int | None = None
    """1 to 5; ``None`` for thumbs."""
    thumbs: Thumbs | None = None
    reason: str | None = None
    """Explanation in the user's words."""
    source: str = "api"
    event_id: str = ""
    """The source's id of this rating; empty without one."""
    created_us: int = 0

    def __post_init__(self) -> None:
        """Validate the mark.

        Raises:
            FeedbackRefusedError: rating and thumbs are both given, both missing, or off their
                scale.
        """
        if (self.rating is None) == (self.thumbs is None):
            given = "both" if self.rating is not None else "neither"
            raise refused(
                "rating", "or `thumbs` must be given, and not both", given, "Give one of them."
            )
        if self.rating is not None:
            check_rating(self.rating)
        if self.thumbs not in {None, "up", "down"}:
            raise refused("thumbs", "must be up or down", "another value", "Give one of these.")

    @property
    def reward(self) -> float:
        """Reward in [-1, 1]: ``(rating - 3) / 2``; 1 and -1 for thumbs."""
        if self.rating is not None:
            return (self.rating - 3) / 2
        return 1.0 if self.thumbs == "up" else -1.0

    @property
    def arm_reward(self) -> float:
        """Reward of the arm that answered, in [0, 1]: ``(rating - 1) / 4``; 1 and 0 for thumbs."""
        return (self.reward + 1) / 2

    @property
    def words(self) -> str:
        """Mark in words, e.g. ``4 Excellent``."""
        if self.rating is not None:
            return f"{self.rating} {LABELS[self.rating]}"
        return f"thumbs {self.thumbs}"

    def is_same_mark(self, other: "Rating | None") -> bool:
        """Return whether another rating has the same mark and reason."""
        return other is not None and (self.rating, self.thumbs, self.reason) == (
            other.rating,
            other.thumbs,
            other.reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerComparison:
    """A user's choice of the better of two answers to one prompt."""

    chosen_id: str
    """Interaction with the better answer."""
    rejected_id: str
    user_id: str
    first_id: str | None = None
    """Interaction that was displayed first; ``None`` if unknown."""
    reason: str | None = None
    source: str = "api"
    event_id: str = ""
    """The source's id of this comparison; empty without one."""
    created_us: int = 0

    def __post_init__(self) -> None:
        """Validate the interactions.

        Raises:
            FeedbackRefusedError: both are the same, or ``first_id`` is neither of them.
        """
        if self.chosen_id == self.rejected_id:
            raise refused(
                "rejected_id",
                "must be another interaction than `chosen_id`",
                self.rejected_id,
                "Give the ids of the two answers.",
            )
        if self.first_id not in {None, self.chosen_id, self.rejected_id}:
            raise refused(
                "first_id",
                "must be `chosen_id` or `rejected_id`",
                str(self.first_id),
                "Give the one that was shown first, or leave it out.",
            )

    @property
    def pair(self) -> tuple[str, str]:
        """Both interactions in an order that is independent of the choice."""
        low, high = sorted((self.chosen_id, self.rejected_id))
        return low, high

    def is_same_choice(self, other: Self | None) -> bool:
        """Return whether another comparison has the same choice and reason."""
        return other is not None and (self.chosen_id, self.rejected_id, self.reason) == (
            other.chosen_id,
            other.rejected_id,
            other.reason,
        )


def check_rating(value: Any, key: str = "rating") -> int:
    """Return a valid rating.

    Raises:
        FeedbackRefusedError: the rating is off the scale.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value not in LABELS:
        rule = f"must be a whole number from {LOWEST} to {HIGHEST}"
        is_shown = isinstance(value, int | float) and abs(value) < 1e6
        got = repr(value) if is_shown else f"a value of type {type(value).__name__}"
        raise refused(key, rule, got, f"Give one of {SCALE}.")
    return value


def refused(key: str, rule: str, value: str, fix: str) -> FeedbackRefusedError:
    """Return the error of rejected feedback."""
    return FeedbackRefusedError(str(Problem(key=key, rule=rule, value=value, fix=fix)))
