"""Live tests of adapters: their rows and the evidence from ratings.

A test has an event at its start and one at its end. At most one test per role runs, that of the
active adapter. Any other change of either adapter's status ends the test in the same transaction.
"""

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from convergence_core.feedback.adapter_records import AdapterRecord
from convergence_core.feedback.live_test_records import LiveStatus, LiveTest
from convergence_core.feedback.records import Rating
from convergence_core.records import fields_of
from tasks.store.database import Connection, Database
from tasks.store.feedback.schema import CURRENT_RATINGS, LIVE_TESTS

if TYPE_CHECKING:
    from convergence_core.config.feedback import LiveTestConfig
    from convergence_core.feedback.live_test import RatedConversation

_IS_LAST: Final = (
    "AND seq = (SELECT max(l.seq) FROM live_tests l WHERE l.test_id = live_tests.test_id)"
)
"""Condition that selects the last event of a test."""


def begin_test(
    connection: Connection,
    rule: "LiveTestConfig",
    adapter: AdapterRecord,
    control: AdapterRecord | None,
    *,
    at_us: int,
) -> None:
    """Record the start of a live test.

    Args:
        connection: transaction that activates the adapter.
        rule: settings of the test.
        adapter: adapter under test.
        control: adapter that answered before; ``None`` means the base model.
        at_us: current time, in microseconds.
    """
    test = LiveTest(
        test_id=uuid.uuid4().hex,
        control=None if control is None else control.version,
        **fields_of(adapter, "version", "role"),
        **fields_of(rule, "share", "max_ratings"),
        status="running",
        started_us=at_us,
    )
    LIVE_TESTS.add(connection, test, at_us)


def end_test(
    connection: Connection,
    test: LiveTest,
    status: LiveStatus,
    *,
    reason: str | None = None,
    at_us: int,
) -> LiveTest:
    """Record the end of a test with the current ratings and return the test."""
    ended = replace(weighed(connection, test), status=status, reason=reason, ended_us=at_us)
    LIVE_TESTS.add(connection, ended, at_us)
    return ended


def running_test(connection: Connection, role: str) -> LiveTest | None:
    """Return the running test of a role; ``None`` if there is none."""
    return LIVE_TESTS.first(connection, _IS_LAST, status="running", role=role)


def test_of_answer(connection: Connection, interaction_id: str) -> LiveTest | None:
    """Return the test that an answer is part of, in its current state; ``None`` if none."""
    row = connection.execute(
        "SELECT test_id FROM live_test_answers WHERE interaction_id = ?", (interaction_id,)
    ).fetchone()
    if row is None:
        return None
    return LIVE_TESTS.first(connection, "ORDER BY seq DESC", test_id=row[0])


_MARKS = (
    f"SELECT a.unit, a.is_candidate, r.rating, r.thumbs FROM live_test_answers a, {CURRENT_RATINGS} "  # noqa: S608 - constants
    "AND a.interaction_id = i.interaction_id AND a.test_id = ? ORDER BY i.seq, r.seq"
)
"""Current marks of a test's answers, in order of the answers."""


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
    """Return how a running test ends by its current ratings; ``None`` if it continues."""
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
    """Return a test with the evidence of its current ratings."""
    from convergence_core.feedback.live_test import weigh  # noqa: PLC0415 - as above

    return weigh(test, rated_conversations(connection, test.test_id))


def end_test_of(
    connection: Connection, role: str, version: str, *, reason: str, at_us: int
) -> None:
    """End the running test of a role if it compares the given version."""
    test = running_test(connection, role)
    if test is not None and version in (test.version, test.control):
        end_test(connection, test, "ended", reason=reason, at_us=at_us)


def live_tests(database: Database, role: str | None = None) -> list[LiveTest]:
    """Return the tests of a role or of all, in order of start.

    Running tests include their current evidence.
    """
    with database.reading() as connection:
        return [
            weighed(connection, test) if test.status == "running" else test
            for test in LIVE_TESTS.find(
                connection, f"{_IS_LAST} ORDER BY started_us, seq", role=role
            )
        ]
