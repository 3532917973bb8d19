"""Changes of an adapter's status within a transaction of the feedback.

At most one adapter of a role is active; the database's own index holds that. An active one that becomes
stale answers no more, in the same transaction that changes its mark: the one that was active before it
takes its place, and without one the base model answers. One that is found worse on live traffic is taken
back in the transaction of the rating that decides.
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

_ADD_EVENT = insert_sql(
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
"""Ids of one statement."""
STORE_ITSELF: Final = "store"
"""Who changes the status of what depends on a changed mark."""


def registered_adapter(connection: Connection, version: str) -> AdapterRecord:
    """Return a registered adapter.

    Raises:
        AdapterNotFoundError: there is none of that version.
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
    """Return the adapters that answer for any role: active ones, and what they are tried against."""
    rows = connection.execute(
        "SELECT role, version FROM adapters WHERE status = 'active'"
    ).fetchall()
    controls = [running_test(connection, role) for role, _ in rows]
    return frozenset(
        [version for _, version in rows]
        + [
            control.control
            for control in controls
            if control is not None and control.control is not None
        ]
    )


def previous_version(connection: Connection, role: str) -> str | None:
    """Return the inactive adapter that was active last; ``None`` if there is none."""
    row = connection.execute(_PREVIOUS, (role,)).fetchone()
    return None if row is None else str(row[0])


def add_event(
    connection: Connection, version: str, status: str, *, reason: str | None, by: str, at_us: int
) -> None:
    """Write down that an adapter has a status from now on."""
    connection.execute(
        _ADD_EVENT,
        (version, status, reason, by, at_us),
    )


def change_status(
    connection: Connection,
    adapter: AdapterRecord,
    status: AdapterStatus,
    *,
    reason: str,
    by: str,
    at_us: int,
) -> None:
    """Give an adapter another status; a test on live traffic that it is part of ends.

    Raises:
        AdapterRefusedError: this one may not follow the one that it has.
    """
    check_change(adapter.version, adapter.status, status)
    ended = f"{adapter.version} became {status.replace('_', ' ')} ({reason})"
    end_test_of(connection, adapter.role, adapter.version, reason=ended, at_us=at_us)
    connection.execute(
        "UPDATE adapters SET status = ?, reason = ?, decided_us = ? WHERE version = ?",
        (status, reason, at_us, adapter.version),
    )
    add_event(connection, adapter.version, status, reason=reason, by=by, at_us=at_us)


def restore_previous(
    connection: Connection, role: str, *, reason: str, by: str, at_us: int
) -> str | None:
    """Activate the adapter that was active before; ``None`` if the base model answers now."""
    version = previous_version(connection, role)
    if version is not None:
        adapter = registered_adapter(connection, version)
        change_status(connection, adapter, "active", reason=reason, by=by, at_us=at_us)
    return version


def settle_test(connection: Connection, interaction_id: str, *, at_us: int) -> None:
    """End the running test that an answer is part of, where its ratings decide it by now.

    An adapter that is better answers all. One that is worse is taken back, and so is one that stays undecided
    unless its ratings were higher.
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
    """Make adapters stale that are not yet; of each role whose active one is, restore another.

    Returns:
        The versions that became stale.
    """
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
    """Make stale what was trained on a user's mark of an answer, or of two; return the versions."""
    first, *others = place
    where = "r.interaction_id = ? AND r.other_id = ? AND r.user_id = ?"
    versions = _dependent(connection, where, (first, "".join(others), user_id))
    reason = f"a {'comparison' if others else 'rating'} it learned from was {change}"
    return mark_stale(connection, versions, reason=reason, at_us=at_us)


def mark_forgotten(
    connection: Connection, user_id: str, interaction_ids: Sequence[str], *, at_us: int
) -> int:
    """Make stale what was trained on a user's answers or marks, and have its files removed.

    Returns:
        How many adapters there are.
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
