"""Records of logged answers, ratings and comparisons, and the rating scales.

A *rating* is a user's score of one answer from 1 to 5; *thumbs* are binary. An unrated answer has
no reward: it is missing, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictInt,
    WithJsonSchema,
    WrapValidator,
)

from convergence_core.errors import FeedbackRefusedError, Problem
from convergence_core.field_types import Amount, Count, Name, StrictNumber, storable, whole_number

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
ROLES: Final = ("system", "user", "assistant")
"""Authors of a prompt's messages."""


def check_rating(value: Any) -> int:
    """Return a valid rating.

    Raises:
        FeedbackRefusedError: the rating is off the scale.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value not in LABELS:
        rule = f"must be a whole number from {LOWEST} to {HIGHEST}"
        is_shown = isinstance(value, int | float) and abs(value) < 1e6
        got = repr(value) if is_shown else f"a value of type {type(value).__name__}"
        raise refused("rating", rule, got, f"Give one of {SCALE}.")
    return value


Stars = Annotated[
    StrictInt,
    BeforeValidator(whole_number),
    AfterValidator(check_rating),
    Field(json_schema_extra={"minimum": LOWEST, "maximum": HIGHEST}),
]
"""1 Poor, 2 Average, 3 Good, 4 Excellent, 5 Outstanding."""
EventId = Annotated[
    Name,
    WrapValidator(
        lambda value, check: "" if value is None else check(value),
        json_schema_input_type=Name | None,
    ),
]
"""The source's id of an event, which counts once; empty without one."""


def _not_empty(messages: tuple[Any, ...]) -> tuple[Any, ...]:
    if (
        not messages
    ):  # not by `min_length`, which counts only valid messages and reports an invalid one twice
        raise ValueError("must hold a message")
    return messages


Reason = Annotated[str, Field(max_length=10_000)]
Author = Annotated[
    str,
    Field(pattern=f"^({'|'.join(ROLES)})$"),
    WithJsonSchema({"type": "string", "enum": list(ROLES)}),
]
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """Message of a prompt."""

    __pydantic_config__ = _STRICT
    role: Author
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedAnswer:
    """A prompt with its answer, as an application reports it."""

    __pydantic_config__ = _STRICT
    user_id: Name
    """Recipient of the answer."""
    model: Name
    messages: Annotated[
        tuple[ChatMessage, ...],
        AfterValidator(_not_empty),
        Field(json_schema_extra={"minItems": 1}),
    ]
    """Prompt; its last message is the question."""
    response: str
    role: Name = "assistant"
    """Persona that answered."""
    source: Name = "api"
    """Origin of the answer, e.g. ``chat`` or ``api``."""
    event_id: EventId = ""
    """The source's id of the event; logging it again stores nothing."""
    conversation_id: Name | None = None
    adapter_version: Name | None = None
    """Version of the adapter that answered; ``None`` if there is none or it is unknown."""
    template_hash: Name | None = None
    """SHA-256 of the prompt template; ``None`` if unknown."""
    sampling: Annotated[
        Mapping[str, JsonValue],
        BeforeValidator(
            lambda value: {} if value is None else value,
            json_schema_input_type=Mapping[str, JsonValue] | None,
        ),
        AfterValidator(storable),
    ] = field(default_factory=dict)
    """Sampling settings, e.g. ``temperature``."""
    logprobs: tuple[StrictNumber, ...] | None = None
    """Log-probability of each token of the response, nats; ``None`` if not reported."""
    n_input_tokens: Count | None = None
    n_output_tokens: Count | None = None
    latency_s: Amount | None = None
    """Seconds until the response was complete."""
    cost_usd: Amount | None = None
    system: Name | None = None
    """System whose arm answered, needed beside ``decision_id``; ``None`` if no arm was chosen."""
    decision_id: Name | None = None
    """Decision that chose the arm; the first rating rewards it."""
    is_shared: bool = False
    """Whether other users may rate it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction(ReportedAnswer):
    """One logged prompt with its answer."""

    interaction_id: str
    created_us: int
    """Time of the answer."""
    thinking: str | None = None
    """The model's reasoning before the response, not part of it; ``None`` if unknown."""

    def is_same_answer(self, other: "Interaction") -> bool:
        """Return whether a reader cannot distinguish two answers."""
        return self.response.strip() == other.response.strip()

    @property
    def chat_messages(self) -> tuple[dict[str, str], ...]:
        """Prompt as a chat endpoint takes it."""
        return tuple({"role": m.role, "content": m.content} for m in self.messages)

    @property
    def asked(self) -> tuple[ChatMessage, ...]:
        """Prompt without system messages, whose wording may differ between arms."""
        return tuple(message for message in self.messages if message.role != "system")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """A user's feedback on logged answers."""

    __pydantic_config__ = _STRICT
    user_id: Name
    """Rater."""
    reason: Reason | None = None
    """Explanation in the user's words."""
    source: Name = "api"
    event_id: EventId = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(_Event):
    """A mark of an answer: 1 to 5, or thumbs."""

    __pydantic_config__ = ConfigDict(
        **_STRICT,
        json_schema_extra={
            # Client generators ignore conditions; from `oneOf` they make types that nothing fits.
            "if": {"properties": {"rating": {"type": "integer"}}, "required": ["rating"]},
            "then": {"properties": {"thumbs": {"type": "null"}}},
            "else": {"properties": {"thumbs": {"type": "string"}}, "required": ["thumbs"]},
        },
    )
    rating: Stars | None = None
    """1 to 5; ``None`` for thumbs."""
    thumbs: Thumbs | None = None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating(Mark):
    """A user's mark of one answer."""

    interaction_id: str
    created_us: int = 0

    @property
    def place(self) -> tuple[str]:
        """The rated interaction."""
        return (self.interaction_id,)

    def is_same_mark(self, other: "Rating | None") -> bool:
        """Return whether another rating has the same mark and reason."""
        return other is not None and (self.rating, self.thumbs, self.reason) == (
            other.rating,
            other.thumbs,
            other.reason,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChoice(_Event):
    """A choice of the better of two answers to one prompt."""

    chosen_id: Name
    """Interaction with the better answer."""
    rejected_id: Name
    first_id: Name | None = None
    """Interaction that was displayed first; ``None`` if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerComparison(AnswerChoice):
    """A user's choice of the better of two answers to one prompt."""

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
    def place(self) -> tuple[str, str]:
        """Both interactions in an order that is independent of the choice."""
        low, high = sorted((self.chosen_id, self.rejected_id))
        return low, high

    def is_same_mark(self, other: Self | None) -> bool:
        """Return whether another comparison has the same choice and reason."""
        return other is not None and (self.chosen_id, self.rejected_id, self.reason) == (
            other.chosen_id,
            other.rejected_id,
            other.reason,
        )


def refused(key: str, rule: str, value: str, fix: str) -> FeedbackRefusedError:
    """Return the error of rejected feedback."""
    return FeedbackRefusedError(str(Problem(key=key, rule=rule, value=value, fix=fix)))
