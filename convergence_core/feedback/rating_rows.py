"""Rows of ratings in JSON.

A row without a valid answer or rating raises ``SkippedRatingError`` with the reason; nothing is
guessed.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from convergence_core.feedback.records import LABELS, ChatMessage, Interaction, Rating, Thumbs
from convergence_core.records import canonical_json, sha256_hex

SOURCE = "import"
IMPORTER = "imported"
"""User of answers and ratings whose rows name none."""
_CONTENT = ("role", "user_id", "model", "prompt", "response", "timestamp")


class SkippedRatingError(ValueError):
    """A row has no valid answer or rating."""


def read_answer(row: Any) -> Interaction:
    """Return the answer of a row ``{timestamp, prompt, response}``.

    Rows that differ only in their rating have the same answer.

    Args:
        row: JSON row; ``interaction_id`` or ``id`` identifies the answer, otherwise its content.

    Raises:
        SkippedRatingError: it has no valid answer; the message gives the reason.
    """
    if not isinstance(row, Mapping):
        raise SkippedRatingError("a row is not an object")
    response = row.get("response")
    if not isinstance(response, str):
        raise SkippedRatingError("a row has no response")
    named = _name(row.get("interaction_id"))
    content = sha256_hex(canonical_json([row.get(key) for key in _CONTENT]))
    event_id = named or _name(row.get("id")) or content
    return Interaction(
        interaction_id=named or _id_of(event_id),
        source=SOURCE,
        event_id=event_id,
        role=_name(row.get("role")) or "assistant",
        user_id=_name(row.get("user_id")) or IMPORTER,
        model=_name(row.get("model")) or "unknown",
        messages=_messages(row.get("prompt")),
        response=response,
        created_us=_time(row.get("timestamp")),
    )


def read_mark(row: Mapping[str, Any], answer: Interaction) -> Rating | None:
    """Return the rating in a row: ``reward``, or ``rating`` from 1 to 5 or ``thumbs``.

    ``None`` if it has none.

    Raises:
        SkippedRatingError: the rating is invalid; the message gives the reason.
    """
    rating = row.get("rating")
    thumbs: Thumbs | None = row["thumbs"] if row.get("thumbs") in {"up", "down"} else None
    if has_reward_alone(row):
        rating = 2 * _number(row["reward"]) + 3
    if rating is None and thumbs is None:
        return None
    return Rating(
        interaction_id=answer.interaction_id,
        user_id=answer.user_id,
        source=SOURCE,
        rating=None if rating is None else _whole(rating),
        thumbs=thumbs,
        reason=_text(row.get("reason")),
        event_id=sha256_hex(canonical_json(dict(row))),
        created_us=answer.created_us,
    )


def has_reward_alone(row: Mapping[str, Any]) -> bool:
    """Return whether a row has only a reward, as in an export: the mean of all ratings."""
    is_marked = row.get("rating") is not None or row.get("thumbs") is not None
    return not is_marked and row.get("reward") is not None


def earlier_id(row: Mapping[str, Any]) -> str:
    """Return the id of an unnamed row's answer in earlier versions: a hash of the whole row."""
    return _id_of(_name(row.get("id")) or sha256_hex(canonical_json(dict(row))))


def _id_of(event_id: str) -> str:
    return sha256_hex(f"{SOURCE} {event_id}")[:32]


def _messages(prompt: Any) -> tuple[ChatMessage, ...]:
    if isinstance(prompt, str):
        return (ChatMessage(role="user", content=prompt),)
    if not isinstance(prompt, Sequence) or not prompt:
        raise SkippedRatingError("a row has no prompt")
    messages = []
    for message in prompt:
        content = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(content, str):
            raise SkippedRatingError("a message has no text")
        messages.append(ChatMessage(role=str(message.get("role")), content=content))
    return tuple(messages)


def _whole(value: Any) -> int:
    number = _number(value)
    if number != int(number) or int(number) not in LABELS:
        raise SkippedRatingError("a rating is not from 1 to 5")
    return int(number)


def _number(value: Any) -> float:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise SkippedRatingError("a rating is not a number")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _name(value: Any) -> str | None:
    text = _text(value)
    return text if text is None or len(text) <= 200 else sha256_hex(text)


def _time(value: Any) -> int:
    """Return the microseconds of a time in ISO 8601 or seconds; 0 if unknown."""
    if isinstance(value, int | float):
        return int(value * 1e6) if 0 < value < 1e11 else 0
    if not isinstance(value, str):
        return 0
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return 0
    return max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1e6))
