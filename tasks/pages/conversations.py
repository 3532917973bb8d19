"""Chat page: logged conversations with their answers and marks."""

from typing import Final

from convergence_core.errors import RunNotFoundError
from convergence_core.feedback.records import Interaction, Rating
from tasks.pages.source import Page, PageSource, line_of, time_of
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import shortened
from tasks.store.feedback.feedback_store import FeedbackStore

MOST: Final = 50
"""Maximum conversations in the list, latest first."""
MOST_ANSWERS: Final = 200
"""Maximum answers of a conversation, the latest ones."""
LONGEST: Final = 100_000
"""Maximum characters of a question or an answer."""
_LATEST = (
    "SELECT conversation_id, user_id, min(role), count(*), min(seq), max(created_us) "
    "FROM interactions WHERE conversation_id IS NOT NULL AND (? = '' OR user_id = ?) "
    "GROUP BY conversation_id, user_id ORDER BY max(seq) DESC LIMIT ?"
)
_FIRST = "SELECT interaction_id FROM interactions WHERE seq = ?"
_ANSWERS = (
    "SELECT interaction_id FROM interactions WHERE conversation_id = ? AND user_id = ? "
    "ORDER BY seq DESC LIMIT ?"
)
_BETTER = (
    "SELECT c.chosen_id FROM comparisons c WHERE c.user_id = ? AND c.chosen_id IS NOT NULL "
    "AND c.seq = (SELECT max(l.seq) FROM comparisons l WHERE l.low_id = c.low_id "
    "AND l.high_id = c.high_id AND l.user_id = c.user_id)"
)


def conversations(source: PageSource, user: str) -> Page:
    """Return the latest conversations of a user, or of all users if ``user`` is empty."""
    feedback = source.feedback()
    rows = [] if feedback is None else feedback.fetch(_LATEST, (user, user, MOST))
    return {
        "conversations": [
            {
                "conversation_id": conversation,
                "user_id": owner,
                "role": role,
                "n_answers": n,
                "at": time_of(at_us),
                "title": "" if feedback is None else _title(feedback, first),
            }
            for conversation, owner, role, n, first, at_us in rows
        ]
    }


def conversation(source: PageSource, conversation_id: str, user: str) -> Page:
    """Return the answers of a user's conversation, oldest first.

    Raises:
        RunNotFoundError: the user has no conversation of that id.
    """
    feedback = source.feedback()
    rows = (
        [] if feedback is None else feedback.fetch(_ANSWERS, (conversation_id, user, MOST_ANSWERS))
    )
    interactions = (
        [] if feedback is None else [feedback.interaction(name) for (name,) in rows][::-1]
    )
    answers = [interaction for interaction in interactions if interaction is not None]
    if feedback is None or not answers:
        raise RunNotFoundError(
            f"`conversation` must belong to {line_of(user)}, but got {line_of(conversation_id)}. "
            "Choose one of the list."
        )
    better = {name for (name,) in feedback.fetch(_BETTER, (user,))}
    return {
        "conversation_id": conversation_id,
        "user_id": user,
        "role": answers[-1].role,
        "answers": [
            {
                **_answer(answer, feedback.ratings(answer.interaction_id)),
                "is_better": answer.interaction_id in better,
            }
            for answer in answers
        ],
    }


def _title(feedback: FeedbackStore, seq: int) -> str | None:
    rows = feedback.fetch(_FIRST, (seq,))
    interaction = feedback.interaction(rows[0][0]) if rows else None
    return None if interaction is None else line_of(interaction.messages[-1].content)


def _answer(interaction: Interaction, marks: list[Rating]) -> Page:
    mark = next((mark for mark in marks if mark.user_id == interaction.user_id), None)
    return {
        "interaction_id": interaction.interaction_id,
        "question": _text(interaction.messages[-1].content),
        "n_before": len(interaction.asked) // 2,
        "answer": _text(interaction.response),
        "model": line_of(interaction.model),
        # Hide the adapter until the answer is rated.
        "adapter_version": None if mark is None else interaction.adapter_version,
        "at": time_of(interaction.created_us),
        "mark": None
        if mark is None
        else {
            "rating": mark.rating,
            "thumbs": mark.thumbs,
            "label": mark.words,
            "reason": line_of(mark.reason),
        },
    }


def _text(text: str) -> str:
    return shortened(text, LONGEST, redacted_text)
