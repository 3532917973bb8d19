"""Evidence of adapters' tests on live traffic, from the ratings that count."""

from typing import TYPE_CHECKING

from convergence_core.feedback.live_test_records import LiveEvidence, LiveStatus, LiveTest
from convergence_core.feedback.records import Rating
from tasks.store.database import Connection, Database
from tasks.store.feedback.live_tests import all_tests, end_test, running_test, weighed

if TYPE_CHECKING:
    from convergence_core.feedback.live_test import RatedConversation

_MARKS = (
    "SELECT a.unit, a.is_candidate, r.rating, r.thumbs FROM live_test_answers a "
    "JOIN interactions i ON i.interaction_id = a.interaction_id "
    "JOIN ratings r ON r.interaction_id = a.interaction_id "
    "WHERE a.test_id = ? AND (r.rating IS NOT NULL OR r.thumbs IS NOT NULL) AND r.seq = "
    "(SELECT max(l.seq) FROM ratings l WHERE l.interaction_id = r.interaction_id "
    "AND l.user_id = r.user_id) ORDER BY i.seq, r.seq"
)
"""What counts of every rater's marks of a test's answers, in order of the answers."""


def rated_conversations(connection: Connection, test_id: str) -> "list[RatedConversation]":
    """Return a test's conversations with ratings, in order of their first rated answers."""
    from convergence_core.feedback.live_test import RatedConversation  # noqa: PLC0415 - brings SciPy

    marks: dict[str, list[float]] = {}
    sides: dict[str, bool] = {}
    for unit, is_candidate, rating, thumbs in connection.execute(_MARKS, (test_id,)).fetchall():
        mark = Rating(interaction_id="", user_id="", rating=rating, thumbs=thumbs)
        marks.setdefault(unit, []).append(mark.reward)
        sides[unit] = bool(is_candidate)
    return [
        RatedConversation(
            is_candidate=sides[unit], reward=sum(found) / len(found), n_ratings=len(found)
        )
        for unit, found in marks.items()
    ]


def verdict(connection: Connection, test: LiveTest) -> tuple[LiveStatus, LiveEvidence] | None:
    """Return how a running test is to end by the ratings that count now; ``None``: it goes on."""
    from convergence_core.feedback.live_test import claim_of, weigh  # noqa: PLC0415 - as above

    found = rated_conversations(connection, test.test_id)
    status: LiveStatus | None = claim_of(found, test.share)
    if status is None and sum(one.n_ratings for one in found) >= test.max_ratings:
        status = "undecided"
    return None if status is None else (status, weigh(found, test.share))


def evidence_now(connection: Connection, test: LiveTest) -> LiveEvidence:
    """Return the evidence of a test by the ratings that count now."""
    from convergence_core.feedback.live_test import weigh  # noqa: PLC0415 - as above

    return weigh(rated_conversations(connection, test.test_id), test.share)


def end_test_of(
    connection: Connection, role: str, version: str, *, reason: str, at_us: int
) -> None:
    """End the running test of a role where it compares a version that has changed its status."""
    test = running_test(connection, role)
    if test is not None and version in (test.version, test.control):
        evidence = evidence_now(connection, test)
        end_test(connection, test, "ended", evidence, reason=reason, at_us=at_us)


def live_tests(database: Database, role: str | None = None) -> list[LiveTest]:
    """Return the tests of a role, or all, in order of their beginning; those that run with their evidence."""
    with database.reading() as connection:
        return [
            weighed(one, evidence_now(connection, one)) if one.status == "running" else one
            for one in all_tests(connection, role)
        ]
