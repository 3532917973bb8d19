"""Rows of adapters' tests on live traffic.

A test has an event when it begins and one when it ends; of each role at most one runs, that of the active
adapter. Whatever else changes the status of one of the two that are compared ends it, in the same transaction.
"""

import uuid
from dataclasses import replace
from typing import Final

from convergence_core.feedback.live_test_records import (
    LiveAnswer,
    LiveEvidence,
    LiveRule,
    LiveStatus,
    LiveTest,
)
from tasks.store.database import Connection
from tasks.store.feedback.schema import LIVE_TESTS

_LAST: Final = f"{LIVE_TESTS.select} t WHERE t.seq = (SELECT max(l.seq) FROM live_tests l WHERE l.test_id = t.test_id)"  # noqa: S608 - constants


def begin_test(
    connection: Connection,
    rule: LiveRule,
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
        control: what answered before; ``None``: the base model.
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
    _add(connection, test, at_us)
    return test


def end_test(
    connection: Connection,
    test: LiveTest,
    status: LiveStatus,
    evidence: LiveEvidence,
    *,
    reason: str | None = None,
    at_us: int,
) -> LiveTest:
    """Write down how a test has ended; return it."""
    ended = replace(weighed(test, evidence), status=status, reason=reason, ended_us=at_us)
    _add(connection, ended, at_us)
    return ended


def weighed(test: LiveTest, evidence: LiveEvidence) -> LiveTest:
    """Return a test with its evidence."""
    return replace(
        test,
        n_ratings=evidence.n_ratings,
        n_conversations=evidence.n_conversations,
        difference=evidence.difference,
        low=evidence.low,
        high=evidence.high,
    )


def running_test(connection: Connection, role: str) -> LiveTest | None:
    """Return the test of a role's active adapter; ``None``: none runs."""
    row = connection.execute(f"{_LAST} AND status = 'running' AND role = ?", (role,)).fetchone()
    return None if row is None else LIVE_TESTS.record(row)


def test_of_answer(connection: Connection, interaction_id: str) -> LiveTest | None:
    """Return the test that an answer is part of, as it stands; ``None``: of none."""
    row = connection.execute(
        "SELECT test_id FROM live_test_answers WHERE interaction_id = ?", (interaction_id,)
    ).fetchone()
    if row is None:
        return None
    return LIVE_TESTS.record(connection.execute(f"{_LAST} AND test_id = ?", row).fetchone())


def all_tests(connection: Connection, role: str | None = None) -> list[LiveTest]:
    """Return the tests of a role, or all, as they stand, in order of their beginning."""
    where, values = ("", ()) if role is None else (" AND role = ?", (role,))
    rows = connection.execute(f"{_LAST}{where} ORDER BY t.started_us, t.seq", values).fetchall()
    return LIVE_TESTS.records(rows)


def add_answer(connection: Connection, interaction_id: str, part: LiveAnswer) -> None:
    """Write down an answer's part in a test."""
    connection.execute(
        "INSERT INTO live_test_answers(interaction_id, test_id, unit, is_candidate) "
        "VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (interaction_id, part.test_id, part.unit, int(part.is_candidate)),
    )


def _add(connection: Connection, test: LiveTest, at_us: int) -> None:
    connection.execute(LIVE_TESTS.insert, LIVE_TESTS.values(test, at_us))
