"""Records of logged answers, ratings and comparisons, and the scales of ratings.

A *rating* is a person's mark of one answer from 1 to 5; *thumbs* are the mark of those who give one of
two. An answer that nobody marked has no reward: it is missing, never 0.
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
"""Rating → its name."""
LOWEST, HIGHEST = min(LABELS), max(LABELS)
SCALE: Final = ", ".join(f"{rating} {label}" for rating, label in LABELS.items())
"""The scale in words, for prompts and messages."""

Thumbs = Literal["up", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message of a prompt."""

    role: str
    """``system``, ``user`` or ``assistant``."""
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """One prompt with its answer, as logged."""

    interaction_id: str
    source: str
    """Where it came from, e.g. ``chat`` or ``api``."""
    event_id: str
    """The source's own name of it: logged again under it, it is stored once."""
    role: str
    """Persona that answered, e.g. ``assistant``."""
    user_id: str
    """Whom it was answered."""
    model: str
    messages: tuple[ChatMessage, ...]
    """The prompt; its last message is what was asked."""
    response: str
    created_us: int
    """When it was answered."""
    conversation_id: str | None = None
    adapter_version: str | None = None
    """Version of the adapter that answered. ``None``: the model has none, or it is unknown."""
    template_hash: str | None = None
    """SHA-256 of the prompt's template. ``None``: unknown."""
    sampling: Mapping[str, Json] = field(default_factory=dict)
    """Settings by which it was sampled, e.g. ``temperature``."""
    logprobs: tuple[float, ...] | None = None
    """Log-probability of each token of the response, nats. ``None``: the model gave none."""
    n_input_tokens: int | None = None
    n_output_tokens: int | None = None
    latency_s: float | None = None
    """Seconds until the whole response was there."""
    cost_usd: float | None = None
    system: str | None = None
    """System whose arm answered. ``None``: none was chosen."""
    decision_id: str | None = None
    """The choice of that arm, which a rating rewards."""
    is_shared: bool = False
    """Whether users other than its own may rate it."""
    thinking: str | None = None
    """The model's thinking before the response, which is no part of it. ``None``: none is known."""

    def is_same_answer(self, other: "Interaction") -> bool:
        """Return whether nothing distinguishes two answers for a reader."""
        return self.response.strip() == other.response.strip()

    @property
    def asked(self) -> tuple[ChatMessage, ...]:
        """The prompt without its system messages, which two arms may word differently."""
        return tuple(one for one in self.messages if one.role != "system")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """A user's mark of one answer: from 1 to 5, or thumbs."""

    interaction_id: str
    user_id: str
    """Who rates."""
    rating: int | None = None
    """1 to 5. ``None``: thumbs were given."""
    thumbs: Thumbs | None = None
    reason: str | None = None
    """Why, in the user's words."""
    source: str = "api"
    event_id: str = ""
    """The source's own name of this mark; empty: it has none."""
    created_us: int = 0

    def __post_init__(self) -> None:
        """Refuse what is on neither scale.

        Raises:
            FeedbackRefusedError: not exactly one of rating and thumbs is given, or off its scale.
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
        """Its worth in [-1, 1]: ``(rating - 3) / 2``; thumbs 1 and -1."""
        if self.rating is not None:
            return (self.rating - 3) / 2
        return 1.0 if self.thumbs == "up" else -1.0

    @property
    def arm_reward(self) -> float:
        """Its worth to the arm that answered, in [0, 1]: ``(rating - 1) / 4``; thumbs 1 and 0."""
        return (self.reward + 1) / 2

    @property
    def words(self) -> str:
        """The mark in words, e.g. ``4 Excellent``."""
        if self.rating is not None:
            return f"{self.rating} {LABELS[self.rating]}"
        return f"thumbs {self.thumbs}"

    def is_same_mark(self, other: "Rating | None") -> bool:
        """Return whether another one says the same."""
        return other is not None and (self.rating, self.thumbs, self.reason) == (
            other.rating,
            other.thumbs,
            other.reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerComparison:
    """A user's choice of the better of two answers to one prompt."""

    chosen_id: str
    """Interaction whose answer is better."""
    rejected_id: str
    user_id: str
    first_id: str | None = None
    """The one of both that was shown first. ``None``: unknown."""
    reason: str | None = None
    source: str = "api"
    event_id: str = ""
    """The source's own name of this comparison; empty: it has none."""
    created_us: int = 0

    def __post_init__(self) -> None:
        """Refuse what compares no two answers.

        Raises:
            FeedbackRefusedError: both are the same, or the first one is neither.
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
        """Both interactions, in an order that the choice does not change."""
        low, high = sorted((self.chosen_id, self.rejected_id))
        return low, high

    def is_same_choice(self, other: Self | None) -> bool:
        """Return whether another one says the same."""
        return other is not None and (self.chosen_id, self.rejected_id, self.reason) == (
            other.chosen_id,
            other.rejected_id,
            other.reason,
        )


def check_rating(value: Any, key: str = "rating") -> int:
    """Return a rating that is on the scale.

    Raises:
        FeedbackRefusedError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value not in LABELS:
        rule = f"must be a whole number from {LOWEST} to {HIGHEST}"
        is_shown = isinstance(value, int | float) and abs(value) < 1e6
        got = repr(value) if is_shown else f"a value of type {type(value).__name__}"
        raise refused(key, rule, got, f"Give one of {SCALE}.")
    return value


def refused(key: str, rule: str, value: str, fix: str) -> FeedbackRefusedError:
    """Return the error of feedback that cannot be taken in."""
    return FeedbackRefusedError(str(Problem(key=key, rule=rule, value=value, fix=fix)))
