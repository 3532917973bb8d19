"""Raters of a store: consensus, bias and noise, changes of the mean reward."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from convergence_core.bandit.drift import REWARDS_PER_FALSE_ALARM, DriftWatch
from convergence_core.feedback.rater_consensus import (
    RaterConsensus,
    RaterProfile,
    rater_consensus,
)
from convergence_core.feedback.records import Rating
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardChange:
    """A change of a role's mean reward, found by a test that may look after every mark."""

    role: str
    before: float
    """Mean reward of the part before, roughly, in [-1, 1]."""
    after: float
    """Mean reward since, roughly."""
    n_after: int
    """Marks since by the time it was found, roughly."""
    found_us: int
    """When the mark was given at which it was found."""

    @property
    def words(self) -> str:
        """The change in one sentence."""
        return (
            f"{self.role}: the mean reward changed from about {self.before:+.2f} to {self.after:+.2f} "
            f"(found {self.n_after} ratings later; at most one false alarm in "
            f"{REWARDS_PER_FALSE_ALARM:,.0f} ratings)"
        )


def store_consensus(store: FeedbackStore, role: str | None = None) -> RaterConsensus:
    """Return what the raters of a store agree on.

    Args:
        store: the feedback.
        role: persona that answered; ``None`` means any.
    """
    return rater_consensus([mark for mark, of in _marks(store) if role in {None, of}])


def comparable_raters(consensus: RaterConsensus) -> tuple[RaterProfile, ...]:
    """Return raters of answers that others rated too; only their bias can be estimated."""
    return tuple(rater for rater in consensus.raters if rater.n_shared > 0)


def reward_changes(store: FeedbackStore) -> list[RewardChange]:
    """Return the changes of each role's mean reward, in order of the marks."""
    marks = list(_marks(store))
    roles = sorted({role for _, role in marks})
    watch = DriftWatch.begin(len(roles))
    changes = []
    for mark, role in marks:
        # No arm was drawn here, so that each role is watched by itself.
        watch, alarm = watch.tell(roles.index(role), mark.arm_reward)
        if alarm is not None:
            changes.append(
                RewardChange(
                    role=role,
                    before=2 * alarm.before - 1,
                    after=2 * alarm.after - 1,
                    n_after=alarm.n_after,
                    found_us=mark.created_us,
                )
            )
    return changes


def rater_sentences(store: FeedbackStore) -> list[str]:
    """Return raters and changes in words; nothing for a single rater whose ratings did not change."""
    raters = comparable_raters(store_consensus(store))
    lines = [rater.words for rater in raters[:MOST_RATERS]]
    if len(raters) > MOST_RATERS:
        lines.append(f"and {len(raters) - MOST_RATERS} raters with fewer marks")
    return [*lines, *(change.words for change in reward_changes(store))]


def _marks(store: FeedbackStore) -> Iterator[tuple[Rating, str]]:
    """Marks that count, with the role that they rate, in their order."""
    for *row, role in store.fetch(_MARKS):
        mark = rating_of(row)
        if mark is not None:  # else taken back
            yield mark, role
