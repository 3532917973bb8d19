"""Counts of the feedback by role, and the mean rating with its interval."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from convergence_core.feedback.rater_consensus import RaterConsensus, RaterProfile, rater_consensus
from convergence_core.feedback.records import LABELS, Rating
from convergence_core.result.number_text import plural
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.live_tests import live_tests
from tasks.store.feedback.schema import COMPARISONS, CURRENT_RATINGS, RATINGS

_LAST_MARKS = (
    f"SELECT i.role, r.rating, r.thumbs, count(*) FROM {CURRENT_RATINGS} "  # noqa: S608 - constants
    "GROUP BY i.role, r.rating, r.thumbs"
)
_ANSWERS = "SELECT role, count(*) FROM interactions GROUP BY role ORDER BY role"
_RATED = f"SELECT i.role, count(DISTINCT r.interaction_id) FROM {CURRENT_RATINGS} GROUP BY i.role"  # noqa: S608 - constants
_COMPARED = (
    "SELECT count(*) FROM comparisons c "  # noqa: S608 - constants
    f"WHERE c.chosen_id IS NOT NULL AND {COMPARISONS.is_last('c')}"
)
_ACTIVE = "SELECT role, version FROM adapters WHERE status = 'active'"
_Z = 1.96
"""Half-width of a 95 % interval in standard errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanInterval:
    """Mean of numbers with its 95 % interval (normal, treating the numbers as independent)."""

    n: int
    mean: float
    low: float | None
    """Ends of the interval. ``None`` if fewer than two numbers."""
    high: float | None

    @classmethod
    def of(
        cls, n: int, total: float, squares: float, *, least: float = 0.0, most: float = math.inf
    ) -> "MeanInterval | None":
        """Return the interval of ``n`` numbers in [least, most]; ``None`` if ``n`` is 0.

        Args:
            n: number of values.
            total: their sum.
            squares: sum of their squares.
            least: lower bound of the values.
            most: upper bound of the values.
        """
        if n == 0:
            return None
        mean = total / n
        if n == 1:
            return cls(n=n, mean=mean, low=None, high=None)
        variance = max(0.0, squares - n * mean**2) / (n - 1)
        half = _Z * math.sqrt(variance / n)
        return cls(n=n, mean=mean, low=max(least, mean - half), high=min(most, mean + half))


