"""Alarms, guards and states of the runtime state: what watches and remembers beside the arms."""

from collections.abc import Mapping, Sequence
from typing import Any

from convergence_core.records import Json, canonical_json
from tasks.store.runtime.rows import StoredAlarm, StoredGuard
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.writes import revise

_ALARMS = (
    "SELECT a.seq, g.system, g.agent_type, a.arm_id, a.before, a.after, a.n, a.created_us "
    "FROM alarms a JOIN groups g ON g.id = a.group_id"
)
_GUARDS = (
    "SELECT seq, promoted, champion, since, alpha, tolerance, holdback, decision FROM guards "
    "WHERE group_id = ?"
)


def alarms(store: RuntimeStore, system: str | None = None) -> list[StoredAlarm]:
    """Return all alarms, or those of one system, oldest first."""
    where, values = ("", ()) if system is None else (" WHERE g.system = ?", (system,))
    with store.database.reading() as connection:
        rows = connection.execute(f"{_ALARMS}{where} ORDER BY a.seq", values).fetchall()
    return [_alarm(row) for row in rows]


def untold_alarms(store: RuntimeStore) -> list[StoredAlarm]:
    """Return the alarms that nobody outside was told of, oldest first."""
    with store.database.reading() as connection:
        rows = connection.execute(f"{_ALARMS} WHERE a.is_told = 0 ORDER BY a.seq").fetchall()
    return [_alarm(row) for row in rows]


def told(store: RuntimeStore, found: Sequence[StoredAlarm]) -> None:
    """Remember that somebody outside was told of these alarms."""
    with store.database.transaction() as connection:
        for alarm in found:
            connection.execute("UPDATE alarms SET is_told = 1 WHERE seq = ?", (alarm.seq,))


def begin_guard(
    store: RuntimeStore,
    group_id: int,
    *,
    promoted: str,
    champion: str,
    alpha: float,
    tolerance: float,
    holdback: float,
) -> None:
    """Watch a promotion from the next policy version on; the watch before it ends."""
    with store.database.transaction() as connection:
        connection.execute(
            "UPDATE guards SET decision = 'ended' WHERE group_id = ? AND decision = 'watching'",
            (group_id,),
        )
        connection.execute(
            "INSERT INTO guards(group_id, promoted, champion, since, alpha, tolerance, holdback, "
            "decision, created_us) VALUES (?, ?, ?, (SELECT version FROM groups WHERE id = ?), "
            "?, ?, ?, 'watching', ?)",
            (group_id, promoted, champion, group_id, alpha, tolerance, holdback, store.now_us()),
        )
        revise(connection, group_id)


def watching(store: RuntimeStore, group_id: int) -> StoredGuard | None:
    """Return the guard that watches a group, ``None`` if none does."""
    with store.database.reading() as connection:
        row = connection.execute(
            f"{_GUARDS} AND decision = 'watching' ORDER BY seq DESC LIMIT 1", (group_id,)
        ).fetchone()
    return None if row is None else _guard(row)


def guards(store: RuntimeStore, group_id: int) -> list[StoredGuard]:
    """Return every guard that a group had, oldest first."""
    with store.database.reading() as connection:
        rows = connection.execute(f"{_GUARDS} ORDER BY seq", (group_id,)).fetchall()
    return [_guard(row) for row in rows]


def end_guard(store: RuntimeStore, group_id: int, guard: StoredGuard, decision: str) -> bool:
    """Store a guard's verdict; return ``False`` if another process was first."""
    with store.database.transaction() as connection:
        connection.execute(
            "UPDATE guards SET decision = ? WHERE seq = ? AND decision = 'watching'",
            (decision, guard.seq),
        )
        was_first = connection.changes() > 0
        revise(connection, group_id)
    return was_first


def requests_after(
    store: RuntimeStore, group_id: int, seq: int, *, most: int = 10_000
) -> list[tuple[int, str, str, str | None, float]]:
    """Return number, arm, user, context and reward of what contextual arms learn from next."""
    with store.database.reading() as connection:
        rows = connection.execute(
            "SELECT r.seq, d.arm_id, d.user_id, d.context_json, r.reward FROM rewards r "
            "JOIN decisions d ON d.decision_id = r.decision_id "
            "WHERE r.group_id = ? AND r.status = 'ok' AND r.seq > ? ORDER BY r.seq LIMIT ?",
            (group_id, seq, most),
        ).fetchall()
    return [tuple(row) for row in rows]


def state(store: RuntimeStore, group_id: int) -> tuple[str | None, int]:
    """Return what contextual arms knew, as JSON, and after which reward."""
    with store.database.reading() as connection:
        row = connection.execute(
            "SELECT state_json, state_seq FROM groups WHERE id = ?", (group_id,)
        ).fetchone()
    return row[0], int(row[1])


def save_state(store: RuntimeStore, group_id: int, found: Mapping[str, Json], seq: int) -> None:
    """Keep what contextual arms know after a reward, unless more is kept already."""
    with store.database.transaction() as connection:
        connection.execute(
            "UPDATE groups SET state_json = ?, state_seq = ? WHERE id = ? AND state_seq < ?",
            (canonical_json(dict(found)), seq, group_id, seq),
        )


def _alarm(row: Any) -> StoredAlarm:
    return StoredAlarm(
        seq=row[0], system=row[1], agent_type=row[2], arm_id=row[3] or None, before=row[4],
        after=row[5], n=row[6], created_us=row[7],
    )  # fmt: skip


def _guard(row: Any) -> StoredGuard:
    return StoredGuard(
        seq=row[0], promoted=row[1], champion=row[2], since=row[3], alpha=row[4],
        tolerance=row[5], holdback=row[6], decision=row[7],
    )  # fmt: skip
