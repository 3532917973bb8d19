"""Course of a role's rewards, and its answers by the adapter that gave them."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from convergence_core.feedback.records import Rating
from tasks.store.feedback.counts import MeanInterval, mean_reward
from tasks.store.feedback.feedback_store import FeedbackStore

FEWEST: Final = 10
"""Marks of one point of a course, at least; its last point may have fewer."""
MOST_POINTS: Final = 60
_MARKS = (
    "SELECT r.rating, r.thumbs, r.created_us, i.adapter_version FROM ratings r "
    "JOIN interactions i ON i.interaction_id = r.interaction_id WHERE i.role = ? "
    "AND r.seq = (SELECT max(l.seq) FROM ratings l WHERE l.interaction_id = r.interaction_id "
    "AND l.user_id = r.user_id) AND (r.rating IS NOT NULL OR r.thumbs IS NOT NULL) ORDER BY r.seq"
)
_ANSWERS = (
    "SELECT adapter_version, count(*), "
    "count(latency_s), sum(latency_s), sum(latency_s * latency_s), "
    "count(n_output_tokens), sum(n_output_tokens), sum(1.0 * n_output_tokens * n_output_tokens) "
    "FROM interactions WHERE role = ? GROUP BY adapter_version ORDER BY min(seq)"
)
_ACTIVATED = (
    "SELECT e.version, e.created_us FROM adapter_events e JOIN adapters a ON a.version = e.version "
    "WHERE a.role = ? AND e.status = 'active' ORDER BY e.seq"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPoint:
    """Mean reward of consecutive marks."""

    ended_us: int
    """When the last of them was given."""
    reward: MeanInterval


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredBy:
    """A role's answers that one adapter gave."""

    version: str | None
    """``None``: the base model, or another model without one."""
    n_answers: int
    reward: MeanInterval | None
    """Over marks, in [-1, 1]. ``None``: no marks."""
    latency_s: MeanInterval | None
    """Seconds of an answer. ``None``: none was measured."""
    n_output_tokens: MeanInterval | None
    """Tokens of an answer. ``None``: none was counted."""


def reward_course(store: FeedbackStore, role: str) -> list[RewardPoint]:
    """Return the mean reward of consecutive marks on a role's answers, oldest first."""
    marks = [(mark, at_us) for mark, at_us, _ in _marks(store, role)]
    size = max(FEWEST, math.ceil(len(marks) / MOST_POINTS))
    points = []
    for start in range(0, len(marks), size):
        chunk = marks[start : start + size]
        found = mean_reward(Counter(mark for mark, _ in chunk))
        if found is not None:
            points.append(RewardPoint(ended_us=chunk[-1][1], reward=found))
    return points


def answers_by_adapter(store: FeedbackStore, role: str) -> list[AnsweredBy]:
    """Return a role's answers by the adapter that gave them, in order of the first answer."""
    marks: dict[str | None, Counter[Rating]] = {}
    for mark, _, version in _marks(store, role):
        marks.setdefault(version, Counter())[mark] += 1
    return [
        AnsweredBy(
            version=version,
            n_answers=n,
            reward=mean_reward(marks.get(version, Counter())),
            latency_s=_interval(*numbers[:3]),
            n_output_tokens=_interval(*numbers[3:]),
        )
        for version, n, *numbers in store.fetch(_ANSWERS, (role,))
    ]


def activations(store: FeedbackStore, role: str) -> list[tuple[str, int]]:
    """Return the adapters of a role that were activated, each with when, oldest first."""
    return [(version, at_us) for version, at_us in store.fetch(_ACTIVATED, (role,))]


def _interval(n: int, total: object, squares: object) -> MeanInterval | None:
    """Return the interval of a database's sums; PostgreSQL gives decimals."""
    return None if n == 0 else MeanInterval.of(n, float(str(total)), float(str(squares)))


def _marks(store: FeedbackStore, role: str) -> Iterator[tuple[Rating, int, str | None]]:
    """Marks that count, without their answers and raters, when each was given, and who answered."""
    for rating, thumbs, at_us, version in store.fetch(_MARKS, (role,)):
        yield Rating(interaction_id="", user_id="", rating=rating, thumbs=thumbs), at_us, version
