"""Changes of an adapter's status within a transaction of the feedback.

At most one adapter of a role is active, which a unique index enforces. If the active one becomes
stale, the same transaction replaces it by the previously active one, or by the base model. An
adapter that is worse on live traffic is rolled back in the transaction of the deciding rating.
"""

from collections.abc import Sequence
from typing import Any, Final

from convergence_core.errors import AdapterNotFoundError
from convergence_core.feedback.adapter_records import AdapterRecord, AdapterStatus, check_change
from convergence_core.feedback.live_test_records import BY as LIVE_TEST
from tasks.store.database import Connection, insert_sql
from tasks.store.feedback.live_tests import (
    end_test,
    end_test_of,
    running_test,
    test_of_answer,
    verdict,
)
from tasks.store.feedback.schema import ADAPTERS

ADD_EVENT = insert_sql(
    "adapter_events", ("version", "status", "reason", "changed_by", "created_us")
)
_LOCK = "SELECT g.version FROM adapters g ORDER BY g.version/*lock*/"
_DEPENDENT: Final = (
    "WITH RECURSIVE dependents(version) AS (SELECT r.version FROM adapter_rows r WHERE {where} UNION "
    "SELECT a.version FROM adapters a JOIN dependents d ON a.parent = d.version) "
    "SELECT version FROM dependents ORDER BY version"
)
_PREVIOUS = (
    "SELECT a.version FROM adapters a JOIN adapter_events e ON e.version = a.version "
    "WHERE a.role = ? AND a.status = 'inactive' AND e.status = 'active' "
    "GROUP BY a.version ORDER BY max(e.seq) DESC LIMIT 1"
)
_BATCH = 400
"""Maximum ids per statement."""
STORE_ITSELF: Final = "store"
"""Author of the status changes that follow from a changed mark."""


def registered_adapter(connection: Connection, version: str) -> AdapterRecord:
    """Return a registered adapter.

    Raises:
        AdapterNotFoundError: the version is not registered.
    """
    adapter = ADAPTERS.first(connection, version=version)
    if adapter is None:
        raise AdapterNotFoundError(
            f"`version` must be that of a registered adapter, but got {version[:200]!r}. "
            "`convergence adapters list` shows them."
        )
    return adapter


def active_adapter(connection: Connection, role: str) -> AdapterRecord | None:
    """Return the adapter that answers for a role; ``None`` if the base model does."""
    return ADAPTERS.first(connection, role=role, status="active")


def answering_versions(connection: Connection) -> frozenset[str]:
    """Return the adapters that answer for any role, including controls of live tests."""
    active = ADAPTERS.find(connection, status="active")
    tests = [running_test(connection, adapter.role) for adapter in active]
    controls = {test.control for test in tests if test is not None and test.control is not None}
    return frozenset(controls) | {adapter.version for adapter in active}


def previous_version(connection: Connection, role: str) -> str | None:
    """Return the most recently active of a role's inactive adapters; ``None`` if there is none."""
    row = connection.execute(_PREVIOUS, (role,)).fetchone()
    return None if row is None else str(row[0])


def change_status(
    connection: Connection,
    adapter: AdapterRecord,
    status: AdapterStatus,
    *,
    reason: str,
    by: str,
    at_us: int,
) -> None:
    """Change an adapter's status and end a live test that includes it.

    Raises:
        AdapterRefusedError: the current status does not allow the change.
    """
    check_change(adapter.version, adapter.status, status)
    ended = f"{adapter.version} became {status.replace('_', ' ')} ({reason})"
    end_test_of(connection, adapter.role, adapter.version, reason=ended, at_us=at_us)
    connection.execute(
        "UPDATE adapters SET status = ?, reason = ?, decided_us = ? WHERE version = ?",
        (status, reason, at_us, adapter.version),
    )
    connection.execute(ADD_EVENT, (adapter.version, status, reason, by, at_us))


