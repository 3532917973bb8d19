"""Rows of the feedback: its records to and from columns, and their rules."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from convergence_core.feedback.records import (
    AnswerComparison,
    Interaction,
    Rating,
    refused,
)
from convergence_core.records import canonical_json
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line
from tasks.store.feedback.schema import RATINGS

COMPARISON_COLUMNS: Final = (
    "low_id", "high_id", "chosen_id", "first_id", "user_id", "reason", "source", "event_id",
    "created_us",
)  # fmt: skip

LONGEST_NAME = 200
"""Characters of an id, a role, a user or a model."""
_NAMES = (
    "interaction_id", "source", "event_id", "role", "user_id", "model", "conversation_id",
    "adapter_version", "template_hash", "system", "decision_id", "chosen_id", "rejected_id",
    "first_id",
)  # fmt: skip
_NUMBERS = ("n_input_tokens", "n_output_tokens", "latency_s", "cost_usd", "created_us")
_ROLES = ("system", "user", "assistant")


def checked(record: Interaction | Rating | AnswerComparison) -> None:
    """Make sure that a record's fields keep their rules.

    Raises:
        FeedbackRefusedError: one does not; it names the field.
    """
    is_answer = isinstance(record, Interaction)
    for name in _NAMES:
        value = getattr(record, name, None)
        if value is None or (name == "event_id" and value == "" and not is_answer):
            continue
        checked_name(name, value)
    for name in _NUMBERS:
        value = getattr(record, name, None)
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise refused(
                name, "must be a number from 0", repr(value), "Leave it out where it is unknown."
            )
    if isinstance(record, Interaction):
        _check_answer(record)


def checked_name(key: str, value: object) -> None:
    """Make sure that a value is a name.

    Raises:
        FeedbackRefusedError: it is none.
    """
    if not isinstance(value, str) or not _is_name(value):
        rule = f"must be a text of 1 to {LONGEST_NAME} printable characters"
        raise refused(key, rule, _shown(value), "Give another one.")


def _shown(value: object) -> str:
    return one_line(repr(value), 80, redacted_text)


def _is_name(text: str) -> bool:
    return 1 <= len(text) <= LONGEST_NAME and text.isprintable() and text.strip() == text


def _check_answer(record: Interaction) -> None:
    if not record.messages or record.messages[-1].role == "assistant":
        got = "none" if not record.messages else "one of the assistant at the end"
        raise refused("messages", "must end with the question", got, "Log the whole prompt.")
    for number, message in enumerate(record.messages):
        if message.role not in _ROLES:
            rule = f"must be one of {', '.join(_ROLES)}"
            key = f"messages.{number}.role"
            raise refused(key, rule, _shown(message.role), "Give one of these.")
    if record.logprobs is not None and not all(map(math.isfinite, record.logprobs)):
        raise refused(
            "logprobs", "must be finite numbers", "NaN or inf", "Leave them out where unknown."
        )
    try:
        canonical_json(dict(record.sampling))
    except (TypeError, ValueError) as error:
        raise refused(
            "sampling", "must hold what JSON can carry", _shown(error), "Leave other values out."
        ) from None
    if record.decision_id is not None and record.system is None:
        raise refused(
            "system", "must name the system of `decision_id`", "none", "Give both or neither."
        )


def clean_text(redact: Callable[[str], str]) -> Callable[[str], str]:
    """Return what makes a text storable: without secrets, and without what no database takes."""

    def cleaned(text: str) -> str:
        # Lone surrogates and NUL have no place in UTF-8 and in PostgreSQL.
        return redact(text.replace("\0", "\ufffd").encode("utf-8", "replace").decode())

    return cleaned


def rating_of(row: Sequence[Any]) -> Rating | None:
    """Return a row of ``RATINGS`` as a record; ``None`` if it takes a mark back."""
    values = dict(zip(RATINGS.columns, row, strict=True))
    return None if values["rating"] is values["thumbs"] is None else RATINGS.record(row)


def comparison_of(row: Sequence[Any]) -> AnswerComparison | None:
    """Return a row of ``COMPARISON_COLUMNS`` as a record; ``None`` if it takes a choice back."""
    values = dict(zip(COMPARISON_COLUMNS, row, strict=True))
    if values["chosen_id"] is None:
        return None
    pair = {values.pop("low_id"), values.pop("high_id")}
    (rejected_id,) = pair - {values["chosen_id"]}
    return AnswerComparison(rejected_id=rejected_id, **values)
