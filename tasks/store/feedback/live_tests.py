"""Tests of adapters on live traffic: rows, and evidence of counting ratings.

A test has an event when it begins and one when it ends; of each role at most one runs, that of the active
adapter. Whatever else changes the status of one of the two that are compared ends it, in the same transaction.
"""

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from convergence_core.feedback.live_test_records import LiveAnswer, LiveStatus, LiveTest
from convergence_core.feedback.records import Rating
from tasks.store.database import Connection, Database
from tasks.store.feedback.schema import CURRENT_RATINGS, LIVE_TESTS

if TYPE_CHECKING:
    from convergence_core.config.feedback import LiveTestConfig
    from convergence_core.feedback.live_test import RatedConversation

_IS_LAST: Final = (
    "AND seq = (SELECT max(l.seq) FROM live_tests l WHERE l.test_id = live_tests.test_id)"
)
"""Condition by which an event of a test is its last."""


def begin_test(
    connection: Connection,
    rule: "LiveTestConfig",
    *,
    version: str,
    control: str | None,
    role: str,
    at_us: int,
) -> LiveTest:
    """Write down that an adapter is tried from now on.

    Args:
        connection: transaction in which it becomes active.
        rule: how it is tried.
        version: of the adapter.
        control: what answered before; ``None`` means the base model.
        role: that they answer for.
        at_us: now.
    """
    test = LiveTest(
        test_id=uuid.uuid4().hex,
        version=version,
        control=control,
        role=role,
        share=rule.share,
        max_ratings=rule.max_ratings,
        status="running",
        started_us=at_us,
    )
    LIVE_TESTS.add(connection, test, at_us)
    return test


def end_test(
    connection: Connection,
    test: LiveTest,
    status: LiveStatus,
    *,
    reason: str | None = None,
    at_us: int,
) -> LiveTest:
    """Write down how a test has ended, with the ratings that count now; return it."""
    ended = replace(weighed(connection, test), status=status, reason=reason, ended_us=at_us)
    LIVE_TESTS.add(connection, ended, at_us)
    return ended


def running_test(connection: Connection, role: str) -> LiveTest | None:
    """Return the test of a role's active adapter; ``None`` means none runs."""
    return LIVE_TESTS.first(connection, _IS_LAST, status="running", role=role)


def test_of_answer(connection: Connection, interaction_id: str) -> LiveTest | None:
    """Return the test that an answer is part of, as it stands; ``None`` for none."""
    row = connection.execute(
        "SELECT test_id FROM live_test_answers WHERE interaction_id = ?", (interaction_id,)
    ).fetchone()
    if row is None:
        return None
    return LIVE_TESTS.first(connection, "ORDER BY seq DESC", test_id=row[0])


def add_answer(connection: Connection, interaction_id: str, part: LiveAnswer) -> None:
    """Write down an answer's part in a test."""
    connection.execute(
        "INSERT INTO live_test_answers(interaction_id, test_id, unit, is_candidate) "
        "VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (interaction_id, part.test_id, part.unit, int(part.is_candidate)),
    )


_MARKS = (
    f"SELECT a.unit, a.is_candidate, r.rating, r.thumbs FROM live_test_answers a, {CURRENT_RATINGS} "  # noqa: S608 - constants
    "AND a.interaction_id = i.interaction_id AND a.test_id = ? ORDER BY i.seq, r.seq"
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
            is_candidate=sides[unit],
            reward=sum(unit_marks) / len(unit_marks),
            n_ratings=len(unit_marks),
        )
        for unit, unit_marks in marks.items()
    ]


def verdict(connection: Connection, test: LiveTest) -> LiveStatus | None:
    """Return how a running test is to end by the ratings that count now; ``None``: it goes on."""
    from convergence_core.feedback.live_test import claim_of  # noqa: PLC0415 - as above

    conversations = rated_conversations(connection, test.test_id)
    status: LiveStatus | None = claim_of(conversations, test.share)
    if (
        status is None
        and sum(conversation.n_ratings for conversation in conversations) >= test.max_ratings
    ):
        status = "undecided"
    return status


def weighed(connection: Connection, test: LiveTest) -> LiveTest:
    """Return a test with the evidence of the ratings that count now."""
    from convergence_core.feedback.live_test import weigh  # noqa: PLC0415 - as above

    return weigh(test, rated_conversations(connection, test.test_id))


def end_test_of(
    connection: Connection, role: str, version: str, *, reason: str, at_us: int
) -> None:
    """End the running test of a role where it compares a version that has changed its status."""
    test = running_test(connection, role)
    if test is not None and version in (test.version, test.control):
        end_test(connection, test, "ended", reason=reason, at_us=at_us)


def live_tests(database: Database, role: str | None = None) -> list[LiveTest]:
    """Return the tests of a role, or all, in order of their beginning; those that run with their evidence."""
    with database.reading() as connection:
        return [
            weighed(connection, test) if test.status == "running" else test
            for test in LIVE_TESTS.find(
                connection, f"{_IS_LAST} ORDER BY started_us, seq", role=role
            )
        ]
