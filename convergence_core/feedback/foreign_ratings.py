"""Ratings as other tools export them: our JSON lines, Open WebUI, Langfuse.

A row that says nothing we can keep is a ``SkippedRatingError`` with its reason, never a guess.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from convergence_core.feedback.records import LABELS, ChatMessage, Interaction, Rating, Thumbs
from convergence_core.records import canonical_json, sha256_hex

RatingForm = Literal["jsonl", "open-webui", "langfuse"]
_BY_LABEL = {label.lower(): rating for rating, label in LABELS.items()}


class SkippedRatingError(ValueError):
    """A row has no rating that can be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRating:
    """One rating of another tool."""

    answer: Interaction | None
    """What was rated. ``None`` means an answer that is logged here under one of ``names``."""
    names: tuple[str, ...] = ()
    """Ids that the answer may be logged under, as its own or as its event."""
    rating: Rating | None
    """``None`` if the answer is not rated. Without a user it is the answer's own user's; of an answer under
    one of ``names`` it has no id yet."""


def read_rating(
    row: Any, form: RatingForm, *, scale: tuple[float, float] | None = None
) -> ForeignRating:
    """Return what a row of another tool says.

    Args:
        row: as JSON.
        form: of which tool.
        scale: lowest and highest value of numeric scores (Langfuse). ``None`` if they are skipped.

    Raises:
        SkippedRatingError: it has no rating that can be kept; the reason is its text.
    """
    if not isinstance(row, Mapping):
        raise SkippedRatingError("a row is not an object")
    if form == "open-webui":
        return _of_open_webui(row)
    return _of_langfuse(row, scale) if form == "langfuse" else _of_line(row)


def rows_of(document: Any, form: RatingForm) -> Iterator[Any]:
    """Yield the rows of an export: a list, or Langfuse's object with ``data``.

    Raises:
        ValueError: it is neither.
    """
    if form == "langfuse" and isinstance(document, Mapping):
        document = document.get("data")
    if not isinstance(document, list):
        raise ValueError("must hold a list of rows")
    yield from document


def _of_line(row: Mapping[str, Any]) -> ForeignRating:
    """Rows ``{timestamp, prompt, response, reward}``, or with ``rating`` or ``thumbs``."""
    prompt, response = row.get("prompt"), row.get("response")
    if not isinstance(response, str):
        raise SkippedRatingError("a row has no response")
    at = _time(row.get("timestamp"))
    event_id = _name(row.get("id")) or sha256_hex(canonical_json(dict(row)))
    user_id = _name(row.get("user_id")) or "imported"
    rating, thumbs = row.get("rating"), row.get("thumbs")
    if rating is None and thumbs is None and row.get("reward") is not None:
        rating = _whole(2 * _number(row["reward"]) + 3)
    answer = Interaction(
        interaction_id=_id("import", event_id),
        source="import",
        event_id=event_id,
        role=_name(row.get("role")) or "assistant",
        user_id=user_id,
        model=_name(row.get("model")) or "unknown",
        messages=_messages(prompt),
        response=response,
        created_us=at,
    )
    return _rated(
        answer,
        None if rating is None else _whole(rating),
        _thumbs(thumbs),
        reason=_text(row.get("reason")),
        event_id=event_id,
        created_us=at,
    )


