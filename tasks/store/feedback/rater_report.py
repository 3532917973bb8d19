"""Raters of a store: consensus, bias and noise."""

from typing import Final

from convergence_core.feedback.rater_consensus import (
    RaterConsensus,
    RaterProfile,
    rater_consensus,
)
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.rows import rating_of
from tasks.store.feedback.schema import LAST_RATING, RATINGS

_MARKS = (
    f"SELECT {RATINGS.columns_of('r')}, i.role FROM ratings r "  # noqa: S608 - constants
    "JOIN interactions i ON i.interaction_id = r.interaction_id "
    f"WHERE {LAST_RATING} ORDER BY r.seq"
)
MOST_RATERS: Final = 10
"""Raters that are listed in words, those with most marks."""


def store_consensus(store: FeedbackStore, role: str | None = None) -> RaterConsensus:
    """Return what the raters of a store agree on.

    Args:
        store: the feedback.
        role: persona that answered; ``None`` means any.
    """
    marks = (rating_of(row) for *row, of in store.fetch(_MARKS) if role in {None, of})
    return rater_consensus([mark for mark in marks if mark is not None])  # else taken back


def comparable_raters(consensus: RaterConsensus) -> tuple[RaterProfile, ...]:
    """Return raters of answers that others rated too; only their bias can be estimated."""
    return tuple(rater for rater in consensus.raters if rater.n_shared > 0)


def rater_sentences(store: FeedbackStore) -> list[str]:
    """Return raters in words; nothing for a single rater."""
    raters = comparable_raters(store_consensus(store))
    lines = [rater.words for rater in raters[:MOST_RATERS]]
    if len(raters) > MOST_RATERS:
        lines.append(f"and {len(raters) - MOST_RATERS} raters with fewer marks")
    return lines