def restore_previous(
    connection: Connection, role: str, *, reason: str, by: str, at_us: int
) -> str | None:
    """Activate the previously active adapter; return ``None`` if the base model answers now."""
    version = previous_version(connection, role)
    if version is not None:
        adapter = registered_adapter(connection, version)
        change_status(connection, adapter, "active", reason=reason, by=by, at_us=at_us)
    return version


def settle_test(connection: Connection, interaction_id: str, *, at_us: int) -> None:
    """End the live test that an answer is part of if its ratings decide it now.

    A better adapter then answers all requests. A worse one is rolled back, and so is an undecided
    one unless its ratings were higher.
    """
    test = test_of_answer(connection, interaction_id)
    if test is None or test.status != "running" or verdict(connection, test) is None:
        return
    connection.execute(_LOCK)
    test = test_of_answer(connection, interaction_id)  # another rating may have decided meanwhile
    status = None if test is None or test.status != "running" else verdict(connection, test)
    if test is None or status is None:
        return
    ended = end_test(connection, test, status, at_us=at_us)
    if not ended.keeps_adapter:
        adapter = registered_adapter(connection, test.version)
        change_status(
            connection, adapter, "rolled_back", reason=ended.words, by=LIVE_TEST, at_us=at_us
        )
        restored = f"{test.version} was rolled back"
        restore_previous(connection, test.role, reason=restored, by=LIVE_TEST, at_us=at_us)


def mark_stale(
    connection: Connection, versions: Sequence[str], *, reason: str, at_us: int
) -> list[str]:
    """Make adapters stale and replace active ones by their predecessors."""
    if not versions:
        return []
    connection.execute(_LOCK)
    adapters = [registered_adapter(connection, version) for version in versions]
    fresh = [adapter for adapter in adapters if adapter.status != "stale"]
    for adapter in fresh:
        change_status(connection, adapter, "stale", reason=reason, by=STORE_ITSELF, at_us=at_us)
    for adapter in fresh:
        if adapter.status == "active":
            restored = f"{adapter.version} became stale"
            restore_previous(
                connection, adapter.role, reason=restored, by=STORE_ITSELF, at_us=at_us
            )
    return [adapter.version for adapter in fresh]


def mark_place_stale(
    connection: Connection, place: Sequence[str], user_id: str, change: str, *, at_us: int
) -> list[str]:
    """Make adapters stale that learned from a user's mark; return their versions."""
    first, *others = place
    where = "r.interaction_id = ? AND r.other_id = ? AND r.user_id = ?"
    versions = _dependent(connection, where, (first, "".join(others), user_id))
    reason = f"a {'comparison' if others else 'rating'} it learned from was {change}"
    return mark_stale(connection, versions, reason=reason, at_us=at_us)


def mark_forgotten(
    connection: Connection, user_id: str, interaction_ids: Sequence[str], *, at_us: int
) -> int:
    """Make adapters stale that learned from a user, and flag their files for removal.

    Returns:
        Number of these adapters.
    """
    versions = set(_dependent(connection, "r.user_id = ?", (user_id,)))
    for start in range(0, len(interaction_ids), _BATCH):
        batch = interaction_ids[start : start + _BATCH]
        marks = ", ".join("?" * len(batch))
        where = f"r.interaction_id IN ({marks}) OR r.other_id IN ({marks})"
        versions.update(_dependent(connection, where, (*batch, *batch)))
    names = sorted(versions)
    mark_stale(connection, names, reason="a user it learned from was forgotten", at_us=at_us)
    for version in names:
        connection.execute("UPDATE adapters SET is_removed = 1 WHERE version = ?", (version,))
    connection.execute("DELETE FROM adapter_rows WHERE user_id = ?", (user_id,))
    return len(names)


def _dependent(connection: Connection, where: str, values: Sequence[Any]) -> list[str]:
    rows = connection.execute(_DEPENDENT.format(where=where), values).fetchall()
    return [str(version) for (version,) in rows]