def _of_open_webui(row: Mapping[str, Any]) -> ForeignRating:
    """Feedback of Open WebUI: thumbs, or its 1 to 10, two of which are one of ours."""
    data, meta = _object(row, "data"), _object(row, "meta")
    chat = _object(_object(_object(row, "snapshot"), "chat"), "chat")
    by_id = _object(_object(chat, "history"), "messages")
    message_id = _name(meta.get("message_id"))
    answered = by_id.get(message_id or "")
    if message_id is None or not isinstance(answered, Mapping):
        raise SkippedRatingError("the chat of a rating is not in the export")
    prompt: list[ChatMessage] = []
    before = by_id.get(answered.get("parentId") or "")
    while isinstance(before, Mapping) and len(prompt) < len(by_id):
        prompt += _messages([before])
        before = by_id.get(before.get("parentId") or "")
    detailed = _object(data, "details").get("rating")
    rating = thumbs = None
    if isinstance(detailed, int | float) and 1 <= detailed <= 10:
        rating = math.ceil(detailed / 2)
    else:
        thumbs = _thumbs({1: "up", -1: "down"}.get(int(_number(data.get("rating")))))
        if thumbs is None:
            raise SkippedRatingError("a rating is neither 1 nor -1")
    words = [text for name in ("reason", "comment") if (text := _text(data.get(name)))]
    user_id, at = _name(row.get("user_id")) or "imported", _seconds(row.get("created_at"))
    answer = Interaction(
        interaction_id=_id("open-webui", message_id),
        source="open-webui",
        event_id=message_id,
        role="assistant",
        user_id=user_id,
        model=_name(data.get("model_id")) or "unknown",
        messages=tuple(reversed(prompt)),
        response=_text(answered.get("content")) or "",
        conversation_id=_name(meta.get("chat_id")),
        created_us=_seconds(answered.get("timestamp")) or at,
    )
    return _rated(
        answer,
        rating,
        thumbs,
        reason=": ".join(words) or None,
        event_id=_name(row.get("id")) or message_id,
        created_us=at,
    )


def _of_langfuse(row: Mapping[str, Any], scale: tuple[float, float] | None) -> ForeignRating:
    """Scores of Langfuse, which name a trace or an observation that is logged here."""
    names = tuple(name for key in ("observationId", "traceId") if (name := _name(row.get(key))))
    if not names:
        raise SkippedRatingError("a score has no trace")
    kind, value = row.get("dataType", "NUMERIC"), row.get("value")
    rating = thumbs = None
    if kind == "BOOLEAN":
        thumbs = _thumbs("up" if _number(value) else "down")
    elif kind == "CATEGORICAL":
        label = str(row.get("stringValue") or value).lower()
        if label not in _BY_LABEL:
            raise SkippedRatingError("a category is unknown")
        rating = _BY_LABEL[label]
    elif kind == "NUMERIC" and scale is not None:
        low, high = scale
        if not low <= _number(value) <= high:
            raise SkippedRatingError("a score is outside the given scale")
        rating = round(1 + 4 * (_number(value) - low) / (high - low))
    else:
        raise SkippedRatingError("a numeric score has no scale: give --scale")
    mark = Rating(
        interaction_id="",
        user_id=_name(row.get("authorUserId")) or "",
        rating=rating,
        thumbs=thumbs,
        reason=_text(row.get("comment")),
        source="langfuse",
        event_id=_name(row.get("id")) or sha256_hex(canonical_json(dict(row))),
        created_us=_time(row.get("timestamp")),
    )
    return ForeignRating(answer=None, names=names, rating=mark)


def _rated(
    answer: Interaction, rating: int | None, thumbs: Thumbs | None, **more: Any
) -> ForeignRating:
    """Return an answer with its own user's mark, if it has one."""
    if rating is None and thumbs is None:
        return ForeignRating(answer=answer, rating=None)
    mark = Rating(
        interaction_id=answer.interaction_id,
        user_id=answer.user_id,
        source=answer.source,
        rating=rating,
        thumbs=thumbs,
        **more,
    )
    return ForeignRating(answer=answer, rating=mark)


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


def _thumbs(value: Any) -> Thumbs | None:
    return value if value in {"up", "down"} else None


def _whole(value: Any) -> int:
    number = _number(value)
    if number != int(number) or int(number) not in LABELS:
        raise SkippedRatingError("a rating is not from 1 to 5")
    return int(number)


def _number(value: Any) -> float:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    raise SkippedRatingError("a rating is not a number")


def _object(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = row.get(name)
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _name(value: Any) -> str | None:
    text = _text(value)
    return text if text is None or len(text) <= 200 else sha256_hex(text)


def _id(source: str, event_id: str) -> str:
    return sha256_hex(f"{source} {event_id}")[:32]


def _seconds(value: Any) -> int:
    return int(value * 1e6) if isinstance(value, int | float) and 0 < value < 1e11 else 0


def _time(value: Any) -> int:
    """Microseconds of a time as text (ISO 8601) or seconds; 0: unknown."""
    if not isinstance(value, str):
        return _seconds(value)
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return 0
    return max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1e6))
