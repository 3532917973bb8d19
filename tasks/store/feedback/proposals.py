"""Test cases that bad ratings and games propose, and what reviewers decided."""

from dataclasses import dataclass
from typing import Final, Literal

from convergence_core.feedback.records import Interaction, Rating
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.schema import CURRENT_RATINGS

WORST_PROPOSED: Final = 2
"""Answers rated so or worse are proposed; thumbs down too."""

ReviewDecision = Literal["approved", "rejected"]

_BAD = (
    f"SELECT DISTINCT i.seq, i.interaction_id FROM {CURRENT_RATINGS} "  # noqa: S608 - constants
    "AND (r.rating <= ? OR r.thumbs = 'down') AND (i.system IS NULL OR i.system = ?) "
    "AND NOT EXISTS (SELECT 1 FROM case_reviews c WHERE c.interaction_id = i.interaction_id) "
    "ORDER BY i.seq"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedCase:
    """An answer that was rated badly, or failed in a game: its prompt may become a test case."""

    interaction: Interaction
    ratings: tuple[Rating, ...] = ()
    """The bad marks that count, by time."""
    failed: str = ""
    """Where a game found it: what failed, in words. No one rated it, and it counts as no rating."""
    right: str | None = None
    """Where a game found it: the answer of the executed reference."""

    @property
    def prompt(self) -> str:
        """The last user message."""
        return self.interaction.messages[-1].content

    @property
    def case_id(self) -> str:
        """Id of the case that it becomes."""
        return f"{'game' if self.failed else 'feedback'}-{self.interaction.interaction_id}"

    @property
    def marks(self) -> str:
        """The marks in words, with their reasons; of a game, what failed."""
        if self.failed:
            return self.failed
        words = [
            f"{rating.words}: {rating.reason}" if rating.reason else rating.words
            for rating in self.ratings
        ]
        return "; ".join(words)


def proposed_cases(store: FeedbackStore, system: str) -> list[ProposedCase]:
    """Return what is proposed for a system and not reviewed, oldest first.

    Args:
        store: the feedback.
        system: answers of another one are left out; those of none are not.
    """
    cases = []
    for _, interaction_id in store.fetch(_BAD, (WORST_PROPOSED, system)):
        interaction = store.interaction(interaction_id)
        bad = tuple(mark for mark in store.ratings(interaction_id) if _is_bad(mark))
        if interaction is not None and bad:  # else taken back meanwhile
            cases.append(ProposedCase(interaction=interaction, ratings=bad))
    return cases


def reviewed(store: FeedbackStore) -> frozenset[str]:
    """Return the ids of what was decided."""
    return frozenset(
        str(interaction_id)
        for (interaction_id,) in store.fetch("SELECT interaction_id FROM case_reviews", ())
    )


def save_review(
    store: FeedbackStore, interaction_id: str, decision: ReviewDecision, case_id: str | None = None
) -> bool:
    """Store what a reviewer decided, durably; return ``False`` if it was decided before."""
    with store.database.transaction() as connection:
        connection.execute(
            "INSERT INTO case_reviews VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (interaction_id, decision, case_id, store.now_us()),
        )
        return connection.changes() > 0


def _is_bad(mark: Rating) -> bool:
    return mark.thumbs == "down" or (mark.rating is not None and mark.rating <= WORST_PROPOSED)
