"""Chat page: logged conversations with their answers and marks."""

from typing import Final

from convergence_core.errors import RunNotFoundError
from convergence_core.feedback.records import Interaction, Rating
from tasks.pages.source import Page, PageSource, line_of, time_of
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import shortened
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.schema import COMPARISONS, INTERACTIONS

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
_BETTER = (
    "SELECT c.chosen_id FROM comparisons c "  # noqa: S608 - declared names
    f"WHERE c.user_id = ? AND c.chosen_id IS NOT NULL AND {COMPARISONS.is_last('c')}"
)


def conversations(source: PageSource, user: str) -> Page:
    """Return the latest conversations of a user, or of all users if ``user`` is empty."""
    feedback = source.feedback()
    if feedback is None:
        return {"conversations": []}
    rows = feedback.fetch(_LATEST, (user, user, MOST))
    return {
        "conversations": [
            {
                "conversation_id": conversation,
                "user_id": owner,
                "role": role,
                "n_answers": n,
                "at": time_of(at_us),
                "title": _title(feedback, first),
            }
            for conversation, owner, role, n, first, at_us in rows
        ]
    }


def conversation(source: PageSource, conversation_id: str, user: str) -> Page:
    """Return the answers of a user's conversation, oldest first.

    Raises:
        RunNotFoundError: the user has no conversation of that id.
    """
    feedback, latest = source.feedback(), f"ORDER BY seq DESC LIMIT {MOST_ANSWERS}"
    answers = (
        []
        if feedback is None
        else feedback.find(INTERACTIONS, latest, conversation_id=conversation_id, user_id=user)
    )
    if feedback is None or not answers:
        raise RunNotFoundError(
            f"`conversation` must belong to {line_of(user)}, but got {line_of(conversation_id)}. "
            "Choose one of the list."
        )
    better = {name for (name,) in feedback.fetch(_BETTER, (user,))}
    return {
        "conversation_id": conversation_id,
        "user_id": user,
        "role": answers[0].role,
        "answers": [
            {
                **_answer(answer, feedback.ratings(answer.interaction_id)),
                "is_better": answer.interaction_id in better,
            }
            for answer in reversed(answers)
        ],
    }


def _title(feedback: FeedbackStore, seq: int) -> str | None:
    questions = [answer.messages[-1].content for answer in feedback.find(INTERACTIONS, seq=seq)]
    return line_of(questions[0]) if questions else None


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