def mean_reward(marks: "Counter[Rating]") -> MeanInterval | None:
    """Return the mean reward of marks, given as mark → count; ``None`` if there are none."""
    total = sum(k * mark.reward for mark, k in marks.items())
    squares = sum(k * mark.reward**2 for mark, k in marks.items())
    return MeanInterval.of(marks.total(), total, squares, least=-1.0, most=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCounts:
    """Counts of one role's answers and their marks."""

    n_interactions: int
    n_rated: int
    """Answers with a mark; the others count as missing, not as 0."""
    ratings: Mapping[str, int]
    """Label of the rating, e.g. ``Excellent`` → number of marks."""
    thumbs_up: int
    thumbs_down: int
    mean_reward: float | None
    """Mean of ``(rating - 3) / 2`` and of thumbs as 1 and -1, over marks. ``None`` if there are
    none.
    """
    mean_reward_low: float | None
    """Ends of its 95 % interval (normal, treating marks as independent). ``None`` if fewer than
    two marks.
    """
    mean_reward_high: float | None
    adapter_version: str | None
    """Version of the active adapter. ``None`` if the base model answers."""
    live_test: str | None
    """Sentence on the last live test of an adapter. ``None`` if there was none."""

    @property
    def words(self) -> str:
        """Sentence on the role's adapter, its ratings and its last live test."""
        answers = (
            None if self.adapter_version is None else f"adapter {self.adapter_version} answers"
        )
        return "; ".join(part for part in (answers, self.rated_words, self.live_test) if part)

    @property
    def rated_words(self) -> str:
        """Sentence on the role's ratings, with the interval of the mean."""
        sentence = f"{plural(self.n_interactions, 'answer')}, {self.n_rated:,} rated"
        if self.mean_reward is None:
            return sentence
        sentence += f", mean reward {self.mean_reward:.2f} of -1 to 1"
        if self.mean_reward_low is None or self.mean_reward_high is None:
            return sentence
        low, high = self.mean_reward_low, self.mean_reward_high
        return f"{sentence} (95 % interval {low:.2f} to {high:.2f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackCounts:
    """Counts of one store's feedback."""

    roles: Mapping[str, RoleCounts]
    n_comparisons: int
    rewards: Mapping[str, int]
    """Status of ratings sent as rewards of arms → number."""


def feedback_counts(store: FeedbackStore) -> FeedbackCounts:
    """Return counts of the feedback by role."""
    marks: dict[str, Counter[Rating]] = {}
    for role, rating, thumbs, n in store.fetch(_LAST_MARKS):
        mark = Rating(interaction_id="", user_id="", rating=rating, thumbs=thumbs)
        marks.setdefault(role, Counter())[mark] += n
    rated = dict(store.fetch(_RATED))
    active = dict(store.fetch(_ACTIVE))
    tests = {test.role: test.words for test in live_tests(store.database)}
    roles = {
        role: RoleCounts(
            n_interactions=n,
            n_rated=rated.get(role, 0),
            **_numbers(marks.get(role, Counter())),
            adapter_version=active.get(role),
            live_test=tests.get(role),
        )
        for role, n in store.fetch(_ANSWERS)
    }
    sent = store.fetch("SELECT status, count(*) FROM sent_rewards GROUP BY status ORDER BY status")
    (compared,) = store.fetch(_COMPARED)
    return FeedbackCounts(roles=roles, n_comparisons=compared[0], rewards=dict(sent))


def _numbers(marks: "Counter[Rating]") -> dict[str, Any]:
    """Return the fields of ``RoleCounts`` that marks determine."""
    mean = mean_reward(marks)
    ends = (None, None, None) if mean is None else (mean.mean, mean.low, mean.high)
    by_rating = {mark.rating: k for mark, k in marks.items() if mark.rating is not None}
    by_thumbs = {mark.thumbs: k for mark, k in marks.items() if mark.thumbs is not None}
    return {
        "ratings": {label: by_rating.get(rating, 0) for rating, label in LABELS.items()},
        **{f"thumbs_{side}": by_thumbs.get(side, 0) for side in ("up", "down")},
        **dict(zip(("mean_reward", "mean_reward_low", "mean_reward_high"), ends, strict=True)),
    }


FEWEST: Final = 10
"""Minimum marks per point of a course; the last point may have fewer."""
MOST_POINTS: Final = 60
_MARKS = (
    f"SELECT r.rating, r.thumbs, r.created_us, i.adapter_version FROM {CURRENT_RATINGS} "  # noqa: S608 - constants
    "AND i.role = ? ORDER BY r.seq"
)
_ANSWERS_BY_ADAPTER = (
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
class AnsweredBy:
    """Answers of a role by one adapter."""

    version: str | None
    """Version of the adapter. ``None`` means the base model, or another model without an adapter.
    """
    n_answers: int
    reward: MeanInterval | None
    """Mean mark in [-1, 1]. ``None`` if there are no marks."""
    latency_s: MeanInterval | None
    """Seconds per answer. ``None`` if unmeasured."""
    n_output_tokens: MeanInterval | None
    """Tokens per answer. ``None`` if uncounted."""


def reward_course(store: FeedbackStore, role: str) -> list[tuple[int, MeanInterval]]:
    """Return the mean reward of consecutive chunks of a role's marks, oldest first.

    Each pair is the time of the chunk's last mark, in microseconds, and the mean.
    """
    marks = [(mark, at_us) for mark, at_us, _ in _marks(store, role)]
    size = max(FEWEST, math.ceil(len(marks) / MOST_POINTS))
    points = []
    for start in range(0, len(marks), size):
        chunk = marks[start : start + size]
        mean = mean_reward(Counter(mark for mark, _ in chunk))
        if mean is not None:
            points.append((chunk[-1][1], mean))
    return points


def answers_by_adapter(store: FeedbackStore, role: str) -> list[AnsweredBy]:
    """Return a role's answers grouped by adapter, in order of the first answer."""
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
        for version, n, *numbers in store.fetch(_ANSWERS_BY_ADAPTER, (role,))
    ]


def activations(store: FeedbackStore, role: str) -> list[tuple[str, int]]:
    """Return the activations of a role's adapters as (version, microseconds), oldest first."""
    return [(version, at_us) for version, at_us in store.fetch(_ACTIVATED, (role,))]


def _interval(n: int, total: object, squares: object) -> MeanInterval | None:
    """Return the interval of a database's sums, which are decimals in PostgreSQL."""
    return None if n == 0 else MeanInterval.of(n, float(str(total)), float(str(squares)))


def _marks(store: FeedbackStore, role: str) -> Iterator[tuple[Rating, int, str | None]]:
    """Yield the current marks without answer and rater, with time and adapter."""
    for rating, thumbs, at_us, version in store.fetch(_MARKS, (role,)):
        yield Rating(interaction_id="", user_id="", rating=rating, thumbs=thumbs), at_us, version


_ALL_MARKS = f"SELECT {RATINGS.columns_of('r')}, i.role FROM {CURRENT_RATINGS} ORDER BY r.seq"  # noqa: S608 - constants
MOST_RATERS: Final = 10
"""Maximum raters in ``rater_sentences``; those with the most marks come first."""


def store_consensus(store: FeedbackStore, role: str | None = None) -> RaterConsensus:
    """Return the consensus of a store's raters.

    Args:
        store: the feedback.
        role: persona that answered; ``None`` means any.
    """
    rows = store.fetch(_ALL_MARKS)
    return rater_consensus([RATINGS.record(row) for *row, of in rows if role in {None, of}])


def comparable_raters(consensus: RaterConsensus) -> tuple[RaterProfile, ...]:
    """Return the raters who share answers with others; only their bias can be estimated."""
    return tuple(rater for rater in consensus.raters if rater.n_shared > 0)


def rater_sentences(store: FeedbackStore) -> list[str]:
    """Return a sentence per comparable rater."""
    raters = comparable_raters(store_consensus(store))
    lines = [rater.words for rater in raters[:MOST_RATERS]]
    if len(raters) > MOST_RATERS:
        lines.append(f"and {len(raters) - MOST_RATERS} raters with fewer ratings")
    return lines
