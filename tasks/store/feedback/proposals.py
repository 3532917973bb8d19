"""Test cases proposed from bad ratings and games, and the reviewers' decisions."""

from dataclasses import dataclass
from typing import Final, Literal

from convergence_core.feedback.records import Interaction, Rating
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.schema import CURRENT_RATINGS

WORST_PROPOSED: Final = 2
"""Worst rating at or below which an answer is proposed; a thumbs down is enough, too."""

ReviewDecision = Literal["approved", "rejected"]

_BAD = (
    f"SELECT DISTINCT i.seq, i.interaction_id FROM {CURRENT_RATINGS} "  # noqa: S608 - constants
    "AND (r.rating <= ? OR r.thumbs = 'down') AND (i.system IS NULL OR i.system = ?) "
    "AND NOT EXISTS (SELECT 1 FROM case_reviews c WHERE c.interaction_id = i.interaction_id) "
    "ORDER BY i.seq"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedCase:
    """Answer with a bad rating, or failed in a game, whose prompt may become a test case."""

    interaction: Interaction
    ratings: tuple[Rating, ...] = ()
    """Current bad marks, by time."""
    failed: str = ""
    """Failure in a game, in words. Empty for a rated answer."""
    right: str | None = None
    """Answer of the executed reference in a game. ``None`` for a rated answer."""

    @property
    def prompt(self) -> str:
        """The last user message."""
        return self.interaction.messages[-1].content

    @property
    def case_id(self) -> str:
        """Id of the resulting test case."""
        return f"{'game' if self.failed else 'feedback'}-{self.interaction.interaction_id}"

    @property
    def marks(self) -> str:
        """Marks in words with their reasons, or the failure in a game."""
        if self.failed:
            return self.failed
        words = [
            f"{rating.words}: {rating.reason}" if rating.reason else rating.words
            for rating in self.ratings
        ]
        return "; ".join(words)


def proposed_cases(store: FeedbackStore, system: str) -> list[ProposedCase]:
    """Return a system's unreviewed proposals, oldest first.

    Args:
        store: the feedback.
        system: name of the system; answers without a system are included.
    """
    cases = []
    for _, interaction_id in store.fetch(_BAD, (WORST_PROPOSED, system)):
        interaction = store.interaction(interaction_id)
        bad = tuple(mark for mark in store.ratings(interaction_id) if _is_bad(mark))
        if interaction is not None and bad:  # a mark may have been withdrawn meanwhile
            cases.append(ProposedCase(interaction=interaction, ratings=bad))
    return cases


def reviewed(store: FeedbackStore) -> frozenset[str]:
    """Return the ids of reviewed answers."""
    return frozenset(
        str(interaction_id)
        for (interaction_id,) in store.fetch("SELECT interaction_id FROM case_reviews", ())
    )


def save_review(
    store: FeedbackStore, interaction_id: str, decision: ReviewDecision, case_id: str | None = None
) -> bool:
    """Store a reviewer's decision durably; return ``False`` if there is one already."""
    with store.database.transaction() as connection:
        connection.execute(
            "INSERT INTO case_reviews VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (interaction_id, decision, case_id, store.now_us()),
        )
        return connection.changes() > 0


def _is_bad(mark: Rating) -> bool:
    return mark.thumbs == "down" or (mark.rating is not None and mark.rating <= WORST_PROPOSED)
